/** What an operator does with jobs, whoever owns them: looks at many, and frees one from its holder. */
import { isFinal, type Job, type JobState, OPEN_STATES } from '../domain/job.ts';
import { nowPlusMs } from './clock.ts';
import type { Database } from './connect.ts';
import { readJob, readJobs, selectJobs } from './job-queries.ts';
import type { JobFilter, LeaseEnding } from './job-store.ts';
import { query } from './transact.ts';

/** A job changes hands a few times in its life; one that does so faster than this is left alone. */
const ROUNDS_MAX = 10;

export class JobOperations {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Each half along its own index: jobs_queue, jobs_finished. */
  async list(filter: JobFilter): Promise<Job[]> {
    const open = filter.states.filter(isOpen);
    const final = filter.states.filter(state => !isOpen(state));
    const jobs = open.length === 0 ? [] : await this.#listOpen(open, filter);
    const room = filter.limit - jobs.length;
    if (final.length === 0 || room === 0) return jobs;
    return [...jobs, ...(await this.#listFinal(final, filter, room))];
  }

  async endLease(jobId: string): Promise<LeaseEnding> {
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const job = await query(this.#database, db => readJob(this.#database, db, jobId));
      if (job === undefined) return { kind: 'unknown' };
      if (isFinal(job)) return { kind: 'final', state: job.state };
      if (job.lease === null) return { kind: 'not-leased' };
      if (await this.#clearLease(job, job.lease.holder)) {
        return { kind: 'ended', holder: job.lease.holder };
      }
    }
    throw new Error(`job ${jobId} changed hands ${ROUNDS_MAX} times`);
  }

  /** False: it ended, or changed hands. */
  async #clearLease(job: Job, holder: string): Promise<boolean> {
    const { numUpdatedRows } = await query(this.#database, db =>
      db
        .updateTable('jobs')
        .set({ lease_holder: null, lease_expires_at: null })
        .where('id', '=', job.id)
        .where('fence', '=', job.fence)
        .where('lease_holder', '=', holder)
        .executeTakeFirstOrThrow(),
    );
    return numUpdatedRows === 1n;
  }

  #listOpen(states: readonly JobState[], { accountId, limit }: JobFilter): Promise<Job[]> {
    return query(this.#database, db => {
      // "is not null" would keep SQLite from walking the index in order.
      let select = selectJobs(this.#database, db).where('queue_at', '>', 0);
      if (accountId !== undefined) select = select.where('account_id', '=', accountId);
      return readJobs(
        db,
        select.where('state', 'in', states).orderBy('queue_at').orderBy('id').limit(limit),
      );
    });
  }

  #listFinal(
    states: readonly JobState[],
    { accountId, endedWithinMs }: JobFilter,
    limit: number,
  ): Promise<Job[]> {
    const since = nowPlusMs(this.#database.nowMs, -endedWithinMs);
    return query(this.#database, db => {
      let select = selectJobs(this.#database, db).where('finished_at', '>', since);
      if (accountId !== undefined) select = select.where('account_id', '=', accountId);
      return readJobs(
        db,
        select.where('state', 'in', states).orderBy('finished_at', 'desc').limit(limit),
      );
    });
  }
}

function isOpen(state: JobState): boolean {
  return (OPEN_STATES as readonly JobState[]).includes(state);
}
