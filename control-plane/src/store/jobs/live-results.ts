/**
 * Results whose links are good, in the order in which they end, and how far the look over all of
 * them has come: columns of the sweeper's row, since one replica at a time sweeps.
 */

import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { throughIndex } from '../database/through-index.ts';
import { query } from '../database/transact.ts';

/** A place in an order by time and id. */
export interface ResultPlace {
  readonly atMs: number;
  readonly id: string;
}

/** Before the first. */
export const FIRST_RESULT: ResultPlace = { atMs: 0, id: '' };

/** A result whose link is good. */
export interface LiveResult {
  readonly jobId: string;
  readonly accountId: string;
  readonly blob: string;
  readonly expiresAtMs: number;
}

export interface ResultLook {
  /** Where the look goes on; undefined: none is due. */
  dueLook(): Promise<ResultPlace | undefined>;
  /** @param next where it goes on, or when the next one begins */
  saveLook(next: { readonly after: ResultPlace } | { readonly inMs: number }): Promise<void>;
}

export async function liveResults(
  database: Database,
  after: ResultPlace,
  aheadMs: number,
  limit: number,
): Promise<LiveResult[]> {
  const rows = await query(database, db =>
    results(database, db, 'asc', limit)
      .where('result_blob_expires_at', '>', nowPlusMs(database.nowMs, aheadMs))
      .where('result_blob_expires_at', '>=', after.atMs)
      .where(eb => eb.or([eb('result_blob_expires_at', '>', after.atMs), eb('id', '>', after.id)]))
      .execute(),
  );
  return rows.map(resultFromRow);
}

export async function neighboursOf(
  database: Database,
  { jobId, expiresAtMs }: Pick<LiveResult, 'jobId' | 'expiresAtMs'>,
  count: number,
): Promise<LiveResult[]> {
  const before = await query(database, db =>
    results(database, db, 'desc', count)
      .where('result_blob_expires_at', '>', database.nowMs)
      .where('result_blob_expires_at', '<=', expiresAtMs)
      .where('id', '!=', jobId)
      .execute(),
  );
  const behind = await query(database, db =>
    results(database, db, 'asc', count)
      .where('result_blob_expires_at', '>', database.nowMs)
      .where('result_blob_expires_at', '>', expiresAtMs)
      .execute(),
  );
  return [...before, ...behind].map(resultFromRow);
}

function results(
  { dialect }: Database,
  db: Database['kysely'],
  order: 'asc' | 'desc',
  limit: number,
) {
  return db
    .selectFrom(RESULTS[dialect])
    .select(['id', 'account_id', 'result_blob', 'result_blob_expires_at'])
    .orderBy('result_blob_expires_at', order)
    .orderBy('id', order)
    .limit(limit);
}

const RESULTS = throughIndex('jobs', 'jobs_result_expiry');

function resultFromRow(row: {
  id: string;
  account_id: string;
  result_blob: string | null;
  result_blob_expires_at: number | null;
}): LiveResult {
  return {
    jobId: row.id,
    accountId: row.account_id,
    // The condition on the one is a condition on the other: the schema keeps them set together.
    blob: row.result_blob ?? '',
    expiresAtMs: row.result_blob_expires_at ?? 0,
  };
}

const ID = 'sweep';

export function resultLook(database: Database): ResultLook {
  return {
    async dueLook() {
      const row = await query(database, db =>
        db
          .selectFrom('sweeps')
          .select(['look_due_at', 'look_after_at', 'look_after_id'])
          .select(() => database.nowMs.as('read_at'))
          .where('id', '=', ID)
          .executeTakeFirst(),
      );
      if (row === undefined || (row.look_due_at ?? 0) > row.read_at) return undefined;
      return { atMs: row.look_after_at ?? 0, id: row.look_after_id ?? '' };
    },
    async saveLook(next) {
      const columns =
        'after' in next
          ? { look_after_at: next.after.atMs, look_after_id: next.after.id }
          : {
              look_due_at: nowPlusMs(database.nowMs, next.inMs),
              look_after_at: null,
              look_after_id: null,
            };
      await query(database, db =>
        db.updateTable('sweeps').set(columns).where('id', '=', ID).execute(),
      );
    },
  };
}
