/**
 * A result whose file is not where it should be, and what that means. Three things look alike, and
 * only one of them is a loss:
 *
 * | the row, read again   | the file          | results beside it    | then                        |
 * |-----------------------|-------------------|----------------------|-----------------------------|
 * | expired, or gone      | -                 | -                    | RESULT_EXPIRED              |
 * | its link is good      | there again       | -                    | it is read again            |
 * | its link is good      | gone              | most are gone too    | SERVICE_UNAVAILABLE: this   |
 * |                       |                   |                      | is not the storage they are |
 * |                       |                   |                      | in, or it lost many at once |
 * | its link is good      | gone              | most are there       | RESULT_LOST, and its row    |
 *
 * A disk that is not mounted or a prefix that was changed must not make a loss of every result:
 * what the operator can undo stays retryable, and is told as one incident. Where the files are gone
 * for good he says so (`credits repay-lost --all-missing`), and once more where most are gone
 * (`--even-most`): the command, too, may look at another storage than the service.
 */

import { randomUUID } from 'node:crypto';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Logger } from 'pino';
import { publicState } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { LiveResult, LossFinder, LostResultStore } from './lost-result-store.ts';

/** Results looked at before a missing one, and as many behind it. */
const NEIGHBOURS_EACH_WAY = 4;
/** If most of them were gone, no other result is judged for so long. */
const SUSPECT_MS = 10_000;
const RETRY_AFTER_S = 60;

export const EXPIRED_LINK =
  'The result of this link has expired, or its job was deleted. Submit the image again under another Idempotency-Key.';

export interface LossObserver {
  resultLost(by: LossFinder): void;
  /** Many are gone at once: none of them counts as lost. */
  resultsMissing(): void;
}

interface LostResultsDependencies {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly lostResults: Pick<LostResultStore, 'record' | 'known' | 'neighbours'>;
  readonly blobs: Pick<BlobStore, 'stat'>;
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
    const { accountId, expiresAtMs } = job;
    const gone = { jobId, accountId, blob: result.blob, expiresAtMs: expiresAtMs ?? 0 };
    if (await this.#isStorage(gone)) return 'storage';
    await this.#record(gone, by);
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

  async #isStorage(gone: LiveResult): Promise<boolean> {
    if (this.#now() < this.#suspectUntilMs) return true;
    const { lostResults, blobs, observer, log } = this.#dependencies;
    const beside = await lostResults.neighbours(gone, NEIGHBOURS_EACH_WAY);
    const known = await lostResults.known(beside.map(({ jobId }) => jobId));
    const asked = beside.filter(({ jobId }) => !known.has(jobId));
    const found = await Promise.all(asked.map(({ blob }) => blobs.stat(blob)));
    const missing = found.filter(file => file === undefined).length;
    if (missing * 2 <= asked.length) return false;
    this.#suspectUntilMs = this.#now() + SUSPECT_MS;
    observer.resultsMissing();
    const fields = { jobId: gone.jobId, looked: asked.length, gone: missing };
    log.error(fields, 'results are missing from the storage');
    return true;
  }

  async #record({ jobId, accountId, blob }: LiveResult, by: LossFinder): Promise<void> {
    const { lostResults, observer, log } = this.#dependencies;
    const isNew = await lostResults.record({ jobId, accountId }, by, randomUUID());
    if (!isNew) return;
    observer.resultLost(by);
    log.error({ jobId, accountId, blob, foundBy: by }, 'a result is lost');
  }
}
