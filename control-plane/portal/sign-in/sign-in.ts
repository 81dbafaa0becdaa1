/**
 * Sign-in by mail and password. Whoever is not let in learns nothing: an unknown mail, a wrong
 * password and a person without one get the same answer after the same work. How many may fail, by
 * portal/session/attempt-windows.ts:
 *
 * | attempts from                                      | are counted by                  |
 * |----------------------------------------------------|---------------------------------|
 * | a known browser: they signed in with it before,    | that browser; all known         |
 * | with the password that they have now               | browsers of the person          |
 * | any other                                          | the network address; the mail   |
 *
 * So who guesses passwords has FAILURES_MAX.mail a window for one person, from however many
 * addresses, and FAILURES_MAX.address from one address, for however many persons. They lock nobody
 * out of a browser that is known; on a new one the person waits for the window's end,
 * THROTTLE_WINDOW_MS at most. (OWASP calls it device cookies.) Who holds known browsers, however
 * many, has FAILURES_MAX.browsers for that person, until the password is another.
 */

import { createHash, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  transact,
} from '@matting/database/database.ts';
import { isInserted, matchesOne, nowPlusMs, removeOldRows } from '@matting/database/statements.ts';
import { networkOf } from '@matting/program/ports/addresses.ts';
import { mailKeyOf, parseMail } from '../mails/mail-address.ts';
import type { PeopleStore } from '../people/people-store.ts';
import {
  countAttempt,
  leftOfWindowMs,
  NONE_COUNTED,
  type WindowCount,
} from '../session/attempt-windows.ts';
import {
  type Browser,
  endedHashOf,
  newSession,
  type SessionStore,
} from '../session/session-store.ts';
import type { Passwords } from './passwords.ts';

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

type SignInOutcome =
  | Entered
  | { readonly kind: 'refused' }
  /** Their password is right, and they belong to no account (any more). */
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

interface Attempt {
  readonly mail: string;
  readonly address: string;
  readonly browser: string | undefined;
  readonly person: PasswordOwner | undefined;
}

/** What is counted by itself, so that nobody else uses it up. */
interface OwnAttempt {
  /** 'provider': a way back from it; 'session': the password before, of who is signed in. */
  readonly by: 'provider' | 'session';
  readonly address: string;
  readonly sessionId?: string;
}

/** Over all replicas. */
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

interface PasswordOwner {
  readonly userId: string;
  /** Null: none was set, so no browser is known. */
  readonly passwordHash: string | null;
}

/** Browsers in which a person signed in with the password of now. */
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

export const THROTTLE_WINDOW_MS = 600_000;

export const FAILURES_MAX = {
  /** Also that of an office behind one address, in a few minutes. */
  address: 30,
  mail: 10,
  browser: 10,
  /** All known browsers of a person. */
  browsers: 30,
  /** Sign-ins of one mail that are given back: each has taken a hash. Nobody signs in so often. */
  success: 60,
  /** Ways back from the identity provider of one address, which ask it. */
  provider: 30,
  /** The password before, as one session asks for another. */
  session: 10,
} as const;

interface ThrottleKey {
  /** SHA-256 of what it stands for, hexadecimal: no table of mails and addresses. */
  readonly hash: string;
  readonly failuresMax: number;
}

type SignInThrottleStore = ReturnType<typeof createSignInThrottleStore>;

/** Counted before the password is looked at: attempts at once pass no bound. */
export function createSignInThrottleStore(database: Database) {
  return {
    /** 0: the attempt is counted; more: none is, and how long until one may be made. */
    take: (keys: readonly ThrottleKey[]) => transact(database, tx => take(database, tx, keys)),
    giveBack: (keys: readonly ThrottleKey[]) =>
      query(database, async db => {
        for (const { hash } of keys) {
          await db
            .updateTable('sign_in_throttles')
            .set(eb => ({ failures: eb('failures', '-', 1) }))
            .where('key_hash', '=', hash)
            .where('failures', '>', 0)
            .execute();
        }
      }),
  };
}

/** All of them or none. A refused attempt is read alone: it writes nothing, however many come. */
async function take(database: Database, tx: Db, keys: readonly ThrottleKey[]): Promise<number> {
  // In one order everywhere: two attempts then wait for each other and never in a circle.
  const ordered = [...keys].sort((a, b) => (a.hash < b.hash ? -1 : 1));
  const hashes = ordered.map(({ hash }) => hash);
  const rows = await tx
    .selectFrom('sign_in_throttles')
    .select(['key_hash', 'window_start', 'failures'])
    .where('key_hash', 'in', hashes)
    .execute();
  const { now: nowMs } = await tx.selectNoFrom(database.nowMs.as('now')).executeTakeFirstOrThrow();
  const rowOf = new Map(
    rows.map(row => [row.key_hash, { startMs: row.window_start, count: row.failures }]),
  );
  const waits = ordered.map(({ hash, failuresMax }) => {
    const limit = { windowMs: THROTTLE_WINDOW_MS, max: failuresMax };
    return leftOfWindowMs(rowOf.get(hash) ?? NONE_COUNTED, limit, nowMs);
  });
  const waitMs = Math.max(0, ...waits);
  if (waitMs > 0) return waitMs;
  for (const hash of hashes) await count(tx, hash, rowOf.get(hash), nowMs);
  return 0;
}

/** @param row as it was read; undefined: there was none */
async function count(tx: Db, hash: string, row: WindowCount | undefined, nowMs: number) {
  const counted = countAttempt(row ?? NONE_COUNTED, THROTTLE_WINDOW_MS, nowMs);
  const values = { window_start: counted.startMs, failures: counted.count };
  const change =
    row === undefined
      ? isInserted(
          tx
            .insertInto('sign_in_throttles')
            .values({ key_hash: hash, ...values })
            .execute(),
        )
      : matchesOne(
          tx
            .updateTable('sign_in_throttles')
            .set(values)
            .where('key_hash', '=', hash)
            .where('window_start', '=', row.startMs)
            .where('failures', '=', row.count),
        );
  if (!(await change)) throw new OvertakenError('another attempt was counted just now');
}

/** How long a link is kept after its end, for who asks why it does not work. */
const LINK_KEPT_MS = 30 * 86_400_000;

/** For the sweeper: each removes `limit` rows at most, oldest first, and answers how many. */
export function peopleRetention(database: Database) {
  const ago = (ms: number) => nowPlusMs(database.nowMs, -ms);
  const sessions = { table: 'sessions', key: 'id_hash', time: 'expires_at' } as const;
  const links = { table: 'one_time_links', key: 'id', time: 'expires_at' } as const;
  const throttles = { table: 'sign_in_throttles', key: 'key_hash', time: 'window_start' } as const;
  return {
    /** Past their absolute bound; those that are only idle wait for it. */
    removeEndedSessions: (limit: number) =>
      removeOldRows(database, { ...sessions, before: database.nowMs }, limit),
    removeOldLinks: (limit: number) =>
      removeOldRows(database, { ...links, before: ago(LINK_KEPT_MS) }, limit),
    removeOldThrottles: (limit: number) =>
      removeOldRows(database, { ...throttles, before: ago(THROTTLE_WINDOW_MS) }, limit),
  };
}
