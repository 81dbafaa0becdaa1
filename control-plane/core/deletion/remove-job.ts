/**
 * A caller's DELETE changes a job in one transaction:
 *
 * | job             | change                                                                      |
 * |-----------------|-----------------------------------------------------------------------------|
 * | queued          | fails with JOB_CANCELLED. The fence rises in the same conditional update,   |
 * |                 | so that the lease's holder can neither admit nor finish the job             |
 * | processing      | none                                                                        |
 * | succeeded       | expires; the charge stays. Kept files go, and open corrections fail         |
 * |                 | (family-deletion.ts)                                                        |
 * | failed, expired | loses its reference, as the queued and the succeeded job do                 |
 *
 * The row names the result's blob until the caller or the sweeper has erased it.
 */
import { takeAccount } from '@matting/accounts/account-store.ts';
import { type Database, OvertakenError, type Schema } from '@matting/database/database.ts';
import type { End } from '@matting/queue/end-job.ts';
import { type JobFailure, type JobStatus, OPEN_STATES, publicState } from '@matting/queue/job.ts';
import type { Transaction } from 'kysely';
import { thumbnailBlob } from '../jobs/blob-names.ts';
import type { Job } from '../jobs/job.ts';
import { readJob } from '../jobs/job-reading.ts';
import type { MattingEnds } from '../queue/matting-ends.ts';
import type { Deletion, EndedFamily, Queue } from '../queue/queue.ts';
import type { ResultJob } from '../results/result-download.ts';
import { endFamily, filesOfOpen, type JobFiles } from './family-deletion.ts';

export const CANCELLED: JobFailure = {
  code: 'JOB_CANCELLED',
  detail: 'The job was cancelled before a node took it. Nothing is charged.',
  retryable: false,
};

interface Removal {
  readonly ends: Pick<MattingEnds, 'cancelling' | 'ending'>;
  readonly end: (job: Job, how: End) => Promise<void>;
  readonly keepReference: boolean;
}

export function jobDeletion(
  database: Database,
  ends: Pick<MattingEnds, 'cancelling' | 'ending'>,
): Pick<Queue, 'remove'> {
  return {
    remove: (jobId, apiKeyId, { keepReference = false } = {}) =>
      ends.ending(jobId, async (tx, end) => {
        let job = await readJob(database, tx, jobId);
        if (job?.apiKeyId !== apiKeyId) return undefined;
        if (job.kept !== null) {
          // From here on no correction of it is made or ends.
          await takeAccount(database, tx, job.accountId);
          job = (await readJob(database, tx, jobId)) ?? job;
        }
        return removeJob(database, tx, job, { ends, end, keepReference });
      }),
  };
}

async function removeJob(
  database: Database,
  tx: Transaction<Schema>,
  job: Job,
  removal: Removal,
): Promise<Deletion> {
  const { id } = job;
  const kind = kindOf(job);
  if (kind === 'processing') return { kind, job, blobs: [] };
  if (kind === 'cancelled') await removal.end(job, removal.ends.cancelling(job, CANCELLED));
  if (kind === 'deleted') {
    const { numUpdatedRows } = await tx
      .updateTable('jobs')
      .set({ deleted_at: database.nowMs, expires_at: database.nowMs, look_until: null })
      .set({ result_blob_expires_at: job.result === null ? null : database.nowMs })
      .where('id', '=', id)
      .where('deleted_at', 'is', null)
      .where('result_blob', job.result === null ? 'is' : '=', job.result?.blob ?? null)
      .executeTakeFirstOrThrow();
    if (numUpdatedRows !== 1n) throw new OvertakenError(`job ${id} was deleted or swept meanwhile`);
  }
  const family = await familyOf(database, tx, { kind, job }, removal);
  // After the end, since its notification has the reference.
  if (job.reference !== null && !removal.keepReference) {
    await tx.updateTable('jobs').set({ reference: null }).where('id', '=', id).execute();
  }
  const changed = await readJob(database, tx, id);
  if (changed === undefined) throw new Error(`job ${id} is gone before its commit`);
  return { kind, job: changed, blobs: blobsOf(kind, job), ...(family && { family }) };
}

async function familyOf(
  database: Database,
  tx: Transaction<Schema>,
  { kind, job }: Pick<Deletion, 'kind' | 'job'>,
  { ends, end }: Removal,
): Promise<EndedFamily | undefined> {
  if (kind === 'cancelled' && job.correction !== null) {
    return { ended: [], shared: filesOfOpen(job) };
  }
  if (kind !== 'deleted' || job.kept === null) return undefined;
  return endFamily(database, tx, job, (correction, failure) =>
    end(correction, ends.cancelling(correction, failure, OPEN_STATES)),
  );
}

function kindOf(job: JobStatus): Deletion['kind'] {
  const status = publicState(job);
  if (status === 'processing') return 'processing';
  if (status === 'queued') return 'cancelled';
  return status === 'succeeded' ? 'deleted' : 'unchanged';
}

/** Includes files that an earlier deletion left. */
function blobsOf(kind: Deletion['kind'], job: ResultJob & JobFiles): string[] {
  const { result, deletedAtMs, correction } = job;
  if (kind === 'cancelled') return correction === null ? filesOfOpen(job) : [];
  if (result === null || (kind !== 'deleted' && deletedAtMs === null)) return [];
  return result.thumbnailBytes === null ? [result.blob] : [result.blob, thumbnailBlob(result.blob)];
}
