/** What an operator does with jobs, whoever owns them: looks at many, and frees one from its holder. */
import { isFinal, type Job } from '../../domain/job.ts';
import type { Database } from '../database/connect.ts';
import { query, readBack } from '../database/transact.ts';
import { listJobs } from './job-listing.ts';
import { readJob } from './job-queries.ts';
import type { JobFilter, LeaseEnding, ListedJob } from './job-store.ts';

/** A job changes hands a few times in its life; one that does so faster than this is left alone. */
const ROUNDS_MAX = 10;

export class JobOperations {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  list(filter: JobFilter): Promise<ListedJob[]> {
    return listJobs(this.#database, filter);
  }

  async endLease(jobId: string): Promise<LeaseEnding> {
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      const job = await readBack(this.#database, db => readJob(this.#database, db, jobId));
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
}
