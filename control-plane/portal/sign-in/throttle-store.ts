/**
 * Failed sign-ins, counted over all replicas: portal/sign-in/throttle-rule.ts has the rule. An
 * attempt is counted before the password is looked at, so that attempts at once pass no bound, and
 * one that succeeds is given back.
 */

import type { Database } from '../../core/database/connect.ts';
import type { Db } from '../../core/database/schema.ts';
import { OvertakenError, query, transact } from '../../core/database/transact.ts';
import { isInserted, matchesOne } from '../../core/database/values.ts';
import {
  countAttempt,
  leftOfWindowMs,
  NONE_COUNTED,
  type WindowCount,
} from '../../core/rates/attempt-window.ts';
import { THROTTLE_WINDOW_MS } from './throttle-rule.ts';

/** What attempts are counted by. */
export interface ThrottleKey {
  /** SHA-256 of what it stands for, hexadecimal: no table of mails and addresses. */
  readonly hash: string;
  readonly failuresMax: number;
}

export type SignInThrottleStore = ReturnType<typeof createSignInThrottleStore>;

export function createSignInThrottleStore(database: Database) {
  return {
    /** 0: the attempt is counted; more: none is, and how long until one may be made. */
    take: (keys: readonly ThrottleKey[]) => transact(database, tx => take(database, tx, keys)),
    /** An attempt that succeeded. */
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
