/** Without the database every method rejects with SERVICE_UNAVAILABLE. */

import type { Database } from '@matting/database/database.ts';
import { callerJobs } from './caller-jobs.ts';
import { jobActivity } from './job-activity.ts';
import { jobLists } from './job-lists.ts';
import { jobReading } from './job-reading.ts';
import { jobLooks } from './looks.ts';

export type JobStore = ReturnType<typeof createJobStore>;

export function createJobStore(database: Database) {
  return {
    ...jobReading(database),
    ...jobLists(database),
    ...jobActivity(database),
    ...jobLooks(database),
    ...callerJobs(database),
  };
}
