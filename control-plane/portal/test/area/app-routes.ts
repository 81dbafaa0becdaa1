/** The routes of the account area; one added here meets every attack. */
import type { ThingName } from './things.ts';

/** What a route is asked with: enough of a form that it is not refused for its fields alone. */
export interface AppRoute {
  readonly params?: Readonly<Record<string, ThingName>>;
  readonly fields?: Readonly<Record<string, string>>;
  readonly things?: Readonly<Record<string, ThingName>>;
}

export const APP_ROUTES: Readonly<Record<string, AppRoute>> = {
  'GET /account': {},
  'GET /account/audit': {},
  'GET /account/credits': {},
  'GET /account/credits/export': {},
  'GET /account/jobs': {},
  'GET /account/jobs/:jobId': { params: { jobId: 'jobId' } },
  'GET /account/jobs/:jobId/result': { params: { jobId: 'jobId' } },
  'GET /account/jobs/:jobId/thumbnail': { params: { jobId: 'jobId' } },
  'GET /account/keys': {},
  'GET /account/keys/:id': { params: { id: 'keyId' } },
  'GET /account/keys/new': {},
  'GET /account/orders': {},
  'GET /account/orders/:id': { params: { id: 'orderId' } },
  'GET /account/orders/new': {},
  'GET /account/orders/packages': {},
  'GET /account/people': {},
  'GET /account/playground': {},
  'GET /account/playground/:jobId': { params: { jobId: 'playgroundJobId' } },
  'GET /account/playground/:jobId/result': { params: { jobId: 'playgroundJobId' } },
  'GET /account/profile': {},
  'GET /account/sessions': {},
  'GET /account/settings': {},
  'GET /account/usage': {},
  'GET /account/usage.csv': {},
  'POST /account/jobs/:jobId/resend': { params: { jobId: 'jobId' } },
  'POST /account/keys': {},
  'POST /account/keys/:id': { params: { id: 'keyId' } },
  'POST /account/keys/:id/revoke': { params: { id: 'keyId' } },
  'POST /account/keys/:id/rotate': { params: { id: 'keyId' }, fields: { overlap: '1h' } },
  'POST /account/language': { fields: { language: 'en' } },
  'POST /account/orders': {},
  'POST /account/orders/:id/cancel': { params: { id: 'orderId' } },
  'POST /account/people/:id/remove': { params: { id: 'userId' } },
  'POST /account/people/:id/revoke-keys': { params: { id: 'formerUserId' } },
  'POST /account/people/:id/role': { params: { id: 'userId' }, fields: { role: 'viewer' } },
  'POST /account/people/invitations/:id/resend': { params: { id: 'invitationId' } },
  'POST /account/people/invitations/:id/withdraw': { params: { id: 'invitationId' } },
  'POST /account/people/invite': {},
  'POST /account/playground': {},
  'POST /account/profile/password': {},
  'POST /account/sessions/:id/end': { params: { id: 'sessionId' } },
  'POST /account/sessions/end-others': {},
  'POST /account/settings/thresholds': {},
  'POST /account/settings/webhook': {},
  'POST /account/settings/webhook/remove': {},
  'POST /account/settings/webhook/test': {},
  'POST /account/sign-out': {},
  'POST /account/switch': { things: { account: 'accountId' } },
};

export const OPEN_ROUTES: readonly string[] = [
  'GET /account/assets/:hash/:name',
  'GET /account/invitations/:token',
  'GET /account/links/:token',
  'GET /account/sign-in',
  'POST /account/invitations/:token',
  'POST /account/links/:token',
  'POST /account/sign-in',
];
