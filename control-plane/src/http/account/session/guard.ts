/**
 * What every route of the account area is behind: a route names the permission that it asks for, or
 * that it is public; the session's cookie says who it is, and nothing else does (an Authorization
 * header is never looked at); a form comes from a page of ours, by its Origin and by its token.
 * Who may is asked before a byte of a body is read, and again once it is whole: its sender decides
 * how long that takes.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import type { ActingPerson } from '../../../domain/account/actor.ts';
import { AuthorityError } from '../../../domain/account/authority.ts';
import { may } from '../../../domain/account/roles.ts';
import type { FoundSession, Sessions } from '../../../services/people/sessions.ts';
import { noteKnownAccount } from '../../checks/authentication.ts';
import { headerValues } from '../../headers/raw-headers.ts';
import { languageOf, setPageViewer } from '../page/page-request.ts';
import { isLanguage } from '../words/words.ts';
import { clearCookie, isSecret, readCookie } from './cookies.ts';
import { CSRF_FIELD, csrfTokenOf, isCsrfToken } from './csrf.ts';
import { readFormBody, requireFormHead } from './form-body.ts';
import { PageError } from './page-error.ts';
import { maybeSignedIn, type SignedIn, setForm, setSignedIn, signedInOf } from './signed-in.ts';

export interface GuardOptions {
  readonly baseUrl: string;
  /** Whether people can sign in at the base URL: see isSignInUrl. */
  readonly canSignIn: boolean;
}

/** To be called before any route of the scope is added. */
export function guardRoutes(
  account: FastifyInstance,
  sessions: Pick<Sessions, 'find'>,
  options: GuardOptions,
): void {
  const { origin, host } = new URL(options.baseUrl);
  const isOwnMachine = options.baseUrl.startsWith('http:');
  account.addHook('onRoute', requireAccess);
  account.addHook('onRequest', async (request, reply) => {
    const { config } = request.routeOptions;
    // Without it browsers say `Origin: null` of the forms of our own pages.
    reply.header('referrer-policy', 'same-origin');
    if (config.cookieless === true) return;
    if (!options.canSignIn) throw new PageError('insecure');
    const isForm = !isRead(request);
    if (isForm) requireOrigin(request, origin);
    // On this machine people type localhost or 127.0.0.1: to a browser they are two sites.
    else if (isOwnMachine && request.headers.host !== host) {
      return reply.redirect(`${origin}${pathOnly(request.url)}`, 303);
    }
    await askWhoMay(request, reply, sessions);
    if (isForm) requireFormHeaders(request);
    return undefined;
  });
  account.addHook('preHandler', async (request, reply) => {
    const { config } = request.routeOptions;
    if (config.cookieless === true || isRead(request)) return;
    const askAgain = () => askWhoMay(request, reply, sessions);
    if (config.body === 'multipart') {
      askingAgain.set(request, askAgain);
      return;
    }
    const form = await readFormBody(request, reply);
    await askAgain();
    requireToken(request, form.text(CSRF_FIELD));
    setForm(request, form);
  });
}

/**
 * Finds the session, and asks its role for the permission of the route.
 * @throws AuthorityError
 */
async function askWhoMay(
  request: FastifyRequest,
  reply: FastifyReply,
  sessions: Pick<Sessions, 'find'>,
): Promise<void> {
  const { permission } = request.routeOptions.config;
  const found = await findSession(request, reply, sessions);
  notePerson(request, found);
  if (permission === undefined) return;
  if (found === undefined) throw new AuthorityError('signed-out');
  if (!may(found.role, permission)) throw new AuthorityError('forbidden');
}

const askingAgain = new WeakMap<FastifyRequest, () => Promise<void>>();

/**
 * The body of a route that reads it itself: `read` asks for the token before it takes anything of a
 * file, and once it has ended who may is asked again.
 * @throws PageError staleForm; AuthorityError; what `read` throws
 */
export async function readGuarded<T>(
  request: FastifyRequest,
  read: (requireFormToken: (given: string) => void) => Promise<T>,
): Promise<T> {
  const askAgain = askingAgain.get(request);
  if (askAgain === undefined) throw new Error('a route that does not read its body asked for it');
  const { accountId } = signedInOf(request);
  const answer = await read(given => requireToken(request, given));
  await askAgain();
  // Another window switched meanwhile.
  if (signedInOf(request).accountId !== accountId) throw new PageError('staleForm');
  return answer;
}

