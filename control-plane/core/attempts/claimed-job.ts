/**
 * A claim kept alive while work goes on under it. Its signal aborts at once when the lease is lost
 * (another replica claimed the job) or the work is to stop; everything done under the claim takes
 * that signal.
 *
 * A renewal that fails because the database does not answer loses nothing by itself: holder and
 * fence decide, and a holder that was not replaced may renew and finish when the database is back.
 */

import type { Logger } from 'pino';
import { timesByStage } from '#contract/stages.ts';
import { describeSpan, traced } from '#program/tracing/active-span.ts';
import type { RunEnd } from '../dispatch/dispatch-core.ts';
import type { Job, JobFailure, JobInput, JobResult, StageTimings } from '../jobs/job.ts';
import type { JobCompletion } from '../jobs/job-completion.ts';
import type { JobEvents } from '../jobs/job-events.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { MatteResult } from '../nodes/matte-exchange.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { Claim } from './job-lease.ts';
import type { JobObserver } from './job-observer.ts';
import { failureDue, LEASE_TIMING, type LeaseTiming } from './lease.ts';
import type { ResultBlob } from './result-sink.ts';

type LeaseEnd = 'lost' | 'stopping';

interface HeldLeaseOptions {
  readonly jobs: Pick<JobStore, 'renew'>;
  readonly claim: Claim;
  /** LEASE_TIMING where absent. */
  readonly timing?: LeaseTiming | undefined;
  /** Aborts: the work is to stop and the job to be given back. */
  readonly stop: AbortSignal;
  /** A renewal the database did not answer. */
  readonly onRenewFailure: (error: unknown) => void;
}

export class HeldLease {
  readonly claim: Claim;
  readonly #options: HeldLeaseOptions;
  readonly #ended = new AbortController();
  readonly #onStop = () => this.#end('stopping');
  readonly #timing: LeaseTiming;
  readonly #timer: NodeJS.Timeout;
  #ending: LeaseEnd | undefined;
  #renewing = false;

