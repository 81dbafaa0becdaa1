/** What an operator does with jobs, whoever owns them: looks at many, and frees one from its holder. */
import { isFinal } from '../../domain/job.ts';
import type { Database } from '../database/connect.ts';
import { OvertakenError, readBack } from '../database/transact.ts';
import { listJobs } from './job-listing.ts';
import { readJob } from './job-queries.ts';
import type { JobFilter, LeaseEnding, ListedJob } from './job-store.ts';

export class JobOperations {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  list(filter: JobFilter): Promise<ListedJob[]> {
    return listJobs(this.#database, filter);
  }

  endLease(jobId: string): Promise<LeaseEnding> {
    return readBack(this.#database, async db => {
      const job = await readJob(this.#database, db, jobId);
      if (job === undefined) return { kind: 'unknown' };
      if (isFinal(job)) return { kind: 'final', state: job.state };
      if (job.lease === null) return { kind: 'not-leased' };
      const { holder } = job.lease;
      const { numUpdatedRows } = await db
        .updateTable('jobs')
        .set({ lease_holder: null, lease_expires_at: null })
        .where('id', '=', job.id)
        .where('fence', '=', job.fence)
        .where('lease_holder', '=', holder)
        .executeTakeFirstOrThrow();
      if (numUpdatedRows !== 1n) throw new OvertakenError(`job ${jobId} changed hands`);
      return { kind: 'ended', holder };
    });
  }
}
