/**
 * Who is signed in on the operator's pages: nobody by name, somebody who knew the operator key. The
 * cookie is signed: `<end>.<random>.<signature>`, by a key derived of the operator key, so a new
 * operator key ends every session, and every control plane takes it. One that was signed out is
 * remembered where it was. It never opens the JSON interface, nor the account area.
 */
import { createHmac, hkdfSync, randomBytes } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { csrfTokenOf, guardRoutes, isSameText } from '../session/guard.ts';
import { maybeCsrf, note } from '../session/visit.ts';
import { AuthorityError } from '../sign-in/session-store.ts';
import { OPERATOR_PATH } from './operator-frame.ts';

export const SESSION_MS = 8 * 3_600_000;
/** Sessions that were signed out and are remembered; the one that was first makes room. */
const ENDED_MAX = 1000;
const RANDOM_BYTES = 16;
const TOKEN = /^(\d{1,15})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

export class OperatorSessions {
  readonly #key: Buffer;
  readonly #ended = new Set<string>();

  constructor(operatorKey: string) {
    const about = 'sessions of the operator pages';
    this.#key = Buffer.from(hkdfSync('sha256', operatorKey, '', about, 32));
  }

  /** What the cookie holds. */
  create(nowMs = Date.now()): string {
    const signed = `${nowMs + SESSION_MS}.${randomBytes(RANDOM_BYTES).toString('base64url')}`;
    return `${signed}.${this.#sign(signed)}`;
  }

  isValid(token: string | undefined, nowMs = Date.now()): boolean {
    const [, endMs, random, signature] = TOKEN.exec(token ?? '') ?? [];
    if (signature === undefined) return false;
    const expected = this.#sign(`${endMs}.${random}`);
    const isOver = Number(endMs) <= nowMs || this.#ended.has(token ?? '');
    return isSameText(signature, expected) && !isOver;
  }

  /** @param token of a session that is valid */
  end(token: string): void {
    this.#ended.add(token);
    const [first] = this.#ended;
    if (first !== undefined && this.#ended.size > ENDED_MAX) this.#ended.delete(first);
  }

  #sign(text: string): string {
    return createHmac('sha256', this.#key).update(`session ${text}`).digest('base64url');
  }
}

/** Over TLS with the prefix that lets no other host plant it; on this machine without. */
const SECURE_COOKIE = '__Host-matting-operator';
const PLAIN_COOKIE = 'matting-operator';
export const LANGUAGE_COOKIE = 'matting-operator-language';

export function cookieOptions(isSecure: boolean) {
  const path = isSecure ? '/' : OPERATOR_PATH;
  return { path, secure: isSecure, httpOnly: true, sameSite: 'strict' } as const;
}

export function beginSession(reply: FastifyReply, sessions: OperatorSessions, isSecure: boolean) {
  return reply.setCookie(isSecure ? SECURE_COOKIE : PLAIN_COOKIE, sessions.create(), {
    ...cookieOptions(isSecure),
    maxAge: SESSION_MS / 1000,
  });
}

export function endSessions(reply: FastifyReply, sessions: OperatorSessions): FastifyReply {
  for (const token of tokensOf(reply.request, sessions)) sessions.end(token);
  return reply
    .clearCookie(SECURE_COOKIE, cookieOptions(true))
    .clearCookie(PLAIN_COOKIE, cookieOptions(false));
}

/** Cookies of sessions that are valid: a browser may have one of each name. */
function tokensOf({ cookies }: FastifyRequest, sessions: OperatorSessions): string[] {
  const given = [cookies[SECURE_COOKIE], cookies[PLAIN_COOKIE]];
  return given.filter(token => token !== undefined && sessions.isValid(token)) as string[];
}

/** The door of the operator's pages: all but the sign-in are behind the session. */
export function guardOperatorPages(pages: FastifyInstance, sessions: OperatorSessions): void {
  pages.addHook('onRequest', async request => {
    note(request, { language: request.cookies[LANGUAGE_COOKIE] });
  });
  guardRoutes(pages, {
    /** This port has no name of its own but the one it is asked by. */
    isOwnOrigin: (origin, request) =>
      URL.canParse(origin) && new URL(origin).host === request.headers.host,
    admit(request) {
      const [token] = tokensOf(request, sessions);
      note(request, { csrf: token && csrfTokenOf(token) });
      const isOpen = request.routeOptions.config.public === true;
      if (token === undefined && !isOpen) throw new AuthorityError('signed-out');
    },
    tokenOf: maybeCsrf,
  });
}
