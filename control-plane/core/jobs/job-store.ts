/**
 * Jobs, their leases and the money that their submission moves. What ends them is beside it:
 * job-completion.ts. While the database is away every method rejects with SERVICE_UNAVAILABLE.
 */

import type { Database } from '../../database/database.ts';
import { jobLeases } from '../attempts/job-lease.ts';
import { jobQueue } from '../dispatch/job-queue.ts';
import { jobReading } from './job-reading.ts';
import { jobRetention } from './job-retention.ts';
import { jobSubmission } from './job-submission.ts';

export type JobStore = ReturnType<typeof createJobStore>;

export function createJobStore(database: Database) {
  return {
    ...jobReading(database),
    ...jobSubmission(database),
    ...jobQueue(database),
    ...jobLeases(database),
    ...jobRetention(database),
  };
}