/** A mistake of ours, found when the program starts. */
function requireAccess({ config, method, url }: RouteOptions): void {
  const { permission, public: isPublic, cookieless } = config ?? {};
  const named = [permission !== undefined, isPublic === true, cookieless === true];
  if (named.filter(Boolean).length === 1) return;
  throw new Error(`the route ${method} ${url} must name a permission, public or cookieless`);
}

function isRead({ method }: FastifyRequest): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** Browsers send it with every POST. @throws PageError otherOrigin */
function requireOrigin(request: FastifyRequest, origin: string): void {
  const origins = headerValues(request.raw, 'origin');
  if (origins.length !== 1 || origins[0] !== origin) throw new PageError('otherOrigin');
}

/** All that can be said of a form before a byte of it is awaited. @throws PageError */
function requireFormHeaders(request: FastifyRequest): void {
  if (!expectedTokenOf(request)) throw new PageError('staleForm');
  // One with files is its handler's.
  if (request.routeOptions.config.body !== 'multipart') requireFormHead(request);
}

/** Another site led here; browsers that do not say so are taken at their word. */
export function isFromElsewhere({ raw }: FastifyRequest): boolean {
  const sites = headerValues(raw, 'sec-fetch-site');
  return sites.some(site => site !== 'same-origin' && site !== 'none');
}

/** @throws PageError staleForm */
function requireToken(request: FastifyRequest, given: string): void {
  const expected = expectedTokenOf(request);
  if (!expected || !isCsrfToken(given, expected)) throw new PageError('staleForm');
}

/** That of the session for its account, or of the visitor; undefined: of nobody. */
function expectedTokenOf(request: FastifyRequest): string | undefined {
  const visitor = readCookie(request, 'visitor');
  return maybeSignedIn(request)?.csrf ?? (visitor && csrfTokenOf(visitor));
}

async function findSession(
  request: FastifyRequest,
  reply: FastifyReply,
  sessions: Pick<Sessions, 'find'>,
): Promise<SignedIn | undefined> {
  const secret = readCookie(request, 'session');
  if (secret === undefined) return undefined;
  const session = isSecret(secret) ? await sessions.find(secret) : undefined;
  if (session === undefined) {
    clearCookie(reply, 'session');
    return undefined;
  }
  noteKnownAccount(request, session.accountId);
  const { permission = 'self' } = request.routeOptions.config;
  return signedInBy(session, secret, { address: request.ip, permission });
}

/** For handlers, and for the frame of their pages. */
function notePerson(request: FastifyRequest, person: SignedIn | undefined): void {
  setSignedIn(request, person);
  setPageViewer(request, undefined);
  if (person === undefined) return;
  const language = isLanguage(person.language) ? person.language : languageOf(request);
  setPageViewer(request, { ...person, language });
}

function signedInBy(
  session: FoundSession,
  secret: string,
  asked: Pick<ActingPerson, 'address' | 'permission'>,
): SignedIn {
  const { userId, mail, accountId, memberships } = session;
  const membership = memberships.find(one => one.accountId === accountId);
  if (membership === undefined) throw new Error('a session of an account without its membership');
  return {
    userId,
    mail,
    sessionId: session.id,
    accountId,
    accountName: membership.accountName,
    role: membership.role,
    csrf: csrfTokenOf(secret, accountId),
    language: session.language,
    method: session.method,
    accounts: memberships.map(({ accountId: id, accountName: name, role }) => ({ id, name, role })),
    actor: { kind: 'person', userId, mail, sessionId: session.id, ...asked },
  };
}

export const SIGN_IN_PATH = '/account/sign-in';

/** Leads back here afterwards; a form was not sent, so it leads to the page of the area. */
export function askToSignIn(request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const to = isRead(request) ? returnPathOf(pathOnly(request.url)) : undefined;
  const query = to === undefined ? '' : `?to=${encodeURIComponent(to)}`;
  return reply.redirect(`${SIGN_IN_PATH}${query}`, 303);
}

/** Paths of the area, of what our own pages are named with: never another host's. */
const RETURN_PATH = /^\/account(?:\/[A-Za-z0-9_-]+)*(?:\?[A-Za-z0-9_=&%.:-]*)?$/;
const RETURN_LENGTH_MAX = 500;

/** Undefined: no path that a sign-in leads back to. */
export function returnPathOf(text: string | undefined): string | undefined {
  if (text === undefined || text.length > RETURN_LENGTH_MAX) return undefined;
  return RETURN_PATH.test(text) && !text.startsWith(SIGN_IN_PATH) ? text : undefined;
}

/** The target without scheme and host, which RFC 9112 section 3.2.2 lets a client send. */
function pathOnly(url: string): string {
  return url.replace(/^https?:\/\/[^/?]*/i, '');
}
