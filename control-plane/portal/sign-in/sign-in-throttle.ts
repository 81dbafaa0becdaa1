/**
 * Bounds how many attempts to sign in may fail (OWASP: device cookies):
 *
 * | attempts from                                      | are counted by                  |
 * |----------------------------------------------------|---------------------------------|
 * | a known browser: they signed in with it before,    | that browser; all known         |
 * | with the password that they have now               | browsers of the person          |
 * | any other                                          | the network address; the mail   |
 *
 * A stranger has FAILURES_MAX.mail guesses for one person in a window, from any number of
 * addresses, and FAILURES_MAX.address from one address for all persons. This never locks a known
 * browser out. In a new browser the person waits for the window's end, THROTTLE_WINDOW_MS at most.
 * Known browsers together have FAILURES_MAX.browsers for their person, until the password changes.
 */

import { createHash } from 'node:crypto';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  transact,
} from '@matting/database/database.ts';
import { isInserted, matchesOne } from '@matting/database/statements.ts';
import { networkOf } from '@matting/program/ports/addresses.ts';
import { mailKeyOf } from '../mails/mail-address.ts';
import {
  countAttempt,
  leftOfWindowMs,
  NONE_COUNTED,
  type WindowCount,
} from '../session/attempt-windows.ts';
import type { KnownBrowsers, PasswordOwner } from './known-browsers.ts';

interface Attempt {
  readonly mail: string;
  readonly address: string;
  readonly browser: string | undefined;
  readonly person: PasswordOwner | undefined;
}

/** Attempts with counts of their own, so that nobody else uses them up. */
interface OwnAttempt {
  /** 'provider': a redirect from it. 'session': a signed-in person types their current password. */
  readonly by: 'provider' | 'session';
  readonly address: string;
  readonly sessionId?: string;
}

export class SignInThrottle {
  readonly #store: SignInThrottleStore;
  readonly #browsers: KnownBrowsers;

  constructor(store: SignInThrottleStore, browsers: KnownBrowsers) {
    this.#store = store;
    this.#browsers = browsers;
  }

  /** Counts the attempt as a failure. @returns 0, or the milliseconds until the next is allowed */
  take(attempt: Attempt | OwnAttempt): Promise<number> {
    const keys = this.#keysOf(attempt);
    return this.#store.take(keys);
  }

  /** Takes a success out of the failures, until the mail's successes reach their own bound. */
  async giveBack(attempt: Attempt | OwnAttempt): Promise<void> {
    const keys = this.#keysOf(attempt);
    const successes = 'mail' in attempt ? [throttleKeyOf('success', mailKeyOf(attempt.mail))] : [];
    const waitMs = successes.length === 0 ? 0 : await this.#store.take(successes);
    if (waitMs === 0) await this.#store.giveBack(keys);
  }

  knownId({ browser, person }: Pick<Attempt, 'browser' | 'person'>): string | undefined {
    if (person === undefined) return undefined;
    return this.#browsers.idOf(browser, person) === undefined ? undefined : person.userId;
  }

  #keysOf(attempt: Attempt | OwnAttempt): ThrottleKey[] {
    const network = networkOf(attempt.address);
    if ('by' in attempt) return [throttleKeyOf(attempt.by, attempt.sessionId ?? network)];
    const { mail, browser, person } = attempt;
    const known = person && this.#browsers.idOf(browser, person);
    if (person !== undefined && known !== undefined) {
      const password = `${person.userId} ${person.passwordHash}`;
      return [throttleKeyOf('browser', known), throttleKeyOf('browsers', password)];
    }
    return [throttleKeyOf('address', network), throttleKeyOf('mail', mailKeyOf(mail))];
  }
}

function throttleKeyOf(kind: keyof typeof FAILURES_MAX, text: string): ThrottleKey {
  const hash = createHash('sha256').update(`${kind} ${text}`).digest('hex');
  return { hash, failuresMax: FAILURES_MAX[kind] };
}

export const THROTTLE_WINDOW_MS = 600_000;

export const FAILURES_MAX = {
  /** Enough for an office behind one address, within a few minutes. */
  address: 30,
  mail: 10,
  browser: 10,
  /** Shared by all known browsers of a person. */
  browsers: 30,
  /** Bounds the hashes of successes. Nobody signs in this often. */
  success: 60,
  /** Counted by address, since each attempt calls the provider. */
  provider: 30,
  session: 10,
} as const;

interface ThrottleKey {
  /** SHA-256 in hexadecimal, so that no table lists mails and addresses. */
  readonly hash: string;
  readonly failuresMax: number;
}

type SignInThrottleStore = ReturnType<typeof createSignInThrottleStore>;

/** Counts an attempt before its password is checked, so that parallel attempts pass no bound. */
export function createSignInThrottleStore(database: Database) {
  return {
    /** 0: the attempt is counted. Else the milliseconds until the next one is allowed. */
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

/** Counts all keys or none. A refused attempt only reads. */
async function take(database: Database, tx: Db, keys: readonly ThrottleKey[]): Promise<number> {
  // Sorted, so that two attempts cannot deadlock.
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
