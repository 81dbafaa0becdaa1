/**
 * Failed sign-ins, counted over all replicas: domain/account/sign-in-throttle.ts has the rule. An
 * attempt is counted before the password is looked at, so that attempts at once pass no bound, and
 * one that succeeds is given back.
 */
import type { Kysely } from 'kysely';
import {
  leftOfWindowMs,
  type ThrottleRow,
  takeAttempt,
} from '../../domain/account/sign-in-throttle.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import type { Schema } from '../database/schema.ts';
import { OvertakenError, query, transact } from '../database/transact.ts';

/** What attempts are counted by. */
export interface ThrottleKey {
  /** SHA-256 of what it stands for, hexadecimal: no table of mails and addresses. */
  readonly hash: string;
  readonly failuresMax: number;
}

export interface SignInThrottleStore {
  /** 0: the attempt is counted; more: none is, and how long until one may be made. */
  take(keys: readonly ThrottleKey[]): Promise<number>;
  /** An attempt that succeeded. */
  giveBack(keys: readonly ThrottleKey[]): Promise<void>;
}

export function createSignInThrottleStore(database: Database): SignInThrottleStore {
  return {
    take: keys => transact(database, tx => take(database, tx, keys)),
    giveBack: keys =>
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

/** All of them or none. */
async function take(
  database: Database,
  tx: Kysely<Schema>,
  keys: readonly ThrottleKey[],
): Promise<number> {
  // In one order everywhere: two attempts then wait for each other and never in a circle.
  const ordered = [...keys].sort((a, b) => (a.hash < b.hash ? -1 : 1));
  const rows: { row: ThrottleRow; key: ThrottleKey; nowMs: number }[] = [];
  for (const key of ordered) rows.push({ key, ...(await readRow(database, tx, key)) });
  const waits = rows.map(({ row, key, nowMs }) => leftOfWindowMs(row, key.failuresMax, nowMs));
  const waitMs = Math.max(0, ...waits);
  if (waitMs > 0) return waitMs;
  for (const { row, key, nowMs } of rows) {
    const next = takeAttempt(row, nowMs);
    const { numUpdatedRows } = await tx
      .updateTable('sign_in_throttles')
      .set({ window_start: next.windowStartMs, failures: next.failures })
      .where('key_hash', '=', key.hash)
      .where('window_start', '=', row.windowStartMs)
      .where('failures', '=', row.failures)
      .executeTakeFirstOrThrow();
    if (numUpdatedRows !== 1n) throw new OvertakenError('another attempt was counted just now');
  }
  return 0;
}

async function readRow(
  database: Database,
  tx: Kysely<Schema>,
  key: ThrottleKey,
): Promise<{ row: ThrottleRow; nowMs: number }> {
  const row = await tx
    .selectFrom('sign_in_throttles')
    .select(['window_start', 'failures', database.nowMs.as('now')])
    .where('key_hash', '=', key.hash)
    .executeTakeFirst();
  if (row !== undefined) {
    const { window_start: windowStartMs, failures, now: nowMs } = row;
    return { row: { windowStartMs, failures }, nowMs };
  }
  try {
    await tx
      .insertInto('sign_in_throttles')
      .values({ key_hash: key.hash, window_start: 0, failures: 0 })
      .execute();
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
    throw new OvertakenError('another replica made the row just now');
  }
  return readRow(database, tx, key);
}
