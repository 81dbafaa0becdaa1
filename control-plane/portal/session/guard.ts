/**
 * Guards every page of the account area and of the operator. Only the session's cookie identifies a
 * person, never an Authorization header. A form must have our Origin and a token derived from the
 * cookie's secret, which no other site knows. The guard checks the permission before the body and
 * again after it, since the sender decides how long the body takes.
 */

import { headerValues } from '@matting/http/request-headers.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { CSRF_FIELD } from './form-token.ts';
import type { Permission } from './roles.ts';
import { isSameText } from './secret.ts';
import { note, PageError, readFormBody, requireFormHead, visitOf } from './visit.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** For signed-in people whose role has the permission. */
    readonly permission?: Permission;
    /** For everyone. If somebody is signed in, the visit names them. */
    readonly public?: boolean;
    /** For everyone, without a look at cookies: files, notifications of providers. */
    readonly cookieless?: boolean;
    /**
     * Absent: the guard reads a POST's fields before the handler. 'multipart': the handler reads
     * the body by `readGuarded`. 'tokenless': the form's page has no secret for a token.
     */
    readonly body?: 'multipart' | 'tokenless';
  }
}

interface AreaRules {
  isOwnOrigin(origin: string, request: FastifyRequest): boolean;
  /** Notes the person of the cookie. @throws AuthorityError: nobody, or no permission */
  admit(request: FastifyRequest, reply: FastifyReply): void | Promise<void>;
  tokenOf(request: FastifyRequest): string | undefined;
}

export function guardRoutes(scope: FastifyInstance, rules: AreaRules): void {
  scope.addHook('onRequest', async (request, reply) => {
    const { cookieless, body } = request.routeOptions.config;
    // Otherwise browsers send `Origin: null` with the forms of our own pages.
    reply.header('referrer-policy', 'same-origin');
    if (cookieless === true) return;
    const isForm = !isRead(request);
    if (isForm) requireOrigin(request, rules);
    await rules.admit(request, reply);
    if (!isForm) return;
    if (body !== 'tokenless' && !rules.tokenOf(request)) throw new PageError('staleForm');
    if (body !== 'multipart') requireFormHead(request);
  });
  scope.addHook('preHandler', async (request, reply) => {
    const { cookieless, body } = request.routeOptions.config;
    if (cookieless === true || isRead(request)) return;
    const admitAgain = async () => rules.admit(request, reply);
    const requireToken = (given: string) => {
      const expected = rules.tokenOf(request);
      if (!expected || !isSameText(given, expected)) throw new PageError('staleForm');
    };
    if (body === 'multipart') {
      unread.set(request, { admitAgain, requireToken });
      return;
    }
    const form = await readFormBody(request, reply);
    await admitAgain();
    if (body !== 'tokenless') requireToken(form.text(CSRF_FIELD));
    note(request, { form });
  });
}

interface UnreadForm {
  readonly admitAgain: () => Promise<void>;
  readonly requireToken: (given: string) => void;
}

const unread = new WeakMap<FastifyRequest, UnreadForm>();

/**
 * Reads the body of a 'multipart' route. `read` must check the token before it takes any of a file.
 * Afterwards the permission is checked again.
 * @throws PageError staleForm; AuthorityError; what `read` throws
 */
export async function readGuarded<T>(
  request: FastifyRequest,
  read: (requireFormToken: (given: string) => void) => Promise<T>,
): Promise<T> {
  const form = unread.get(request);
  if (form === undefined) throw new Error('a route that does not read its body asked for it');
  const { accountId } = visitOf(request);
  const answer = await read(form.requireToken);
  await form.admitAgain();
  // Another window of the browser switched the account.
  if (visitOf(request).accountId !== accountId) throw new PageError('staleForm');
  return answer;
}

export function isRead({ method }: FastifyRequest): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** Browsers send an Origin with every POST. @throws PageError otherOrigin */
function requireOrigin(request: FastifyRequest, rules: AreaRules): void {
  const [origin, ...more] = headerValues(request.raw, 'origin');
  const isOwn = origin !== undefined && more.length === 0 && rules.isOwnOrigin(origin, request);
  if (!isOwn) throw new PageError('otherOrigin');
}
