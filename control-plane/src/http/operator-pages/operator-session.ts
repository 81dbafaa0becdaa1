/**
 * Who is signed in on the operator's pages: nobody by name, somebody who knew the operator key. The
 * cookie is signed: `<end>.<random>.<signature>`, by a key derived of the operator key, so a new
 * operator key ends every session, and every control plane takes it. One that was signed out is
 * remembered where it was. It never opens the JSON interface.
 */
import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';

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
    return `${signed}.${this.#sign('session', signed)}`;
  }

  isValid(token: string | undefined, nowMs = Date.now()): boolean {
    const [, endMs, random, signature] = TOKEN.exec(token ?? '') ?? [];
    if (signature === undefined) return false;
    const expected = this.#sign('session', `${endMs}.${random}`);
    const isOver = Number(endMs) <= nowMs || this.#ended.has(token ?? '');
    return isSame(signature, expected) && !isOver;
  }

  /** @param token of a session that is valid */
  end(token: string): void {
    this.#ended.add(token);
    const [first] = this.#ended;
    if (first !== undefined && this.#ended.size > ENDED_MAX) this.#ended.delete(first);
  }

  /** For the hidden field of forms. @param token of the session */
  csrfOf(token: string): string {
    return this.#sign('csrf', token);
  }

  isCsrf(token: string, given: string): boolean {
    return isSame(given, this.csrfOf(token));
  }

  /** One use's signature is never another's. */
  #sign(use: 'session' | 'csrf', text: string): string {
    return createHmac('sha256', this.#key).update(`${use} ${text}`).digest('base64url');
  }
}

function isSame(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}
