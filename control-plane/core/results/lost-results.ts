/**
 * What it means if a result's file is not found:
 *
 * | the row, read again | the file    | the storage     | then                |
 * |---------------------|-------------|-----------------|---------------------|
 * | expired, or gone    | -           | -               | RESULT_EXPIRED      |
 * | its link is valid   | there again | -               | it is read again    |
 * | its link is valid   | gone        | fails its check | SERVICE_UNAVAILABLE |
 * | its link is valid   | gone        | works           | RESULT_LOST         |
 */

import { ContractError } from '@matting/proto/contract/errors.ts';
import { publicState } from '@matting/queue/job.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import type { Logger } from 'pino';
import type { JobStore } from '../jobs/job-store.ts';

export const EXPIRED_LINK =
  'The result of this link has expired, or its job was deleted. Submit the image again under another Idempotency-Key.';

export interface LossObserver {
  resultLost(): void;
}

interface LostResultsDependencies {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly blobs: Pick<BlobStore, 'stat' | 'check'>;
  readonly observer: LossObserver;
  readonly log: Pick<Logger, 'error'>;
}

export class LostResults {
  readonly #dependencies: LostResultsDependencies;

  constructor(dependencies: LostResultsDependencies) {
    this.#dependencies = dependencies;
  }

  /** Undefined: the file is there after all. @throws ContractError SERVICE_UNAVAILABLE */
  async refusal(jobId: string): Promise<ContractError | undefined> {
    const { jobs, blobs, observer, log } = this.#dependencies;
    const job = await jobs.find(jobId);
    const blob = job?.result?.blob;
    if (job === undefined || blob === undefined || publicState(job) !== 'succeeded') {
      return new ContractError('RESULT_EXPIRED', EXPIRED_LINK);
    }
    if ((await blobs.stat(blob)) !== undefined) return undefined;
    await blobs.check();
    observer.resultLost();
    log.error({ jobId, accountId: job.accountId, blob }, 'a result is lost');
    return new ContractError(
      'RESULT_LOST',
      'The file of this result is lost, and the operator knows. Submit the image again under another Idempotency-Key.',
    );
  }
}
