import type { Database } from '@matting/database/database.ts';
import { batchReading, type JobGroups, type ManyJobs } from './batch.ts';
import { type BatchNotices, batchProgress } from './batch-progress.ts';
import { batchSubmission } from './batch-submission.ts';
import { batchCancellation } from './cancel-batches.ts';
import { repeatableBatches } from './submit-again.ts';

export type BatchStores = ReturnType<typeof createBatchStores>;

export function createBatchStores(
  database: Database,
  groups: JobGroups,
  {
    manyJobs,
    ...notices
  }: BatchNotices & { readonly manyJobs: Pick<ManyJobs, 'keyConflict' | 'noCredit'> },
) {
  return {
    ...batchReading(database, groups),
    ...batchSubmission(database, groups, manyJobs),
    ...batchProgress(database, groups, notices),
    ...batchCancellation(database, groups),
    ...repeatableBatches(database, groups),
  };
}
