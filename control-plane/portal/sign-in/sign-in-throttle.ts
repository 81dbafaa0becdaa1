/**
 * By what an attempt to sign in is counted (portal/sign-in/throttle-rule.ts has the rule), and
 * browsers that are known: a person has signed in there with the password of now.
 */
import { createHash, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import { networkOf } from '#program/network-of.ts';
import { mailKeyOf } from '../people/mail-address.ts';
import { FAILURES_MAX } from './throttle-rule.ts';
import type { SignInThrottleStore, ThrottleKey } from './throttle-store.ts';

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

const KEY_BYTES = 32;
const ID_BYTES = 16;
const FORM = /^([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

/** Who has a password. */
export interface PasswordOwner {
  readonly userId: string;
  /** Null: none was set, so no browser is known. */
  readonly passwordHash: string | null;
}

export class KnownBrowsers {
  readonly #key: Buffer;

  /** @param secretsKey another key makes every browser an unknown one, and nothing else */
  constructor(secretsKey: Buffer) {
    const key = hkdfSync('sha256', secretsKey, '', 'known browsers of sign-in', KEY_BYTES);
    this.#key = Buffer.from(key);
  }

  /** What the browser keeps from a sign-in with a password on. */
  create({ userId, passwordHash }: PasswordOwner & { readonly passwordHash: string }): string {
    const id = randomBytes(ID_BYTES).toString('base64url');
    return `${id}.${this.#sealOf(id, userId, passwordHash).toString('base64url')}`;
  }

  /** The browser's id; undefined: they have not signed in with that password in it. */
  idOf(cookie: string | undefined, { userId, passwordHash }: PasswordOwner): string | undefined {
    const [, id, seal = ''] = FORM.exec(cookie ?? '') ?? [];
    if (id === undefined || passwordHash === null) return undefined;
    const given = Buffer.from(seal, 'base64url');
    const expected = this.#sealOf(id, userId, passwordHash);
    return given.length === expected.length && timingSafeEqual(given, expected) ? id : undefined;
  }

  #sealOf(id: string, userId: string, passwordHash: string): Buffer {
    const parts = [id, userId, passwordHash];
    return createHmac('sha256', this.#key).update(parts.join('.')).digest();
  }
}
