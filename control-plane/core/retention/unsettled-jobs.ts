/**
 * Does what steps have left to do with jobs that ended (core/transactions/settled-steps.ts), each row of
 * `unsettled_jobs` exactly once: the row goes in the transaction of its step. The account's row
 * comes first, as in every transaction that moves credits. A step that fails again leaves its row
 * to the next walk.
 */

import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import { takeAccount } from '../accounts/account-store.ts';
import { CREDITS_PER_JOB } from '../ledger/ledger.ts';
import type { JobCompletionOptions } from '../transactions/job-completion.ts';
import type { SettledJob, SettledStep } from '../transactions/settled-steps.ts';

export type UnsettledJobs = ReturnType<typeof unsettledJobs>;

export function unsettledJobs(
  database: Database,
  { settled: steps, observer }: Pick<JobCompletionOptions, 'settled' | 'observer'>,
) {
  const places = new Map<string, string>();
  /** A page of the step's rows, to the first that fails again. */
  async function page(step: SettledStep, limit: number) {
    const jobIds = await readPage(database, step.name, places.get(step.name) ?? '', limit);
    let done = 0;
    for (const jobId of jobIds) {
      places.set(step.name, jobId);
      try {
        await settle(database, step, jobId);
        done += 1;
      } catch (error) {
        const fields = { err: error, job: jobId, step: step.name };
        database.log.warn(fields, 'a step that was left out of the end of a job failed again');
        observer?.settledLeftOut(step.name);
        return { done, more: true };
      }
    }
    if (jobIds.length < limit) places.delete(step.name);
    return { done, more: jobIds.length === limit };
  }
  return {
    async repair(limit: number) {
      const pages = [];
      for (const step of steps) pages.push(await page(step, limit));
      return {
        done: pages.reduce((sum, { done }) => sum + done, 0),
        more: pages.some(({ more }) => more),
      };
    },
  };
}

async function readPage(database: Database, step: string, after: string, limit: number) {
  const rows = await query(database, db =>
    db
      .selectFrom('unsettled_jobs')
      .select('job_id')
      .where('package', '=', step)
      .where('job_id', '>', after)
      .orderBy('job_id')
      .limit(limit)
      .execute(),
  );
  return rows.map(row => row.job_id);
}

/**
 * Reads the job as its end showed it: nothing of that changes. Undefined: the job's row is gone.
 */
async function readSettled(tx: Db, jobId: string): Promise<SettledJob | undefined> {
  const row = await tx
    .selectFrom('jobs')
    .select(['account_id as accountId', 'id as jobId', 'api_key_id as apiKeyId'])
    .select(['created_at as createdAtMs', 'output_format as format'])
    .select(['playground_day as unpaidDayMs', 'state', 'failure_retryable as retryable'])
    .select('corrects')
    .where('id', '=', jobId)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const { state, retryable, corrects, ...job } = row;
  const isCorrection = corrects !== null;
  const isCharged = state === 'succeeded' && job.unpaidDayMs === null && !isCorrection;
  return {
    ...job,
    outcome: state === 'succeeded' ? 'succeeded' : 'failed',
    isCorrection,
    retryable: retryable === 1,
    credits: isCharged ? CREDITS_PER_JOB : 0,
  };
}

/** Does nothing where another did it meanwhile. Of a job that is gone the row goes alone. */
async function settle(database: Database, step: SettledStep, jobId: string): Promise<void> {
  const job = await query(database, db => readSettled(db, jobId));
  await transact(database, async tx => {
    if (job !== undefined) await takeAccount(database, tx, job.accountId);
    const removed = tx
      .deleteFrom('unsettled_jobs')
      .where('package', '=', step.name)
      .where('job_id', '=', jobId);
    const isMine = await matchesOne(removed);
    if (isMine && job !== undefined) await step.settled(database, tx, job);
  });
}
