/**
 * The steps of a batch. Each is a bounded transaction that locks the account's row first. Any
 * replica can make the next step, also after another died.
 *
 * | transaction | does                                                                         |
 * |-------------|------------------------------------------------------------------------------|
 * | enterItems  | makes jobs of the next items, each with the credit that was held for it; if  |
 * |             | the batch is cancelled, these jobs are cancelled, too                        |
 * | cancel      | marks the batch: no further item becomes a job that a node gets              |
 * | finish      | ends a batch that has no waiting items and no open jobs, and notifies once   |
 */
import { insertWebhook } from '@matting/core/webhooks/outbox-store.ts';
import { type Database, query, type Schema, transact } from '@matting/database/database.ts';
import { matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import type { Selectable, Transaction } from 'kysely';
import { type Batch, type JobGroups, readBatch } from './batch.ts';
import { forgetAddresses } from './submit-again.ts';

/** Open jobs of an account that came from batches, if the account's own bound is not lower. */
const BATCH_JOBS_OPEN_MAX = 100;
const ENTER_MAX = 25;

export interface BatchNotices {
  /** The sealed body of matting.batch.finished. Runs in an open transaction: quick, no effects. */
  readonly renderBody: (batch: Batch) => string;
  readonly firstWaitMs?: number | undefined;
}

export type BatchProgress = ReturnType<typeof batchProgress>;

export function batchProgress(database: Database, groups: JobGroups, notices: BatchNotices) {
  return {
    /** @returns the number of new jobs */
    async enterItems(batchId: string, accountId: string, jobsInFlightMax: number): Promise<number> {
      let committed: (() => void) | undefined;
      const entered = await transact(database, async tx => {
        await groups.takeAccount(tx, accountId);
        const batch = await rowOf(tx, batchId);
        if (batch === undefined || batch.next_item === batch.items) return 0;
        const bounds = { jobsInFlightMax, ofGroupsMax: BATCH_JOBS_OPEN_MAX };
        const isCancelled = batch.cancelled_at !== null;
        const room = isCancelled ? ENTER_MAX : await groups.room(tx, accountId, bounds);
        const coming = await takeItems(tx, batch, Math.min(room, ENTER_MAX), !isCancelled);
        if (coming.length === 0) return 0;
        committed = await groups.begin(tx, groupOf(batch), coming, { isCancelled });
        return coming.length;
      });
      committed?.();
      return entered;
    },
    /** Undefined: the API key has no such batch. Also erases the addresses of a finished batch. */
    cancelBatch: (batchId: string, apiKeyId: string) =>
      query(database, async db => {
        await db
          .updateTable('batches')
          .set({ cancelled_at: database.nowMs })
          .where('id', '=', batchId)
          .where('api_key_id', '=', apiKeyId)
          .where('cancelled_at', 'is', null)
          .where('finished_at', 'is', null)
          .execute();
        const batch = await readBatch(groups, db, { id: batchId, api_key_id: apiKeyId });
        if (batch !== undefined) await forgetAddresses(db, batchId);
        return batch;
      }),
    /** False: an item or a job is open, or the batch is finished already. */
    finishBatch: (batchId: string) =>
      transact(database, async tx => {
        const row = await rowOf(tx, batchId);
        if (row === undefined || row.next_item < row.items) return false;
        // No item is left to become a job, so none can open after this check.
        if (await groups.hasOpen(tx, batchId)) return false;
        if (!(await markFinished(database, tx, batchId))) return false;
        if (row.callback_url !== null) await notify({ database, groups, ...notices }, tx, row);
        return true;
      }),
    async removeOldBatches(afterMs: number, limit: number): Promise<number> {
      const old = await query(database, db =>
        db
          .selectFrom('batches')
          .select('id')
          .where('finished_at', '<=', nowPlusMs(database.nowMs, -afterMs))
          .orderBy('finished_at')
          .limit(limit)
          .execute(),
      );
      const ids = old.map(({ id }) => id);
      if (ids.length === 0) return 0;
      await transact(database, async tx => {
        await tx.deleteFrom('batch_items').where('batch_id', 'in', ids).execute();
        await tx.deleteFrom('batches').where('id', 'in', ids).execute();
      });
      return ids.length;
    },
  };
}

type BatchRow = Selectable<Schema['batches']>;

function rowOf(tx: Transaction<Schema>, batchId: string): Promise<BatchRow | undefined> {
  return tx.selectFrom('batches').selectAll().where('id', '=', batchId).executeTakeFirst();
}

function groupOf({ id, account_id: accountId, api_key_id: apiKeyId, ...row }: BatchRow) {
  const { fingerprint, request: template, cap_window_start: capWindowStartMs } = row;
  return { id, accountId, apiKeyId, fingerprint, template, capWindowStartMs };
}

/** Erases the fields of these items that their jobs now hold. */
async function takeItems(
  tx: Transaction<Schema>,
  { id, next_item: from }: BatchRow,
  room: number,
  keepsAddress: boolean,
) {
  if (room <= 0) return [];
  const items = await tx
    .selectFrom('batch_items')
    .select(['item', 'job_id', 'image_url', 'reference'])
    .where('batch_id', '=', id)
    .where('item', '>=', from)
    .orderBy('item')
    .limit(room)
    .execute();
  const next = from + items.length;
  await tx
    .updateTable('batch_items')
    .set(eb => ({ again_url: keepsAddress ? eb.ref('image_url') : null }))
    .set({ image_url: null, reference: null })
    .where('batch_id', '=', id)
    .where('item', '>=', from)
    .where('item', '<', next)
    .execute();
  await tx.updateTable('batches').set({ next_item: next }).where('id', '=', id).execute();
  return items.map(({ job_id, image_url, ...item }) => {
    return { ...item, id: job_id, sourceUrl: image_url ?? '' };
  });
}

function markFinished({ nowMs }: Database, tx: Transaction<Schema>, id: string): Promise<boolean> {
  return matchesOne(
    tx
      .updateTable('batches')
      .set({ finished_at: nowMs, open_at: null })
      .set({ callback_secret: null, callback_secret_key_id: null })
      .where('id', '=', id)
      .where('finished_at', 'is', null)
      .whereRef('next_item', '=', 'items'),
  );
}

async function notify(
  at: BatchNotices & { readonly database: Database; readonly groups: JobGroups },
  tx: Transaction<Schema>,
  { id, account_id: accountId, callback_url: url, ...row }: BatchRow,
): Promise<void> {
  const batch = await readBatch(at.groups, tx, { id });
  if (batch === undefined || url === null) throw new Error(`batch ${id} is gone before its commit`);
  const secret = { secret: row.callback_secret, secretKeyId: row.callback_secret_key_id };
  const event = 'matting.batch.finished';
  const webhook = { id, accountId, event, url, body: at.renderBody(batch), ...secret };
  await insertWebhook(at.database, tx, webhook, at.firstWaitMs);
}
