/** The door of the account area: a route names the permission that it asks for, or that it is public. */

import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { noteKnownAccount } from '../../core/http/header-checks.ts';
import { headerValues } from '../../http/request-headers.ts';
import { AuthorityError, actingPerson } from '../people/authority.ts';
import { may } from '../people/roles.ts';
import type { Sessions } from '../sign-in/sign-in.ts';
import { clearCookie, csrfTokenOf, isSecret, readCookie } from './cookies.ts';
import { guardRoutes, isRead } from './guard.ts';
import { PageError } from './page-error.ts';
import { maybeCsrf, note, type SignedIn } from './visit.ts';

/** To be called before any route of the scope is added. @param options.canSignIn see isSignInUrl */
export function guardAccountArea(
  account: FastifyInstance,
  sessions: Sessions,
  options: { readonly baseUrl: string; readonly canSignIn: boolean },
): void {
  const { origin: ownOrigin, host } = new URL(options.baseUrl);
  const isOwnMachine = options.baseUrl.startsWith('http:');
  account.addHook('onRoute', requireAccess);
  account.addHook('onRequest', async (request, reply) => {
    if (request.routeOptions.config.cookieless === true) return;
    if (!options.canSignIn) throw new PageError('insecure');
    // On this machine people type localhost or 127.0.0.1: to a browser they are two sites.
    if (!isOwnMachine || !isRead(request) || request.headers.host === host) return;
    return reply.redirect(`${ownOrigin}${pathOnly(request.url)}`, 303);
  });
  guardRoutes(account, {
    isOwnOrigin: origin => origin === ownOrigin,
    async admit(request, reply) {
      const { permission } = request.routeOptions.config;
      const { person, language } = (await findPerson(request, reply, sessions)) ?? {};
      note(request, { person, csrf: person?.csrf, language });
      if (permission === undefined) return;
      if (person === undefined) throw new AuthorityError('signed-out');
      if (!may(person.role, permission)) throw new AuthorityError('forbidden');
    },
    /** That of the session for its account, or of the visitor. */
    tokenOf(request) {
      const visitor = readCookie(request, 'visitor');
      return maybeCsrf(request) ?? (visitor && csrfTokenOf(visitor));
    },
  });
}

/** A mistake of ours, found when the program starts. */
function requireAccess({ config, method, url }: RouteOptions): void {
  const { permission, public: isPublic, cookieless } = config ?? {};
  const named = [permission !== undefined, isPublic === true, cookieless === true];
  if (named.filter(Boolean).length === 1) return;
  throw new Error(`the route ${method} ${url} must name a permission, public or cookieless`);
}

/** Another site led here; browsers that do not say so are taken at their word. */
export function isFromElsewhere({ raw }: FastifyRequest): boolean {
  const sites = headerValues(raw, 'sec-fetch-site');
  return sites.some(site => site !== 'same-origin' && site !== 'none');
}

async function findPerson(request: FastifyRequest, reply: FastifyReply, sessions: Sessions) {
  const secret = readCookie(request, 'session');
  if (secret === undefined) return undefined;
  const session = isSecret(secret) ? await sessions.find(secret) : undefined;
  if (session === undefined) {
    clearCookie(reply, 'session');
    return undefined;
  }
  const { id: sessionId, userId, mail, accountId, memberships, language, method } = session;
  noteKnownAccount(request, accountId);
  const membership = memberships.find(one => one.accountId === accountId);
  if (membership === undefined) throw new Error('a session of an account without its membership');
  const { permission = 'self' } = request.routeOptions.config;
  const person: SignedIn = {
    userId,
    mail,
    sessionId,
    accountId,
    accountName: membership.accountName,
    role: membership.role,
    csrf: csrfTokenOf(secret, accountId),
    method,
    accounts: memberships.map(({ accountId: id, accountName: name, role }) => ({ id, name, role })),
    actor: actingPerson({
      kind: 'person',
      ...{ userId, mail, sessionId, permission },
      address: request.ip,
    }),
  };
  return { person, language };
}

export const SIGN_IN_PATH = '/account/sign-in';

/** The address of sign-in; afterwards it leads back to a path. */
export function signInPathTo(back: string | undefined, path = SIGN_IN_PATH): string {
  return back === undefined ? path : `${path}?to=${encodeURIComponent(back)}`;
}

/** Leads back here afterwards; a form was not sent, so it leads to the page of the area. */
export function askToSignIn(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const back = isRead(request) ? returnPathOf(pathOnly(request.url)) : undefined;
  return reply.redirect(signInPathTo(back), 303);
}

/** Paths of the area, of what our own pages are named with: never another host's. */
const RETURN_PATH = /^\/account(?:\/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9_=&%.:-]*)?$/;
const RETURN_LENGTH_MAX = 500;

/** Undefined: no path that a sign-in leads back to. */
export function returnPathOf(text: unknown): string | undefined {
  if (typeof text !== 'string' || text.length > RETURN_LENGTH_MAX) return undefined;
  return RETURN_PATH.test(text) && !text.startsWith(SIGN_IN_PATH) ? text : undefined;
}

/** The target without scheme and host, which RFC 9112 section 3.2.2 lets a client send. */
function pathOnly(url: string): string {
  return url.replace(/^https?:\/\/[^/?]*/i, '');
}
