/**
 * Writes a claimed job's outcome. Every write checks the claim's fence; a refused write means that
 * the lease is lost.
 */

import type { MatteResult } from '@matting/nodes/attempt-outcome.ts';
import { describeSpan, traced } from '@matting/program/tracing/active-span.ts';
import { settledWithin } from '@matting/program/waiting.ts';
import { timesByStage } from '@matting/proto/contract/stages.ts';
import type { RunEnd } from '@matting/queue/dispatch-core.ts';
import { HeldJob, type HeldQueue } from '@matting/queue/held-job.ts';
import type { JobFailure } from '@matting/queue/job.ts';
import type { LeaseTiming } from '@matting/queue/lease-rules.ts';
import { type BlobStore, isStorageFull, writeBlob } from '@matting/storage/blob-store.ts';
import type { Logger } from 'pino';
import { matteBlob, thumbnailBlob } from '../jobs/blob-names.ts';
import type { StoredMatte } from '../jobs/job-family.ts';
import type { JobResult, StageTimings } from '../jobs/job-outcome.ts';
import type { JobInput } from '../jobs/job-request.ts';
import type { Claimed, OpenJob, Queue } from '../queue/queue.ts';
import type { JobObserver } from './job-observer.ts';
import type { ResultBlob } from './result-blob.ts';

export interface ClaimedJobDependencies {
  readonly queue: HeldQueue<OpenJob> &
    Pick<Queue, 'succeed' | 'fail' | 'inputStored' | 'backgroundStored'>;
  referencedBlobs(blobs: readonly string[]): Promise<ReadonlySet<string>>;
  readonly blobs: Pick<BlobStore, 'createWriter' | 'remove'>;
  readonly events: { jobFinal(jobId: string): void; notificationDue(): void };
  readonly observer: Pick<JobObserver, 'jobEnded' | 'leaseLost'>;
  readonly models?: { noteJob(name: string, ms: number): void };
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly resultTtlMs: number;
  readonly resultTokens: { make(jobId: string): Pick<JobResult, 'token' | 'sealedToken'> };
  readonly leaseTiming?: LeaseTiming | undefined;
}

export type Ending =
  | {
      readonly kind: 'succeeded';
      readonly result: MatteResult;
      readonly stored: ResultBlob;
      readonly nodeId: string;
      readonly waitMs: number;
    }
  | { readonly kind: 'failed'; readonly failure: JobFailure }
  | { readonly kind: 'attempt-lost'; readonly withProcess: boolean }
  | { readonly kind: 'given-back'; readonly storageFull?: boolean };

export class ClaimedJob extends HeldJob<OpenJob> {
  readonly #dependencies: ClaimedJobDependencies;
  readonly #queue: ClaimedJobDependencies['queue'];
  /** Once the job is final, no row names these blobs, except those kept for corrections. */
  readonly #blobs = new Map<'input' | 'background' | 'hints' | 'base matte' | 'matte', string>();

  /** @param stop aborts if the replica must give the job back */
  constructor(dependencies: ClaimedJobDependencies, claimed: Claimed, stop: AbortSignal) {
    const { queue, leaseTiming, log } = dependencies;
    const { job } = claimed;
    const onRenewFailure = (err: unknown) => log.warn({ err, jobId: job.id }, 'lease not renewed');
    super(claimed, { queue, leaseTiming, stop, onRenewFailure });
    this.#dependencies = dependencies;
    this.#queue = queue;
    if (job.input !== null) this.#blobs.set('input', job.input.blob);
    if (job.background?.input) this.#blobs.set('background', job.background.input.blob);
    if (job.hintsFile !== null) this.#blobs.set('hints', job.hintsFile.blob);
    if (job.correction?.matte) this.#blobs.set('base matte', job.correction.matte.blob);
  }

  close(): void {
    this.stopRenewing();
    if (!this.leaseLost) return;
    const { observer, log } = this.#dependencies;
    observer.leaseLost();
    log.warn({ jobId: this.job.id, fence: this.claim.fence }, 'lease lost');
  }

