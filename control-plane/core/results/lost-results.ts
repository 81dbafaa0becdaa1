/**
 * A result whose file is not where it should be, and what that means. Three things look alike, and
 * only one of them is a loss:
 *
 * | the row, read again | the file    | the storage              | then                            |
 * |---------------------|-------------|--------------------------|---------------------------------|
 * | expired, or gone    | -           | -                        | RESULT_EXPIRED                  |
 * | its link is good    | there again | -                        | it is read again                |
 * | its link is good    | gone        | lacks the newest result  | SERVICE_UNAVAILABLE: results    |
 * |                     |             | too, or fails its check  | are elsewhere, or many are gone |
 * | its link is good    | gone        | has the newest result    | RESULT_LOST, and its row        |
 *
 * A disk that is not mounted or a prefix that was changed must not make a loss of every result:
 * what the operator can undo stays retryable, and is logged as one incident. If the files are gone
 * for good, the operator runs `credits repay-lost --all-missing`, and adds `--even-most` if the
 * newest is gone: the command, too, may look at another storage than the service.
 */

import { randomUUID } from 'node:crypto';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import type { Logger } from 'pino';
import { publicState } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { LiveResult, LossFinder, LostResultStore } from './lost-result-store.ts';

/** If the newest result was gone, no other result is judged for so long. */
const SUSPECT_MS = 10_000;
const RETRY_AFTER_S = 60;

export const EXPIRED_LINK =
  'The result of this link has expired, or its job was deleted. Submit the image again under another Idempotency-Key.';

export interface LossObserver {
  resultLost(by: LossFinder): void;
  /** The newest result is gone too: no result counts as lost. */
  resultsMissing(): void;
}

interface LostResultsDependencies {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly lostResults: Pick<LostResultStore, 'record' | 'known' | 'newest'>;
  readonly blobs: Pick<BlobStore, 'stat' | 'check'>;
  readonly observer: LossObserver;
  readonly log: Pick<Logger, 'error'>;
  readonly now?: () => number;
}

type LossVerdict = 'there' | 'expired' | 'lost' | 'storage';

export class LostResults {
  readonly #dependencies: LostResultsDependencies;
  readonly #now: () => number;
  #suspectUntilMs = Number.NEGATIVE_INFINITY;

  constructor(dependencies: LostResultsDependencies) {
    this.#dependencies = dependencies;
    this.#now = dependencies.now ?? (() => performance.now());
  }

  /** A loss is on record when this resolves. @throws ContractError SERVICE_UNAVAILABLE */
  async judge(jobId: string, by: LossFinder): Promise<LossVerdict> {
    const { jobs, lostResults, blobs } = this.#dependencies;
    const job = await jobs.find(jobId);
    const result = job?.result ?? null;
    if (job === undefined || result === null || publicState(job) !== 'succeeded') return 'expired';
    if ((await blobs.stat(result.blob)) !== undefined) return 'there';
    const known = await lostResults.known([jobId]);
    if (known.has(jobId)) return 'lost';
    if (await this.#lacksNewest(jobId)) return 'storage';
    await blobs.check();
    await this.#record({ jobId, accountId: job.accountId, blob: result.blob }, by);
    return 'lost';
  }

  /** Undefined: the file is there after all. @throws as `judge` */
  async refusal(jobId: string, by: LossFinder): Promise<ContractError | undefined> {
    const verdict = await this.judge(jobId, by);
    switch (verdict) {
      case 'there':
        return undefined;
      case 'expired':
        return new ContractError('RESULT_EXPIRED', EXPIRED_LINK);
      case 'lost':
        return new ContractError(
          'RESULT_LOST',
          'The file of this result is lost, and the operator knows. Submit the image again under another Idempotency-Key.',
        );
      case 'storage': {
        const detail = 'The storage does not have its results at the moment.';
        return new ContractError('SERVICE_UNAVAILABLE', detail, { retryAfterS: RETRY_AFTER_S });
      }
    }
  }

  async #lacksNewest(jobId: string): Promise<boolean> {
    if (this.#now() < this.#suspectUntilMs) return true;
    const { lostResults, blobs, observer, log } = this.#dependencies;
    const newest = await lostResults.newest(jobId);
    if (newest === undefined || (await blobs.stat(newest)) !== undefined) return false;
    this.#suspectUntilMs = this.#now() + SUSPECT_MS;
    observer.resultsMissing();
    log.error({ jobId, blob: newest }, 'results are missing from the storage');
    return true;
  }

  async #record(
    { jobId, accountId, blob }: Omit<LiveResult, 'expiresAtMs'>,
    by: LossFinder,
  ): Promise<void> {
    const { lostResults, observer, log } = this.#dependencies;
    const isNew = await lostResults.record({ jobId, accountId }, by, randomUUID());
    if (!isNew) return;
    observer.resultLost(by);
    log.error({ jobId, accountId, blob, foundBy: by }, 'a result is lost');
  }
}
