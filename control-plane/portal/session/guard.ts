/**
 * Every page at both doors is behind this guard. Only the cookie of a session says who it is (an
 * Authorization header is never looked at). A form comes from a page of ours, by its Origin and by
 * its token, which is made of the secret in a cookie: nothing is stored, and no other site can know
 * it. The guard checks who may before it reads a byte of a body, and again once the body is whole,
 * since its sender decides how long that takes.
 */

import { headerValues } from '@matting/http/request-headers.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { CSRF_FIELD } from './form-token.ts';
import type { Permission } from './roles.ts';
import { isSameText } from './secret.ts';
import { note, PageError, readFormBody, requireFormHead, visitOf } from './visit.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route is for people who are signed in and whose role has the permission. */
    readonly permission?: Permission;
    /** The route is for everyone; if somebody is signed in, the visit names them. */
    readonly public?: boolean;
    /** The route is for everyone and looks at no cookie: files, notifications of providers. */
    readonly cookieless?: boolean;
    /**
     * Absent: a POST's fields are read before its handler. 'multipart': its handler reads the body
     * by `readGuarded`. 'tokenless': the form of a page that knows no secret to make a token of.
     */
    readonly body?: 'multipart' | 'tokenless';
  }
}

/** The doors of the account area and of the operator's pages each have a way to do this. */
interface Door {
  isOwnOrigin(origin: string, request: FastifyRequest): boolean;
  /** Notes whom the cookie names. @throws AuthorityError if it names nobody who may */
  admit(request: FastifyRequest, reply: FastifyReply): void | Promise<void>;
  /** Makes the token of its forms for who was admitted; undefined: nobody was. */
  tokenOf(request: FastifyRequest): string | undefined;
}

export function guardRoutes(scope: FastifyInstance, door: Door): void {
  scope.addHook('onRequest', async (request, reply) => {
    const { cookieless, body } = request.routeOptions.config;
    // Without it browsers send `Origin: null` with the forms of our own pages.
    reply.header('referrer-policy', 'same-origin');
    if (cookieless === true) return;
    const isForm = !isRead(request);
    if (isForm) requireOrigin(request, door);
    await door.admit(request, reply);
    if (!isForm) return;
    // Checked before the first byte of the form.
    if (body !== 'tokenless' && !door.tokenOf(request)) throw new PageError('staleForm');
    if (body !== 'multipart') requireFormHead(request);
  });
  scope.addHook('preHandler', async (request, reply) => {
    const { cookieless, body } = request.routeOptions.config;
    if (cookieless === true || isRead(request)) return;
    const admitAgain = async () => door.admit(request, reply);
    const requireToken = (given: string) => {
      const expected = door.tokenOf(request);
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
 * Reads the body of a route that reads it itself: `read` checks the token before it takes anything
 * of a file, and once it has ended the guard checks again who may.
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
  // Another window of the browser has switched the account.
  if (visitOf(request).accountId !== accountId) throw new PageError('staleForm');
  return answer;
}

export function isRead({ method }: FastifyRequest): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** Browsers send an Origin with every POST. @throws PageError otherOrigin */
function requireOrigin(request: FastifyRequest, door: Door): void {
  const [origin, ...more] = headerValues(request.raw, 'origin');
  const isOwn = origin !== undefined && more.length === 0 && door.isOwnOrigin(origin, request);
  if (!isOwn) throw new PageError('otherOrigin');
}
