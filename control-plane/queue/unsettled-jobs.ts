/**
 * Does what steps have left to do with jobs that ended (settled-steps.ts), each row of
 * `unsettled_jobs` exactly once: the row goes in the transaction of its step. The account's row
 * comes first, as in every transaction that moves credits. A step that fails again leaves its row
 * to the next walk.
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
  const places = new Map<string, string>();
  /** A page of the step's rows, to the first that fails again. */
  async function page(step: SettledStep<S>, limit: number) {
    const jobIds = await readPage(database, step.name, places.get(step.name) ?? '', limit);
    let done = 0;
    for (const jobId of jobIds) {
      places.set(step.name, jobId);
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

/** Does nothing where another did it meanwhile. Of a job that is gone the row goes alone. */
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
    // The job is as its end showed it: nothing of that changes.
    const { failure } = job;
    const ended = { succeeded: failure === null, retryable: failure?.retryable ?? false };
    await step.settled(database, tx, settledBy(payload, job, ended));
  });
}