  /** False: the lease is lost. The sweeper removes an input that no row names. */
  async inputStored(input: JobInput): Promise<boolean> {
    this.#blobs.set('input', input.blob);
    const { background, finishing } = this.job;
    const backgroundUrl = background?.input === null ? (background.url ?? undefined) : undefined;
    const options = { giveUp: this.signal, backgroundUrl, finishing };
    return await this.wrote(this.#queue.inputStored(this.claim, input, options));
  }

  async backgroundStored(background: JobInput): Promise<boolean> {
    this.#blobs.set('background', background.blob);
    return await this.wrote(this.#queue.backgroundStored(this.claim, background, this.signal));
  }

  /** Rejects while the database is away; the lease then expires. */
  end(ending: Ending): Promise<RunEnd> {
    switch (ending.kind) {
      case 'succeeded':
        return this.#tracedSuccess(ending);
      case 'failed':
        return this.#fail(ending.failure);
      case 'attempt-lost':
        return this.attemptLost(ending.withProcess);
      case 'given-back':
        return this.giveBack(ending.storageFull);
    }
  }

  #tracedSuccess(ending: Extract<Ending, { kind: 'succeeded' }>): Promise<RunEnd> {
    return traced({ name: 'store' }, async () => {
      const end = await this.#succeed(ending);
      describeSpan({ 'matting.outcome': end.kind });
      return end;
    });
  }

  async #succeed({
    result,
    stored: resultBlob,
    nodeId,
    waitMs,
  }: Extract<Ending, { kind: 'succeeded' }>): Promise<RunEnd> {
    const { resultTtlMs, log } = this.#dependencies;
    const { job, claim } = this;
    if (job.noSubject === 'fail' && result.sight?.subject === null) {
      await resultBlob.abort();
      return await this.#fail(NO_SUBJECT);
    }
    const storedFromMs = performance.now();
    const { blob } = resultBlob;
    // In parallel with the result, so the job waits only for the slower of the two.
    const thumbnail = this.#storeThumbnail(thumbnailBlob(blob), result.thumbnail);
    let matte: StoredMatte | undefined;
    try {
      await resultBlob.commit(result);
      matte = await this.#storeMatte(matteBlob(blob), result.matte);
    } catch (err) {
      log.error({ err, jobId: job.id }, 'result not stored');
      await thumbnail;
      await this.#removeResult(blob);
      return isStorageFull(err) ? this.giveBack(true) : await this.#fail(STORAGE_FAILED);
    }
    const { format, bytes, width, height, sha256, sight, models, plan } = result;
    const token = this.#dependencies.resultTokens.make(job.id);
    const file = { blob, ...token, format, bytes, width, height, sha256 };
    const stored = { ...file, sight, models, thumbnailBytes: await thumbnail };
    const storeMs = performance.now() - storedFromMs;
    const timings = roundedTimings(result.timings, { queue: waitMs, store: storeMs });
    // If this throws, a row may name the blobs, so they stay for the sweeper.
    const success = { result: stored, resultTtlMs, timings, matte };
    if (!(await this.wrote(this.#queue.succeed(claim, success, this.signal)))) {
      // A final row keeps its fence, so it names another attempt's result.
      await this.#removeResult(blob);
      return { kind: 'open' };
    }
    const { models: costs } = this.#dependencies;
    if (!job.correction) costs?.noteJob(job.model ?? plan, this.ageMs - waitMs);
    const { input, outputFormat } = job;
    const inputFields = { inputBytes: input?.bytes, inputFormat: input?.format };
    const sizes = { ...inputFields, outputFormat, resultBytes: bytes };
    return await this.#ended(undefined, { nodeId, plan, ...sizes, timings });
  }

  /** Undefined: the job takes no corrections, or the node sent no matte. */
  async #storeMatte(blob: string, bytes: Buffer | undefined): Promise<StoredMatte | undefined> {
    if (bytes === undefined || this.job.correctable === null) return undefined;
    this.#blobs.set('matte', blob);
    await writeBlob(this.#dependencies.blobs, blob, bytes);
    return { blob, bytes: bytes.length };
  }

  /** null: no thumbnail. A job never fails for its thumbnail. */
  async #storeThumbnail(blob: string, bytes: Buffer | undefined): Promise<number | null> {
    if (bytes === undefined) return null;
    const { blobs, log } = this.#dependencies;
    const failed = (err: unknown) => {
      log.warn({ err, jobId: this.job.id, blob }, 'thumbnail not stored, left to the sweeper');
      return false;
    };
    const stored = writeBlob(blobs, blob, bytes).then(() => true, failed);
    if (!(await settledWithin(stored, THUMBNAIL_MS_MAX))) failed(new Error('the storage is slow'));
    else if (await stored) return bytes.length;
    return null;
  }

  async #fail(failure: JobFailure): Promise<RunEnd> {
    const failed = await this.wrote(this.#queue.fail(this.claim, failure, this.signal));
    return failed ? await this.#ended(failure, {}) : { kind: 'open' };
  }

  async #ended(failure: JobFailure | undefined, fields: object): Promise<RunEnd> {
    const { events, observer, log } = this.#dependencies;
    const { job } = this;
    const { fence } = this.claim;
    events.jobFinal(job.id);
    if (job.callback !== null) events.notificationDue();
    const outcome = failure === undefined ? 'succeeded' : 'failed';
    const totalMs = this.ageMs;
    const mode = job.class;
    observer.jobEnded({ outcome, mode, failure, totalMs });
    const ended = { jobId: job.id, mode, outcome, fence, totalMs: Math.round(totalMs), ...fields };
    log.info(failure === undefined ? ended : { ...ended, failure }, 'job');
    for (const blob of await this.#unreferenced()) await this.#removeBlob(blob);
    return { kind: 'final' };
  }

  /** @returns the files that no other job of the family names */
  async #unreferenced(): Promise<readonly string[]> {
    const blobs = [...this.#blobs.values()];
    if (this.job.correctable === null) return blobs;
    try {
      const referenced = await this.#dependencies.referencedBlobs(blobs);
      return blobs.filter(blob => !referenced.has(blob));
    } catch (err) {
      const { log } = this.#dependencies;
      log.warn({ err, jobId: this.job.id }, 'files of a job left to the sweeper');
      return [];
    }
  }

  async #removeResult(blob: string): Promise<void> {
    await this.#removeBlob(blob);
    await this.#removeBlob(thumbnailBlob(blob));
    if (this.job.correctable !== null) await this.#removeBlob(matteBlob(blob));
  }

  async #removeBlob(name: string): Promise<void> {
    try {
      await this.#dependencies.blobs.remove(name);
    } catch (err) {
      this.#dependencies.log.warn({ err, blob: name }, 'blob not removed, left to the sweeper');
    }
  }
}

const THUMBNAIL_MS_MAX = 3000;

const NO_SUBJECT: JobFailure = {
  code: 'NO_SUBJECT',
  detail: 'No subject was found in the image.',
  retryable: false,
};

export const STORAGE_FAILED: JobFailure = {
  code: 'PROCESSING_FAILED',
  detail: 'The storage failed while the service processed the image.',
  retryable: true,
};

export const STORAGE_FULL = 'The storage of the service is full.';

/** Milliseconds to the tenth: `queue`, then the node's stages in their order, then `store`. */
function roundedTimings(
  node: MatteResult['timings'],
  own: { readonly queue: number; readonly store: number },
): StageTimings {
  const nodeTimes = node === undefined ? [] : timesByStage(node);
  const times = [['queue', own.queue] as const, ...nodeTimes, ['store', own.store] as const];
  return Object.fromEntries(times.map(([stage, ms]) => [stage, Math.round(ms * 10) / 10]));
}