  constructor(options: HeldLeaseOptions) {
    this.#options = options;
    this.claim = options.claim;
    this.#timing = options.timing ?? LEASE_TIMING;
    this.#timer = setInterval(() => void this.#renew(), this.#timing.renewMs);
    if (options.stop.aborted) this.#onStop();
    else options.stop.addEventListener('abort', this.#onStop, { once: true });
  }

  /** Aborts when the work must end. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Why the signal aborted; undefined while it has not. */
  get end(): LeaseEnd | undefined {
    return this.#ending;
  }

  /** A write under the claim was refused: another replica has the job. */
  lose(): void {
    this.#end('lost');
  }

  /** The work is over. The lease itself is the store's to end. */
  stopRenewing(): void {
    clearInterval(this.#timer);
    this.#options.stop.removeEventListener('abort', this.#onStop);
  }

  #end(end: LeaseEnd): void {
    // A loss replaces stopping: a lost lease must not be given back.
    if (this.#ending === undefined || end === 'lost') this.#ending = end;
    this.#ended.abort();
  }

  async #renew(): Promise<void> {
    if (this.#renewing) return;
    this.#renewing = true;
    try {
      if (!(await this.#options.jobs.renew(this.claim, this.#timing.leaseMs))) this.lose();
    } catch (error) {
      this.#options.onRenewFailure(error);
    } finally {
      this.#renewing = false;
    }
  }
}

/*
 * A job under a claim: its lease, kept alive until `close`, and what is written under it. It knows
 * no nodes; what an attempt means for the job is the run's to say (job-run.ts).
 *
 * | ending       | what is written                                                            |
 * |--------------|----------------------------------------------------------------------------|
 * | succeeded    | the result committed, then result and charge in one transaction            |
 * | failed       | the failure and the release of the credit in one transaction               |
 * | attempt-lost | counted and given back; core/attempts/lease.ts says when it is enough             |
 * | given-back   | the lease ends and nothing is counted; nothing where the lease is lost     |
 *
 * Every write carries the fence, and one that is refused loses the lease. It carries the lease's
 * signal too: it is repeated while the database is away, until the lease is lost or all stops.
 */

export interface ClaimedJobDependencies {
  readonly jobs: JobStore & JobCompletion;
  readonly blobs: Pick<BlobStore, 'remove'>;
  readonly events: Pick<JobEvents, 'jobFinal' | 'notificationDue'>;
  readonly observer: Pick<JobObserver, 'jobEnded' | 'leaseLost'>;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly resultTtlMs: number;
  /** Of each result's link, as its row has it. */
  readonly resultTokens: { make(jobId: string): Pick<JobResult, 'token' | 'sealedToken'> };
  /** LEASE_TIMING where absent. */
  readonly leaseTiming?: LeaseTiming | undefined;
}

export type Ending =
  | {
      readonly kind: 'succeeded';
      readonly result: MatteResult;
      readonly stored: ResultBlob;
      readonly nodeId: string;
      /** From submission to Admitted. */
      readonly waitMs: number;
    }
  | { readonly kind: 'failed'; readonly failure: JobFailure }
  | { readonly kind: 'attempt-lost'; readonly withProcess: boolean }
  | { readonly kind: 'given-back' };

export class ClaimedJob {
  /** As the claim read it. */
  readonly job: Job;
  readonly claim: Claim;
  readonly #dependencies: ClaimedJobDependencies;
  readonly #lease: HeldLease;
  readonly #claimedAtMs = performance.now();
  /** What no row names once the job is final: the input, the background. */
  readonly #blobs = new Map<'input' | 'background', string>();

  /** @param stop aborts: the job is to be given back */
  constructor(
    dependencies: ClaimedJobDependencies,
    { job, claim }: { readonly job: Job; readonly claim: Claim },
    stop: AbortSignal,
  ) {
    const { jobs, leaseTiming, log } = dependencies;
    this.#dependencies = dependencies;
    this.job = job;
    this.claim = claim;
    if (job.input !== null) this.#blobs.set('input', job.input.blob);
    if (job.background?.input) this.#blobs.set('background', job.background.input.blob);
    this.#lease = new HeldLease({
      jobs,
      claim,
      timing: leaseTiming,
      stop,
      onRenewFailure: err => log.warn({ err, jobId: job.id }, 'lease not renewed'),
    });
  }

  /** Aborts when the work must end: the lease is lost, or the job is to be given back. */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  get leaseLost(): boolean {
    return this.#lease.end === 'lost';
  }

  /** Since its submission: its age when it was claimed, plus what has passed here since. */
  get ageMs(): number {
    const { createdAtMs, readAtMs } = this.job;
    return readAtMs - createdAtMs + (performance.now() - this.#claimedAtMs);
  }

  /** The work is over: ends the renewals. */
  close(): void {
    this.#lease.stopRenewing();
    if (!this.leaseLost) return;
    const { observer, log } = this.#dependencies;
    observer.leaseLost();
    log.warn({ jobId: this.job.id, fence: this.claim.fence }, 'lease lost');
  }

  /**
   * False: the lease is lost. Where an earlier answer was lost the row may name this input all the
   * same, and the job's next holder reads it. An input that no row names is the sweeper's.
   */
  async inputStored(input: JobInput): Promise<boolean> {
    this.#blobs.set('input', input.blob);
    const { background, finishing } = this.job;
    const backgroundUrl = background?.input === null ? (background.url ?? undefined) : undefined;
    const options = { giveUp: this.signal, backgroundUrl, finishing };
    return await this.#stands(this.#dependencies.jobs.inputStored(this.claim, input, options));
  }

  /** As inputStored, after it. */
  async backgroundStored(background: JobInput): Promise<boolean> {
    this.#blobs.set('background', background.blob);
    const { jobs } = this.#dependencies;
    return await this.#stands(jobs.backgroundStored(this.claim, background, this.signal));
  }

  /** A node admitted it. */
  async admitted(): Promise<void> {
    await this.#stands(this.#dependencies.jobs.admitted(this.claim, this.signal));
  }

  /** Rejects where the database stays away: the lease then runs out by itself. */
  end(ending: Ending): Promise<RunEnd> {
    switch (ending.kind) {
      case 'succeeded':
        return this.#tracedSuccess(ending);
      case 'failed':
        return this.#fail(ending.failure);
      case 'attempt-lost':
        return this.#attemptLost(ending.withProcess);
      case 'given-back':
        return this.#giveBack();
    }
  }

  /** Its outcome is open where the lease was lost. */
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
    const { jobs, resultTtlMs, log } = this.#dependencies;
    const { job, claim } = this;
    const storedFromMs = performance.now();
    try {
      await resultBlob.commit(result);
    } catch (err) {
      log.error({ err, jobId: job.id }, 'result not stored');
      await this.#removeBlob(resultBlob.blob);
      return await this.#fail(STORAGE_FAILED);
    }
    const { format, bytes, width, height, sha256, sight, plan } = result;
    const { blob } = resultBlob;
    const token = this.#dependencies.resultTokens.make(job.id);
    const stored = { blob, ...token, format, bytes, width, height, sha256, sight };
    const storeMs = performance.now() - storedFromMs;
    const timings = roundedTimings(result.timings, { queue: waitMs, store: storeMs });
    // Where this throws the row may or may not name the blob, so it stays, for the sweeper.
    if (!(await this.#stands(jobs.succeed(claim, stored, resultTtlMs, timings, this.signal)))) {
      // Only a final row names a result, and a final row keeps its fence: this one names another.
      await this.#removeBlob(blob);
      return { kind: 'open' };
    }
    const { input, outputFormat } = job;
    const inputFields = { inputBytes: input?.bytes, inputFormat: input?.format };
    const sizes = { ...inputFields, outputFormat, resultBytes: bytes };
    return await this.#ended(undefined, { nodeId, plan, ...sizes, timings });
  }

  async #fail(failure: JobFailure): Promise<RunEnd> {
    const { jobs } = this.#dependencies;
    const failed = await this.#stands(jobs.fail(this.claim, failure, this.signal));
    return failed ? await this.#ended(failure, {}) : { kind: 'open' };
  }

  async #ended(failure: JobFailure | undefined, fields: object): Promise<RunEnd> {
    const { events, observer, log } = this.#dependencies;
    const { job, claim } = this;
    events.jobFinal(job.id);
    if (job.callback !== null) events.notificationDue();
    const outcome = failure === undefined ? 'succeeded' : 'failed';
    const totalMs = this.ageMs;
    const mode = job.class;
    observer.jobEnded({ outcome, mode, failure, totalMs });
    const common = { jobId: job.id, mode, outcome, fence: claim.fence };
    const total = { totalMs: Math.round(totalMs) };
    log.info(
      { ...common, ...total, ...fields, ...(failure === undefined ? {} : { failure }) },
      'job',
    );
    // No row names it now; what cannot be removed is the sweeper's.
    for (const blob of this.#blobs.values()) await this.#removeBlob(blob);
    return { kind: 'final' };
  }

  async #attemptLost(withProcess: boolean): Promise<RunEnd> {
    const { jobs } = this.#dependencies;
    const job = await this.#stands(jobs.attemptLost(this.claim, withProcess, this.signal));
    return { kind: 'open', failure: job && failureDue(job) };
  }

  async #giveBack(): Promise<RunEnd> {
    const { jobs } = this.#dependencies;
    if (!this.leaseLost) await this.#stands(jobs.release(this.claim, this.signal));
    return { kind: 'open' };
  }

