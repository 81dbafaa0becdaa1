/**
 * A batch on its way, in bounded transactions that any replica makes, each of which begins with the
 * account's row. A replica that dies between any two of them leaves a batch that the next one goes
 * on with.
 *
 * | transaction | does                                                                         |
 * |-------------|------------------------------------------------------------------------------|
 * | enterItems  | the next items become jobs, each with the credit that was reserved for it;   |
 * |             | those of a cancelled batch end at once as cancelled jobs                     |
 * | cancel      | says that the caller cancelled it: no item becomes a job that a node gets    |
 * | finish      | where no item waits and no job is open: its end, and its one notification    |
 */
import { type Database, query, type Schema, transact } from '@matting/database/database.ts';
import {
  matchesOne,
  nowPlusMs,
  requireInteger,
  throughIndex,
} from '@matting/database/statements.ts';
import type { Selectable, Transaction } from 'kysely';
import { takeAccount } from '../accounts/account-store.ts';
import { readBatch } from '../jobs/batch.ts';
import { OPEN_STATES } from '../jobs/job.ts';
import { readJob } from '../jobs/job-reading.ts';
import { beginReserved, readInFlight } from '../ledger/ledger-writer.ts';
import { insertWebhook } from '../webhooks/outbox-store.ts';
import { type JobCompletionOptions, noteLeftOut } from './job-completion.ts';
import { cancelJob } from './job-deletion.ts';
import { insertItems, type JobTemplate } from './job-submission.ts';
import { SettledSteps } from './settled-steps.ts';

/** Jobs of an account that are open at once and came of batches; fewer where its own bound is. */
const BATCH_JOBS_OPEN_MAX = 100;
/** Items of one transaction. */
const ENTER_MAX = 25;

const OPEN_JOBS = throughIndex('jobs', 'jobs_lane_state');

export type BatchProgress = ReturnType<typeof batchProgress>;

export function batchProgress(database: Database, options: JobCompletionOptions) {
  return {
    /** @param jobsInFlightMax of the account. @returns how many became jobs */
    async enterItems(batchId: string, accountId: string, jobsInFlightMax: number): Promise<number> {
      const cancelled = new Map<string, SettledSteps>();
      const entered = await transact(database, async tx => {
        await takeAccount(database, tx, accountId);
        const batch = await rowOf(tx, batchId);
        if (batch === undefined || batch.next_item === batch.items) return [];
        const isCancelled = batch.cancelled_at !== null;
        const room = isCancelled
          ? ENTER_MAX
          : await roomFor(database, tx, accountId, jobsInFlightMax);
        const jobIds = await enter(database, tx, batch, Math.min(room, ENTER_MAX));
        for (const id of isCancelled ? jobIds : []) {
          const job = await readJob(database, tx, id);
          if (job === undefined) continue;
          const steps = new SettledSteps(options.settled);
          cancelled.set(id, steps);
          await cancelJob(database, tx, job, { options, steps });
        }
        return jobIds;
      });
      for (const [id, steps] of cancelled) noteLeftOut(database, options, id, steps);
      return entered.length;
    },
    /** Undefined: the API key has no such batch. */
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
        return readBatch(database, db, { id: batchId, api_key_id: apiKeyId });
      }),
    /** False: an item or a job is open, or it is finished already. */
    finishBatch: (batchId: string) =>
      transact(database, async tx => {
        const row = await rowOf(tx, batchId);
        if (row === undefined || !(await markFinished(database, tx, batchId))) return false;
        if (row.callback_url !== null) await notify(database, tx, options, row);
        return true;
      }),
    /** Removes batches that ended so long ago, with their items. @returns their number */
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

async function roomFor(
  database: Database,
  tx: Transaction<Schema>,
  accountId: string,
  jobsInFlightMax: number,
): Promise<number> {
  const ofBatches = BATCH_JOBS_OPEN_MAX - (await openJobs(database, tx, accountId));
  return Math.min(ofBatches, jobsInFlightMax - (await readInFlight(tx, accountId)));
}

/** An account has no more open jobs than may be in flight. */
async function openJobs(database: Database, tx: Transaction<Schema>, accountId: string) {
  const { jobs } = await tx
    .selectFrom(OPEN_JOBS[database.dialect])
    .select(eb => eb.fn.countAll<number>().as('jobs'))
    .where('state', 'in', OPEN_STATES)
    .where('account_id', '=', accountId)
    .where('batch_id', 'is not', null)
    .executeTakeFirstOrThrow();
  return requireInteger(jobs);
}

async function enter(
  database: Database,
  tx: Transaction<Schema>,
  batch: BatchRow,
  room: number,
): Promise<string[]> {
  const { id, account_id: accountId, api_key_id: apiKeyId, next_item: from } = batch;
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
  const template = JSON.parse(batch.request) as JobTemplate;
  const jobs = items.map(({ item, job_id, image_url, reference }) => ({
    ...template,
    id: job_id,
    accountId,
    apiKeyId,
    idempotencyKeyHash: null,
    fingerprint: batch.fingerprint,
    class: 'async' as const,
    input: null,
    sourceUrl: image_url ?? '',
    reference: reference ?? undefined,
    batch: { id, item },
  }));
  await insertItems(database, tx, jobs, batch.cap_window_start);
  await beginReserved(tx, accountId, items.length);
  await tx
    .updateTable('batch_items')
    .set({ image_url: null, reference: null })
    .where('batch_id', '=', id)
    .where('item', '>=', from)
    .where('item', '<', next)
    .execute();
  await tx.updateTable('batches').set({ next_item: next }).where('id', '=', id).execute();
  return jobs.map(job => job.id);
}

function markFinished({ nowMs }: Database, tx: Transaction<Schema>, id: string): Promise<boolean> {
  return matchesOne(
    tx
      .updateTable('batches')
      .set({ finished_at: nowMs, open_at: null })
      .set({ callback_secret: null, callback_secret_key_id: null })
      .where('id', '=', id)
      .where('finished_at', 'is', null)
      .whereRef('next_item', '=', 'items')
      .where(eb =>
        eb.not(
          eb.exists(
            eb
              .selectFrom('jobs')
              .select('id')
              .where('batch_id', '=', id)
              .where('finished_at', 'is', null),
          ),
        ),
      ),
  );
}

async function notify(
  database: Database,
  tx: Transaction<Schema>,
  { renderBatchBody = () => '', webhookFirstWaitMs = 0 }: JobCompletionOptions,
  { id, account_id: accountId, callback_url: url, ...row }: BatchRow,
): Promise<void> {
  const batch = await readBatch(database, tx, { id });
  if (batch === undefined || url === null) throw new Error(`batch ${id} is gone before its commit`);
  const secret = { secret: row.callback_secret, secretKeyId: row.callback_secret_key_id };
  const event = 'matting.batch.finished';
  const webhook = { id, accountId, event, url, body: renderBatchBody(batch), ...secret };
  await insertWebhook(database, tx, webhook, webhookFirstWaitMs);
}
