/** By what an attempt to sign in is counted: domain/account/sign-in-throttle.ts has the rule. */
import { createHash } from 'node:crypto';
import { networkOf } from '#program/network-of.ts';
import { mailKeyOf } from '../../domain/account/mail-address.ts';
import { FAILURES_MAX } from '../../domain/account/sign-in-throttle.ts';
import type { SignInThrottleStore, ThrottleKey } from '../../store/people/sign-in-throttle.ts';
import type { DatabaseTurns } from '../database-turns.ts';
import type { KnownBrowsers } from './known-browsers.ts';

export interface Attempt {
  readonly mail: string;
  readonly address: string;
  /** The cookie of a known browser. */
  readonly browser: string | undefined;
}

export class SignInThrottle {
  readonly #store: SignInThrottleStore;
  readonly #browsers: KnownBrowsers;
  readonly #turns: Pick<DatabaseTurns, 'ofStranger'>;

  constructor(
    store: SignInThrottleStore,
    browsers: KnownBrowsers,
    turns: Pick<DatabaseTurns, 'ofStranger'>,
  ) {
    this.#store = store;
    this.#browsers = browsers;
    this.#turns = turns;
  }

  /** Counts the attempt as one that fails. 0, or how long until one may be made, in ms. */
  take(attempt: Attempt): Promise<number> {
    const keys = this.#keysOf(attempt);
    return this.#turns.ofStranger(attempt.address, () => this.#store.take(keys));
  }

  /** It succeeded. */
  giveBack(attempt: Attempt): Promise<void> {
    const keys = this.#keysOf(attempt);
    return this.#turns.ofStranger(attempt.address, () => this.#store.giveBack(keys));
  }

  #keysOf({ mail, address, browser }: Attempt): ThrottleKey[] {
    const known = this.#browsers.idOf(browser, mail);
    if (known !== undefined) return [keyOf('browser', known)];
    return [keyOf('address', networkOf(address)), keyOf('mail', mailKeyOf(mail))];
  }
}

function keyOf(kind: keyof typeof FAILURES_MAX, text: string): ThrottleKey {
  const hash = createHash('sha256').update(`${kind} ${text}`).digest('hex');
  return { hash, failuresMax: FAILURES_MAX[kind] };
}
