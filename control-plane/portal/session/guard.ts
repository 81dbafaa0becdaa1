/**
 * Every page at both doors is behind this guard. Only the cookie of a session says who it is (an
 * Authorization header is never looked at). A form comes from a page of ours, by its Origin and by
 * its token, which is made of the secret in a cookie: nothing is stored, and no other site can know
 * it. The guard checks who may before it reads a byte of a body, and again once the body is whole,
 * since its sender decides how long that takes. `__Host-` makes browsers take cookies from this
 * host alone, over TLS (or from this machine), for every path: no other host of the domain can
 * plant one.
 *
 * | cookie  | holds                                             | until                        |
 * |---------|---------------------------------------------------|------------------------------|
 * | session | 256 random bits; the database has their hash      | sign-out, the bounds         |
 * | visitor | 256 random bits that forms before sign-in go with | sign-in, the browser's end   |
 * | device  | that a person signed in here with their password  | KNOWN_S after the last time  |
 * | flow    | what a sign-in at the identity provider began with | FLOW_S                      |
 */

import { createHmac, timingSafeEqual } from 'node:crypto';
import { noteKnownAccount } from '@matting/core/http/header-checks.ts';
import { headerValues } from '@matting/http/request-headers.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { AuthorityError, actingPerson } from './authority.ts';
import { may, type Permission } from './roles.ts';
import { isSecret } from './secret.ts';
import type { Sessions } from './session-store.ts';
import {
  maybeCsrf,
  note,
  PageError,
  readFormBody,
  requireFormHead,
  type SignedIn,
  visitOf,
} from './visit.ts';

const NAMES = {
  session: '__Host-matting-session',
  visitor: '__Host-matting-visitor',
  device: '__Host-matting-device',
  flow: '__Host-matting-flow',
} as const;

type CookieName = keyof typeof NAMES;

/** Browsers keep 4096 bytes of a cookie. */
const VALUE_LENGTH_MAX = 2048;

/** Undefined: the browser sent no such cookie, or a longer one than the service sets. */
export function readCookie(request: FastifyRequest, name: CookieName): string | undefined {
  const value = request.cookies[NAMES[name]];
  return value === undefined || value.length > VALUE_LENGTH_MAX ? undefined : value;
}

/** @param maxAgeS absent: the cookie lasts until the browser ends */
export function setCookie(
  reply: FastifyReply,
  name: CookieName,
  value: string,
  maxAgeS?: number,
): void {
  reply.setCookie(NAMES[name], value, {
    path: '/',
    secure: true,
    httpOnly: true,
    sameSite: 'lax',
    ...(maxAgeS === undefined ? {} : { maxAge: maxAgeS }),
  });
}

export function clearCookie(reply: FastifyReply, name: CookieName): void {
  setCookie(reply, name, '', 0);
}

export const CSRF_FIELD = 'csrf';

/**
 * 43 characters. Over the account that the page was made for: its form changes no other.
 * @param secret what the cookie holds
 * @param accountId absent: the form of a visitor, or of the operator
 */
export function csrfTokenOf(secret: string, accountId?: string): string {
  const form = `a form of the account area${accountId === undefined ? '' : ` for ${accountId}`}`;
  return createHmac('sha256', secret).update(form).digest('base64url');
}

/** Compares as long for two texts that differ early as for two that differ late. */
export function isSameText(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

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

function isRead({ method }: FastifyRequest): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** Browsers send an Origin with every POST. @throws PageError otherOrigin */
function requireOrigin(request: FastifyRequest, door: Door): void {
  const [origin, ...more] = headerValues(request.raw, 'origin');
  const isOwn = origin !== undefined && more.length === 0 && door.isOwnOrigin(origin, request);
  if (!isOwn) throw new PageError('otherOrigin');
}

/**
 * The door of the account area: a route names its permission, or that it is public. To be called
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
    // On this machine people type localhost or 127.0.0.1, which are two sites to a browser.
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
    /** Answers the token of the session for its account, or of the visitor. */
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

/** True if another site led here; a browser that sends no such header counts as ours. */
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

/** Makes the address of sign-in, which leads back to a path afterwards. */
export function signInPathTo(back: string | undefined, path = SIGN_IN_PATH): string {
  return back === undefined ? path : `${path}?to=${encodeURIComponent(back)}`;
}

/** Leads back here afterwards; a form was not sent, so it leads to the page of the area. */
export function askToSignIn(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const back = isRead(request) ? returnPathOf(pathOnly(request.url)) : undefined;
  return reply.redirect(signInPathTo(back), 303);
}

/** Allows paths of the area with the characters of our own pages, never another host's. */
const RETURN_PATH = /^\/account(?:\/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9_=&%.:-]*)?$/;
const RETURN_LENGTH_MAX = 500;

/** Undefined: sign-in does not lead back to this text. */
export function returnPathOf(text: unknown): string | undefined {
  if (typeof text !== 'string' || text.length > RETURN_LENGTH_MAX) return undefined;
  return RETURN_PATH.test(text) && !text.startsWith(SIGN_IN_PATH) ? text : undefined;
}

/** The target without scheme and host, which RFC 9112 section 3.2.2 lets a client send. */
function pathOnly(url: string): string {
  return url.replace(/^https?:\/\/[^/?]*/i, '');
}
