/**
 * A caller's DELETE changes a job in one transaction:
 *
 * | the job         | then                                                                        |
 * |-----------------|-----------------------------------------------------------------------------|
 * | queued          | failed with JOB_CANCELLED; its credit returned, its notification written.   |
 * |                 | One conditional update decides against a node's admission: the fence moves, |
 * |                 | so whoever holds its lease can neither admit nor finish it                  |
 * | processing      | unchanged                                                                   |
 * | succeeded       | expired: its link is no good from now on. The charge stays                  |
 * | failed, expired | it stays as it is                                                           |
 *
 * A succeeded job loses what it kept for corrections, and its open corrections fail
 * (family-deletion.ts). Every job loses its reference, unless it is processing. The row names the
 * result's blob until the caller of this, or the sweeper, has erased it.
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
          // No correction of it is made or ends from here on.
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
  work: Removal,
): Promise<Deletion> {
  const { id } = job;
  const kind = kindOf(job);
  if (kind === 'processing') return { kind, job, blobs: [] };
  if (kind === 'cancelled') await work.end(job, work.ends.cancelling(job, CANCELLED));
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
  const family = await familyOf(database, tx, { kind, job }, work);
  // A notification was rendered with it.
  if (job.reference !== null && !work.keepReference) {
    await tx.updateTable('jobs').set({ reference: null }).where('id', '=', id).execute();
  }
  const after = await readJob(database, tx, id);
  if (after === undefined) throw new Error(`job ${id} is gone before its commit`);
  return { kind, job: after, blobs: blobsOf(kind, job), ...(family && { family }) };
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

/** Also what an earlier deletion left. */
function blobsOf(kind: Deletion['kind'], job: ResultJob & JobFiles): string[] {
  const { result, deletedAtMs, correction } = job;
  if (kind === 'cancelled') return correction === null ? filesOfOpen(job) : [];
  if (result === null || (kind !== 'deleted' && deletedAtMs === null)) return [];
  return result.thumbnailBytes === null ? [result.blob] : [result.blob, thumbnailBlob(result.blob)];
}
