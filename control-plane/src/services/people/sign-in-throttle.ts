/** By what an attempt to sign in is counted: domain/account/sign-in-throttle.ts has the rule. */
import { createHash } from 'node:crypto';
import { networkOf } from '#program/network-of.ts';
import { mailKeyOf } from '../../domain/account/mail-address.ts';
import { FAILURES_MAX } from '../../domain/account/sign-in-throttle.ts';
import type { SignInThrottleStore, ThrottleKey } from '../../store/people/sign-in-throttle.ts';
import type { KnownBrowsers, PasswordOwner } from './known-browsers.ts';

export interface Attempt {
  readonly mail: string;
  readonly address: string;
  /** The cookie of a known browser. */
  readonly browser: string | undefined;
  /** Who has that mail; undefined: nobody. */
  readonly person: PasswordOwner | undefined;
}

/** What is counted by itself, so that nobody else uses it up. */
export interface OwnAttempt {
  /**
   * 'provider': a way back from the identity provider, which is asked whether it is true; 'session':
   * the password before, of who is signed in.
   */
  readonly by: 'provider' | 'session';
  readonly address: string;
  /** Of the session. */
  readonly sessionId?: string;
}

export class SignInThrottle {
  readonly #store: SignInThrottleStore;
  readonly #browsers: KnownBrowsers;

  constructor(store: SignInThrottleStore, browsers: KnownBrowsers) {
    this.#store = store;
    this.#browsers = browsers;
  }

  /** Counts the attempt as one that fails. 0, or how long until one may be made, in ms. */
  take(attempt: Attempt | OwnAttempt): Promise<number> {
    const keys = this.#keysOf(attempt);
    return this.#store.take(keys);
  }

  /** It succeeded. Successes of a mail beyond their own bound stay counted as if they had failed. */
  async giveBack(attempt: Attempt | OwnAttempt): Promise<void> {
    const keys = this.#keysOf(attempt);
    const successes = 'mail' in attempt ? [keyOf('success', mailKeyOf(attempt.mail))] : [];
    const waitMs = successes.length === 0 ? 0 : await this.#store.take(successes);
    if (waitMs === 0) await this.#store.giveBack(keys);
  }

  /** Of the person, where the attempt comes from a browser of theirs that is known. */
  knownId({ browser, person }: Pick<Attempt, 'browser' | 'person'>): string | undefined {
    if (person === undefined) return undefined;
    return this.#browsers.idOf(browser, person) === undefined ? undefined : person.userId;
  }

  #keysOf(attempt: Attempt | OwnAttempt): ThrottleKey[] {
    const network = networkOf(attempt.address);
    if ('by' in attempt) return [keyOf(attempt.by, attempt.sessionId ?? network)];
    const { mail, browser, person } = attempt;
    const known = person && this.#browsers.idOf(browser, person);
    if (person !== undefined && known !== undefined) {
      const password = `${person.userId} ${person.passwordHash}`;
      return [keyOf('browser', known), keyOf('browsers', password)];
    }
    return [keyOf('address', network), keyOf('mail', mailKeyOf(mail))];
  }
}

function keyOf(kind: keyof typeof FAILURES_MAX, text: string): ThrottleKey {
  const hash = createHash('sha256').update(`${kind} ${text}`).digest('hex');
  return { hash, failuresMax: FAILURES_MAX[kind] };
}
