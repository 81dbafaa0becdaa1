/**
 * Sign-in by mail and password. An unknown mail, a wrong password and a person without a password
 * get the same answer after the same work. sign-in-throttle.ts bounds failures.
 */

import { parseMail } from '../mails/mail-address.ts';
import type { PeopleStore } from '../people/people-store.ts';
import {
  type Browser,
  endedHashOf,
  newSession,
  type SessionStore,
} from '../session/session-store.ts';
import type { KnownBrowsers } from './known-browsers.ts';
import type { Passwords } from './passwords.ts';
import type { SignInThrottle } from './sign-in-throttle.ts';

export interface Entered {
  readonly kind: 'signed-in';
  /** For the session's cookie. */
  readonly secret: string;
  /** For the cookie of a known browser. Undefined: no password was given. */
  readonly known: string | undefined;
  readonly userId: string;
  readonly accountId: string;
}

type SignInOutcome =
  | Entered
  | { readonly kind: 'refused' }
  | { readonly kind: 'no-account' }
  | { readonly kind: 'throttled'; readonly waitMs: number };

interface SignInParts {
  readonly people: Pick<PeopleStore, 'findByMail'>;
  readonly sessions: Pick<SessionStore, 'begin'>;
  readonly passwords: Pick<Passwords, 'verify'>;
  readonly throttle: SignInThrottle;
  readonly browsers: KnownBrowsers;
}

export class SignIn {
  readonly #parts: SignInParts;

  constructor(parts: SignInParts) {
    this.#parts = parts;
  }

  async withPassword(
    given: { readonly mail: string; readonly password: string },
    browser: Browser,
  ): Promise<SignInOutcome> {
    const { people, passwords, throttle, browsers } = this.#parts;
    const mail = parseMail(given.mail) ?? '';
    // A malformed mail costs the same: one statement and one hash.
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
