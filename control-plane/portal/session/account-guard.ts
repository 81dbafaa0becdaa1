import { noteKnownAccount } from '@matting/core/http/header-checks.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { AuthorityError, actingPerson } from './authority.ts';
import { clearCookie, readCookie } from './cookies.ts';
import { csrfTokenOf } from './form-token.ts';
import { guardRoutes, isRead } from './guard.ts';
import { may } from './roles.ts';
import { isSecret } from './secret.ts';
import type { Sessions } from './session-store.ts';
import { returnPathOf, signInPathTo } from './sign-in-path.ts';
import { maybeCsrf, note, PageError, type SignedIn } from './visit.ts';

/**
 * The guard of the account area. Every route declares a permission or that it is public. Call this
 * before any route of the scope is added. @param options.canSignIn see isSignInUrl
 */
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
    // People type localhost or 127.0.0.1 here, which are two sites to a browser.
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
    tokenOf(request) {
      const visitor = readCookie(request, 'visitor');
      return maybeCsrf(request) ?? (visitor && csrfTokenOf(visitor));
    },
  });
}

function requireAccess({ config, method, url }: RouteOptions): void {
  const { permission, public: isPublic, cookieless } = config ?? {};
  const named = [permission !== undefined, isPublic === true, cookieless === true];
  if (named.filter(Boolean).length === 1) return;
  throw new Error(`the route ${method} ${url} must name a permission, public or cookieless`);
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

/** Leads back after sign-in. A form is lost, so its request leads to the area's first page. */
export function redirectToSignIn(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const back = isRead(request) ? returnPathOf(pathOnly(request.url)) : undefined;
  return reply.redirect(signInPathTo(back), 303);
}

/** RFC 9112 section 3.2.2 allows a target with scheme and host. */
function pathOnly(url: string): string {
  return url.replace(/^https?:\/\/[^/?]*/i, '');
}
