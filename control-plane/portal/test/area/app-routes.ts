/**
 * The routes of the account area and the roles that may use each. A route in this list meets every
 * attack.
 */
import type { Role } from '../../session/roles.ts';
import type { ThingName } from './things.ts';

/**
 * Written out, since a table computed from the routes or from roles.ts would approve a route that
 * is open to everybody.
 */
const OWNERS: readonly Role[] = ['owner'];
const WORKERS: readonly Role[] = ['owner', 'member'];
const EVERYONE: readonly Role[] = ['owner', 'member', 'viewer'];

/** The form has enough fields that the route does not refuse it for these alone. */
export interface AppRoute {
  /** Every other role gets 403 in its own account. */
  readonly roles: readonly Role[];
  readonly params?: Readonly<Record<string, ThingName>>;
  readonly fields?: Readonly<Record<string, string>>;
  readonly things?: Readonly<Record<string, ThingName>>;
}

export const APP_ROUTES: Readonly<Record<string, AppRoute>> = {
  'GET /account': { roles: EVERYONE },
  'GET /account/audit': { roles: OWNERS },
  'GET /account/credits': { roles: EVERYONE },
  'GET /account/credits/export': { roles: EVERYONE },
  'GET /account/jobs': { roles: EVERYONE },
  'GET /account/jobs/:jobId': { roles: EVERYONE, params: { jobId: 'jobId' } },
  'GET /account/jobs/:jobId/original': { roles: WORKERS, params: { jobId: 'jobId' } },
  'GET /account/jobs/:jobId/result': { roles: WORKERS, params: { jobId: 'jobId' } },
  'GET /account/jobs/:jobId/thumbnail': { roles: WORKERS, params: { jobId: 'jobId' } },
  'GET /account/jobs/results.zip': { roles: WORKERS },
  'GET /account/keys': { roles: EVERYONE },
  'GET /account/keys/:id': { roles: EVERYONE, params: { id: 'keyId' } },
  'GET /account/keys/new': { roles: WORKERS },
  'GET /account/orders': { roles: EVERYONE },
  'GET /account/orders/:id': { roles: EVERYONE, params: { id: 'orderId' } },
  'GET /account/orders/new': { roles: OWNERS },
  'GET /account/orders/packages': { roles: OWNERS },
  'GET /account/people': { roles: OWNERS },
  'GET /account/playground': { roles: WORKERS },
  'GET /account/playground/:jobId': { roles: WORKERS, params: { jobId: 'playgroundJobId' } },
  'GET /account/playground/:jobId/result': { roles: WORKERS, params: { jobId: 'playgroundJobId' } },
  'GET /account/profile': { roles: EVERYONE },
  'GET /account/sessions': { roles: EVERYONE },
  'GET /account/settings': { roles: OWNERS },
  'GET /account/things': { roles: EVERYONE },
  'GET /account/things/:id': { roles: EVERYONE, params: { id: 'keyId' } },
  'GET /account/things/:id/results.zip': { roles: WORKERS, params: { id: 'keyId' } },
  'GET /account/usage': { roles: EVERYONE },
  'GET /account/usage.csv': { roles: EVERYONE },
  'GET /account/webhooks': { roles: EVERYONE },
  'POST /account/jobs/:jobId/corrections': { roles: WORKERS, params: { jobId: 'jobId' } },
  'POST /account/jobs/:jobId/looked': { roles: WORKERS, params: { jobId: 'jobId' } },
  'POST /account/jobs/:jobId/resend': { roles: WORKERS, params: { jobId: 'jobId' } },
  'POST /account/keys': { roles: WORKERS },
  'POST /account/keys/:id': { roles: WORKERS, params: { id: 'keyId' } },
  'POST /account/keys/:id/revoke': { roles: WORKERS, params: { id: 'keyId' } },
  'POST /account/keys/:id/rotate': {
    roles: WORKERS,
    params: { id: 'keyId' },
    fields: { overlap: '1h' },
  },
  'POST /account/language': { roles: EVERYONE, fields: { language: 'en' } },
  'POST /account/orders': { roles: OWNERS },
  'POST /account/orders/:id/cancel': { roles: OWNERS, params: { id: 'orderId' } },
  'POST /account/people/:id/remove': { roles: OWNERS, params: { id: 'userId' } },
  'POST /account/people/:id/revoke-keys': { roles: OWNERS, params: { id: 'formerUserId' } },
  'POST /account/people/:id/role': {
    roles: OWNERS,
    params: { id: 'userId' },
    fields: { role: 'viewer' },
  },
  'POST /account/people/invitations/:id/resend': { roles: OWNERS, params: { id: 'invitationId' } },
  'POST /account/people/invitations/:id/withdraw': {
    roles: OWNERS,
    params: { id: 'invitationId' },
  },
  'POST /account/people/invite': { roles: OWNERS },
  'POST /account/playground': { roles: WORKERS },
  'POST /account/playground/:jobId/corrections': {
    roles: WORKERS,
    params: { jobId: 'playgroundJobId' },
  },
  'POST /account/profile/password': { roles: EVERYONE },
  'POST /account/sessions/:id/end': { roles: EVERYONE, params: { id: 'sessionId' } },
  'POST /account/sessions/end-others': { roles: EVERYONE },
  'POST /account/settings/thresholds': { roles: OWNERS },
  'POST /account/settings/webhook': { roles: OWNERS },
  'POST /account/settings/webhook/remove': { roles: OWNERS },
  'POST /account/settings/webhook/test': { roles: OWNERS },
  'POST /account/sign-out': { roles: EVERYONE },
  'POST /account/switch': { roles: EVERYONE, things: { account: 'accountId' } },
  'POST /account/things/:id/end': { roles: OWNERS, params: { id: 'keyId' } },
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
