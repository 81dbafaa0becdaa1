/**
 * What every page is behind, at both doors: the cookie of a session says who it is, and nothing
 * else does (an Authorization header is never looked at); a form comes from a page of ours, by its
 * Origin and by its token. Who may is asked before a byte of a body is read, and again once it is
 * whole: its sender decides how long that takes.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { headerValues } from '../../http/request-headers.ts';
import type { Permission } from '../people/roles.ts';
import { CSRF_FIELD, isSameText } from './cookies.ts';
import { readFormBody, requireFormHead } from './form-body.ts';
import { PageError } from './page-error.ts';
import { note, visitOf } from './visit.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route is for people who are signed in and whose role has it. */
    readonly permission?: Permission;
    /** The route is for everyone; who is signed in is known where somebody is. */
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

/** What the doors of the account area and of the operator's pages do each in a way of its own. */
export interface Door {
  /** Whether a page of ours is at that origin. */
  isOwnOrigin(origin: string, request: FastifyRequest): boolean;
  /** Notes whom the cookie names. @throws AuthorityError it names nobody who may */
  admit(request: FastifyRequest, reply: FastifyReply): void | Promise<void>;
  /** The token of its forms for who was admitted; undefined: of nobody. */
  tokenOf(request: FastifyRequest): string | undefined;
}

/** To be called before any route of the scope is added. */
export function guardRoutes(scope: FastifyInstance, door: Door): void {
  scope.addHook('onRequest', async (request, reply) => {
    const { cookieless, body } = request.routeOptions.config;
    // Without it browsers say `Origin: null` of the forms of our own pages.
    reply.header('referrer-policy', 'same-origin');
    if (cookieless === true) return;
    const isForm = !isRead(request);
    if (isForm) requireOrigin(request, door);
    await door.admit(request, reply);
    if (!isForm) return;
    // All that can be said of a form before a byte of it is awaited.
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
 * The body of a route that reads it itself: `read` asks for the token before it takes anything of a
 * file, and once it has ended who may is asked again.
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
  // Another window switched meanwhile.
  if (visitOf(request).accountId !== accountId) throw new PageError('staleForm');
  return answer;
}

export function isRead({ method }: FastifyRequest): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** Browsers send it with every POST. @throws PageError otherOrigin */
function requireOrigin(request: FastifyRequest, door: Door): void {
  const [origin, ...more] = headerValues(request.raw, 'origin');
  const isOwn = origin !== undefined && more.length === 0 && door.isOwnOrigin(origin, request);
  if (!isOwn) throw new PageError('otherOrigin');
}
