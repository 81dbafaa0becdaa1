/**
 * Runs the steps that jobs left out (settled-steps.ts), each exactly once: the step's transaction
 * deletes its row of `unsettled_jobs`. It locks the account's row first, like every transaction
 * that moves credits. If a step fails again, its row stays for the next walk.
 */

import { takeAccount } from '@matting/accounts/account-store.ts';
import { type Database, query, transact } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import { type EndableJob, type EndOptions, type PayloadEnds, settledBy } from './end-job.ts';
import type { SettledJob, SettledStep } from './settled-steps.ts';

export type UnsettledJobs = ReturnType<typeof unsettledJobs>;

export function unsettledJobs<J extends EndableJob, S extends SettledJob>(
  database: Database,
  payload: PayloadEnds<J, S>,
  { settled: steps, observer }: EndOptions<S>,
) {
  const cursors = new Map<string, string>();
  /** Runs a page of the step's rows, up to the first that fails again. */
  async function page(step: SettledStep<S>, limit: number) {
    const jobIds = await readPage(database, step.name, cursors.get(step.name) ?? '', limit);
    let done = 0;
    for (const jobId of jobIds) {
      cursors.set(step.name, jobId);
      try {
        await settle(database, payload, step, jobId);
        done += 1;
      } catch (error) {
        const fields = { err: error, job: jobId, step: step.name };
        database.log.warn(fields, 'a step that was left out of the end of a job failed again');
        observer?.settledLeftOut(step.name);
        return { done, more: true };
      }
    }
    if (jobIds.length < limit) cursors.delete(step.name);
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

/** Does nothing if another replica ran the step. If the job is gone, it only deletes the row. */
async function settle<J extends EndableJob, S extends SettledJob>(
  database: Database,
  payload: PayloadEnds<J, S>,
  step: SettledStep<S>,
  jobId: string,
): Promise<void> {
  const job = await query(database, db => payload.read(database, db, jobId));
  await transact(database, async tx => {
    if (job !== undefined) await takeAccount(database, tx, job.accountId);
    const rows = tx.deleteFrom('unsettled_jobs').where('package', '=', step.name);
    const isMine = await matchesOne(rows.where('job_id', '=', jobId));
    if (!isMine || job === undefined) return;
    // An ended job does not change in the fields that the step reads.
    const { failure } = job;
    const ended = { succeeded: failure === null, retryable: failure?.retryable ?? false };
    await step.settled(database, tx, settledBy(payload, job, ended));
  });
}
