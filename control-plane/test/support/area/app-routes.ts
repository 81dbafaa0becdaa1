/**
 * The routes of the account area as the tests of attacks know them. A route that is added to the
 * area gets its line here, and with it every attack.
 */
import type { ThingName } from './things.ts';

/** What a route is asked with: enough of a form that it is not refused for its fields alone. */
export interface AppRoute {
  /** What each `:name` of the path stands for. */
  readonly params?: Readonly<Record<string, ThingName>>;
  readonly fields?: Readonly<Record<string, string>>;
  /** Fields that name something of an account. */
  readonly things?: Readonly<Record<string, ThingName>>;
}

/** Routes that name a permission. */
export const APP_ROUTES: Readonly<Record<string, AppRoute>> = {
  'GET /account/audit': {},
  'GET /account/people': {},
  'GET /account/profile': {},
  'GET /account/sessions': {},
  'POST /account/language': { fields: { language: 'en' } },
  'POST /account/people/:id/remove': { params: { id: 'userId' } },
  'POST /account/people/:id/role': { params: { id: 'userId' }, fields: { role: 'viewer' } },
  'POST /account/people/invitations/:id/withdraw': { params: { id: 'invitationId' } },
  'POST /account/people/invite': {},
  'POST /account/profile/password': {},
  'POST /account/sessions/:id/end': { params: { id: 'sessionId' } },
  'POST /account/sessions/end-others': {},
  'POST /account/sign-out': {},
  'POST /account/switch': { things: { account: 'accountId' } },
};

/** Routes that anybody may ask, without a session. */
export const OPEN_ROUTES: readonly string[] = [
  'GET /account/assets/:hash/:name',
  'GET /account/invitations/:token',
  'GET /account/links/:token',
  'GET /account/sign-in',
  'POST /account/invitations/:token',
  'POST /account/links/:token',
  'POST /account/payments/notifications',
  'POST /account/sign-in',
];
