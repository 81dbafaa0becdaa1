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
 * A disk that is not mounted, a bucket that was emptied or a prefix that was changed must not make
 * a loss of every result that somebody asks for: what the operator can undo stays retryable, and is
 * told as one incident. Where the files are gone for good he says so (`credits repay-lost`).
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { ContractError } from '#contract/errors.ts';
import { publicState } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { SweepStep } from '../retention/sweep.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import {
  type LiveResult,
  LOSS_FINDERS,
  type LossFinder,
  type LostResultStore,
} from './lost-result-store.ts';

export { LOSS_FINDERS, type LossFinder };

/** Results that are looked at beside one that is gone: as many before it as behind. */
const NEIGHBOURS_EACH_WAY = 4;
/** After most of them were gone, so long no other result is judged. */
const SUSPECT_MS = 10_000;
/** Retry-After while that is so. */
const RETRY_AFTER_S = 60;

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
  /** Milliseconds of a clock that never goes back. */
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

  /**
   * Why there was no file. A loss is on record when this resolves; who finds it first logs and
   * counts it.
   * @throws ContractError SERVICE_UNAVAILABLE: the storage or the database does not say
   */
  async judge(jobId: string, by: LossFinder): Promise<LossVerdict> {
    const { jobs, lostResults, blobs } = this.#dependencies;
    const job = await jobs.find(jobId);
    const result = job?.result ?? null;
    if (job === undefined || result === null || publicState(job) !== 'succeeded') return 'expired';
    if ((await blobs.stat(result.blob)) !== undefined) return 'there';
    const known = await lostResults.known([jobId]);
    if (known.has(jobId)) return 'lost';
    const { accountId, expiresAtMs } = job;
    const { blob } = result;
    const gone = { jobId, accountId, blob, expiresAtMs: expiresAtMs ?? 0 };
    if (await this.#isStorage(gone)) return 'storage';
    await this.#record(gone, by);
    return 'lost';
  }

  /** What the reader is told; undefined: the file is there after all. @throws as `judge` */
  async refusal(jobId: string, by: LossFinder): Promise<ContractError | undefined> {
    const verdict = await this.judge(jobId, by);
    switch (verdict) {
      case 'there':
        return undefined;
      case 'expired':
        return new ContractError('RESULT_EXPIRED', 'this result link has expired');
      case 'lost':
        return new ContractError(
          'RESULT_LOST',
          'the file of this result is lost; the operator has been told',
        );
      case 'storage':
        return new ContractError(
          'SERVICE_UNAVAILABLE',
          'the storage does not have its results at the moment',
          { retryAfterS: RETRY_AFTER_S },
        );
    }
  }

  /** Whether most results beside that one are gone too: then it is the storage, and no loss. */
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

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
/** Results of a page, and questions to the storage a second: 50 are 4 million a day. */
const PAGE_MAX = 10;
const RATE_MAX = 50;
/** What ends so soon is not looked at: the sweeper may remove it meanwhile. */
const AHEAD_MS = 60_000;

interface ResultLookDependencies {
  readonly lostResults: Pick<LostResultStore, 'live' | 'dueLook' | 'saveLook'>;
  readonly losses: Pick<LostResults, 'judge'>;
  readonly blobs: Pick<BlobStore, 'stat'>;
  /** Resolves after so many ms. */
  readonly rest?: (ms: number) => Promise<unknown>;
}

/**
 * The daily look: whether every result whose link is good still has its file. It is a step of the
 * sweeper, so one replica at a time does it, and its place is kept. It reads no file: it takes a
 * page of rows, asks the storage about each, and rests, so that it asks RATE_MAX times a second at
 * most. Where most of what is beside a result is gone too it ends, and comes again in an hour.
 */
export function resultLookStep({
  lostResults,
  losses,
  blobs,
  rest = delay,
}: ResultLookDependencies): SweepStep {
  return {
    name: 'look over results',
    async page(size) {
      const after = await lostResults.dueLook();
      if (after === undefined) return { done: 0, more: false };
      const limit = Math.min(size, PAGE_MAX);
      const page = await lostResults.live(after, AHEAD_MS, limit);
      let lost = 0;
      for (const { jobId, blob } of page) {
        if ((await blobs.stat(blob)) !== undefined) continue;
        const verdict = await losses.judge(jobId, 'look');
        if (verdict === 'storage') {
          await lostResults.saveLook({ inMs: HOUR_MS });
          return { done: lost, more: false };
        }
        if (verdict === 'lost') lost += 1;
      }
      const last = page.at(-1);
      const more = last !== undefined && page.length === limit;
      await lostResults.saveLook(
        more ? { after: { atMs: last.expiresAtMs, id: last.jobId } } : { inMs: DAY_MS },
      );
      if (more) await rest((page.length / RATE_MAX) * 1000);
      return { done: lost, more };
    },
  };
}