  /** A write that is refused (false, undefined) means that another replica has the job. */
  async #stands<T>(write: Promise<T>): Promise<T> {
    const answer = await write;
    if (answer === false || answer === undefined) this.#lease.lose();
    return answer;
  }

  async #removeBlob(name: string): Promise<void> {
    try {
      await this.#dependencies.blobs.remove(name);
    } catch (err) {
      this.#dependencies.log.warn({ err, blob: name }, 'blob not removed, left to the sweeper');
    }
  }
}

export const STORAGE_FAILED: JobFailure = {
  code: 'PROCESSING_FAILED',
  detail: 'the storage failed while the image was processed',
  retryable: true,
};

/** The control plane's own stages around the node's. */
interface OwnTimes {
  /** From submission to the node's Admitted. */
  readonly queue: number;
  /** Making the result durable. */
  readonly store: number;
}

/** Milliseconds to the tenth: `queue`, then the node's stages in their order, then `store`. */
function roundedTimings(node: MatteResult['timings'], own: OwnTimes): StageTimings {
  const nodeTimes = node === undefined ? [] : timesByStage(node);
  const times = [['queue', own.queue] as const, ...nodeTimes, ['store', own.store] as const];
  return Object.fromEntries(times.map(([stage, ms]) => [stage, Math.round(ms * 10) / 10]));
}
