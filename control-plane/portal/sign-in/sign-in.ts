/**
 * Who is behind a session's secret, and sign-in by mail and password. Whoever is not let in learns
 * nothing: an unknown mail, a wrong password and a person without one get the same answer after the
 * same work.
 */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { noteRequestAccount, noteRequestSecret } from '#program/request-owner.ts';
import { parseMail } from '../people/mail-address.ts';
import type { PeopleStore } from '../people/people-store.ts';
import type { SignInMethod } from '../tables.ts';
import type { Passwords } from './passwords.ts';
import { type NewSession, SESSION_MS, type SessionStore } from './session-store.ts';
import type { KnownBrowsers, SignInThrottle } from './sign-in-throttle.ts';

/** A browser that signs in. */
export interface Browser {
  readonly address: string;
  readonly agent: string;
  /** The secret of the session that it had before. */
  readonly sessionSecret: string | undefined;
  /** The cookie of a known browser. */
  readonly known: string | undefined;
}

/** What a browser is given when it is let in. */
export interface Entered {
  readonly kind: 'signed-in';
  /** For the session's cookie: new with every sign-in. */
  readonly secret: string;
  /** For the cookie of a known browser; undefined: no password was shown. */
  readonly known: string | undefined;
  readonly userId: string;
  readonly accountId: string;
}

export type SignInOutcome =
  | Entered
  | { readonly kind: 'refused' }
  /** Their password is right, and they belong to no account (any more). */
  | { readonly kind: 'no-account' }
  | { readonly kind: 'throttled'; readonly waitMs: number };

export interface SignInParts {
  readonly people: Pick<PeopleStore, 'findByMail'>;
  readonly sessions: Pick<SessionStore, 'begin'>;
  readonly passwords: Pick<Passwords, 'verify'>;
  readonly throttle: SignInThrottle;
  readonly browsers: KnownBrowsers;
}

const SECRET_BYTES = 32;

export class SignIn {
  readonly #parts: SignInParts;

  constructor(parts: SignInParts) {
    this.#parts = parts;
  }

  /** @throws ContractError SERVICE_UNAVAILABLE */
  async withPassword(
    given: { readonly mail: string; readonly password: string },
    browser: Browser,
  ): Promise<SignInOutcome> {
    const { people, passwords, throttle, browsers } = this.#parts;
    const mail = parseMail(given.mail) ?? '';
    // Also for what is no mail: one statement, one hash, whoever it is.
    const person = await people.findByMail(mail);
    const attempt = { mail, address: browser.address, browser: browser.known, person };
    const waitMs = await throttle.take(attempt);
    if (waitMs > 0) return { kind: 'throttled', waitMs };
    const stored = person?.passwordHash ?? null;
    const knownId = throttle.knownId(attempt);
    const matches = await passwords.verify(given.password, stored, browser.address, knownId);
    if (person === undefined || stored === null || !matches) return { kind: 'refused' };
    const { userId } = person;
    const { secret, session } = newSession('password', browser);
    const by = { passwordHash: stored, endedIdHash: endedHashOf(browser) };
    const begun = await this.#parts.sessions.begin(userId, session, by);
    if (begun.kind === 'refused') return begun;
    await throttle.giveBack(attempt);
    if (begun.kind === 'no-account') return begun;
    const known = browsers.create({ userId, passwordHash: stored });
    return { kind: 'signed-in', secret, known, userId, accountId: begun.accountId };
  }
}

/** The session's secret, which only the browser keeps, and what is stored. */
export function newSession(
  method: SignInMethod,
  { address, agent }: Pick<Browser, 'address' | 'agent'>,
): { readonly secret: string; readonly session: NewSession } {
  const secret = randomBytes(SECRET_BYTES).toString('base64url');
  const session = { id: randomUUID(), idHash: hashOfSecret(secret), method, address, agent };
  return { secret, session };
}

export function endedHashOf({ sessionSecret }: Browser): string | null {
  return sessionSecret === undefined ? null : hashOfSecret(sessionSecret);
}

export { SESSION_MS };

export function sessionsIn(store: SessionStore) {
  return {
    /** Undefined: no session (any more). @param secret what the cookie holds */
    async find(secret: string) {
      const hash = hashOfSecret(secret);
      noteRequestSecret(hash);
      const found = await store.find(hash);
      if (found !== undefined) noteRequestAccount(found.accountId);
      return found;
    },
  };
}

export type Sessions = ReturnType<typeof sessionsIn>;

/** What is stored of a secret that a cookie or a link holds: hexadecimal. */
export function hashOfSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
