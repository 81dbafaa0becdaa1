/**
 * One job under one claim, from the download of its source to its end, or to giving it back. It
 * alone decides what an attempt's outcome means for the job; where there is room is the
 * dispatcher's.
 *
 * | attempt     | then                                                                        |
 * |-------------|-----------------------------------------------------------------------------|
 * | done        | result committed, then succeeded in one transaction                         |
 * | refused     | another node at once where one has room, else given back; counts nothing    |
 * | lost        | counted and given back; domain/lease.ts says when it is enough              |
 * | node-fault  | once elsewhere (the same node where there is no other), then failed         |
 * | image-fault | failed with the node's code                                                 |
 * | local-fault | failed, retryable: our storage                                              |
 * | aborted     | lease lost: nothing more; stopping: given back                              |
 *
 * No transaction is open during a download or an attempt. Every write carries the fence, and the
 * lease's signal: it is repeated while the database is away, until the lease is lost or all stops.
 */
import { randomBytes } from 'node:crypto';
import { ContractError, ERROR_CATALOGUE } from '#contract/errors.ts';
import { needsOf } from '../../domain/dispatch/dispatch-policy.ts';
import type { Job, JobFailure, JobInput } from '../../domain/job.ts';
import { failureDue } from '../../domain/lease.ts';
import { type AttemptOutcome, verdictOn } from '../../nodes/attempt-outcome.ts';
import type { Offer } from '../../nodes/node-link.ts';
import { type AttemptResult, runAttempt } from './attempt.ts';
import type { HeldLease } from './held-lease.ts';
import type { JobRunnerDependencies, JobWork, WorkEnd } from './job-runner.ts';
import { fetchSource } from './source-fetch.ts';
import { roundedTimings } from './stage-times.ts';

/** Nodes that fail in their own way under a job before the job does: one, then once elsewhere. */
const NODE_FAULTS_MAX = 2;
/** Refusals under one claim: a node that reports room and refuses must not hold the lease busy. */
const REFUSALS_MAX = 8;
/** 256 bits: the link is the capability. */
const RESULT_TOKEN_BYTES = 32;

export class ClaimedJob {
  readonly #dependencies: JobRunnerDependencies;
  readonly #work: JobWork;
  readonly #lease: HeldLease;
  /** Age of the job when it was claimed plus what has passed here since: two clocks, one sum. */
  readonly #claimedAtMs = performance.now();
  #inputBlob: string | undefined;
  #admitted = false;

  constructor(dependencies: JobRunnerDependencies, work: JobWork, lease: HeldLease) {
    this.#dependencies = dependencies;
    this.#work = work;
    this.#lease = lease;
    this.#inputBlob = work.job.input?.blob;
  }

  async run(): Promise<WorkEnd> {
    const { job, offer } = this.#work;
    try {
      const due = failureDue(job) ?? this.#work.failure;
      if (due !== undefined) return await this.#fail(due);
      const input = job.input ?? (await this.#fetch());
      if (input === undefined) return await this.#giveBack();
      if (!('blob' in input)) return await this.#fail(input);
      return await this.#tryNodes(input, offer);
    } finally {
      offer?.end();
    }
  }

  async #tryNodes(input: JobInput, first: Offer | undefined): Promise<WorkEnd> {
    const { job, memory, takeOffer } = this.#work;
    const needs = needsOf(input, job.outputFormat);
    let offer = first ?? takeOffer(needs);
    let asked = 0;
    while (offer !== undefined) {
      const end = await this.#attempt(input, offer);
      if (end !== undefined) return await end();
      // Without an end it was refused, or a node failed for the first time: on to the next node.
      asked += 1;
      offer = asked < REFUSALS_MAX ? takeOffer(needs) : undefined;
    }
    if (asked > 0 && !this.#admitted) memory.refusedClaims += 1;
    return await this.#giveBack();
  }

  get #ageMs(): number {
    const { createdAtMs, readAtMs } = this.#work.job;
    return readAtMs - createdAtMs + (performance.now() - this.#claimedAtMs);
  }

  /** The stored input; a failure the job must end with; undefined where it must be given back. */
  async #fetch(): Promise<JobInput | JobFailure | undefined> {
    const { blobs, fetcher, observer, log } = this.#dependencies;
    const { job, claim } = this.#work;
    const fetched = await fetchSource({ blobs, fetcher, job, claim, signal: this.#lease.signal });
    observer.fetchEnded(fetched.kind);
    if (fetched.kind === 'aborted') return undefined;
    if (fetched.kind === 'failed') {
      if (fetched.cause !== undefined)
        log.error({ err: fetched.cause, jobId: job.id }, 'not stored');
      return fetched.failure;
    }
    const { input } = fetched;
    this.#inputBlob = input.blob;
    if (await this.#dependencies.jobs.inputStored(claim, input, this.#lease.signal)) return input;
    // Lost, but perhaps not in vain: where an earlier answer was lost, the row names this input and
    // the job's next holder reads it. An input that no row names is the sweeper's.
    this.#lease.lose();
    return undefined;
  }

  /** What follows; undefined: another node may be tried under the same claim. */
  async #attempt(input: JobInput, offer: Offer): Promise<(() => Promise<WorkEnd>) | undefined> {
    const { observer, jobs, blobs, attemptTimeoutMs } = this.#dependencies;
    const { job, claim } = this.#work;
    const attempting = runAttempt({
      job,
      claim,
      input,
      offer,
      blobs,
      lease: this.#lease,
      attemptTimeoutMs,
      ageMs: () => this.#ageMs,
      onAdmitted: waitMs => {
        if (job.startedAtMs === null && !this.#admitted) observer.jobAdmitted(job.mode, waitMs);
        this.#admitted = true;
        this.#work.memory.refusedClaims = 0;
      },
      recordAdmitted: () => jobs.admitted(claim, this.#lease.signal),
    });
    let full = false;
    try {
      const attempt = await attempting;
      const { outcome } = attempt;
      full = outcome.kind === 'refused' && outcome.error.code !== 'NODE_INCAPABLE';
      const verdict = verdictOn(outcome);
      if (verdict !== undefined) offer.judge(verdict);
      observer.attemptEnded(outcome.kind, reasonOf(outcome));
      this.#logAttempt(outcome, offer);
      return this.#endOf(attempt, offer);
    } finally {
      offer.end(full);
    }
  }
  /** What follows from the outcome; undefined: try another node. */
  #endOf(attempt: AttemptResult, offer: Offer): (() => Promise<WorkEnd>) | undefined {
    const { outcome } = attempt;
    const { memory } = this.#work;
    switch (outcome.kind) {
      case 'done':
        return () => this.#succeed(attempt, outcome.result, offer);
      case 'image-fault':
        return () => this.#fail(failureOf(outcome.error));
      case 'local-fault':
        return () => this.#fail(STORAGE_FAILED);
      case 'aborted':
        return () => this.#giveBack();
      case 'lost':
        memory.avoidedNodes.add(offer.nodeId);
        return () => this.#lost(outcome.withProcess);
      case 'refused':
        if (outcome.error.code === 'NODE_INCAPABLE') memory.excludedBoots.add(offer.bootId);
        return undefined;
      case 'node-fault':
        memory.avoidedNodes.add(offer.nodeId);
        memory.nodeFaults += 1;
        return memory.nodeFaults < NODE_FAULTS_MAX ? undefined : () => this.#fail(NODE_FAULTS);
    }
  }

  async #succeed(
    attempt: AttemptResult,
    result: Extract<AttemptOutcome, { kind: 'done' }>['result'],
    offer: Offer,
  ): Promise<WorkEnd> {
    const { jobs, resultTtlMs, log } = this.#dependencies;
    const { job, claim } = this.#work;
    const blob = `results/${job.id}-${claim.fence}`;
    const storedFromMs = performance.now();
    try {
      await attempt.commit(blob);
    } catch (err) {
      log.error({ err, jobId: job.id }, 'result not stored');
      return await this.#fail(STORAGE_FAILED);
    }
    const { format, bytes, width, height, sha256 } = result;
    const token = randomBytes(RESULT_TOKEN_BYTES).toString('base64url');
    const stored = { blob, token, format, bytes, width, height, sha256 };
    const storeMs = performance.now() - storedFromMs;
    const timings = roundedTimings(result.timings, { queue: attempt.waitMs, store: storeMs });
    // Where this throws nobody knows whether the row names the blob, so it stays, for the sweeper.
    const { signal } = this.#lease;
    if (!(await jobs.succeed(claim, stored, resultTtlMs, timings, signal))) {
      // Only a final row names a result, and a final row keeps its fence: this one names another.
      this.#lease.lose();
      await this.#removeBlob(blob);
      return 'open';
    }
    const { nodeId } = offer;
    const { plan } = result;
    return await this.#ended(undefined, { nodeId, plan, ...sizes(job, bytes), timings });
  }

  async #fail(failure: JobFailure): Promise<WorkEnd> {
    const { jobs } = this.#dependencies;
    if (!(await jobs.fail(this.#work.claim, failure, this.#lease.signal))) {
      this.#lease.lose();
      return 'open';
    }
    return await this.#ended(failure, {});
  }

  async #ended(failure: JobFailure | undefined, fields: object): Promise<WorkEnd> {
    const { events, observer, log } = this.#dependencies;
    const { job, claim } = this.#work;
    events.jobFinal(job.id);
    if (job.callback !== null) events.notificationDue();
    const outcome = failure === undefined ? 'succeeded' : 'failed';
    const totalMs = this.#ageMs;
    observer.jobEnded({ outcome, mode: job.mode, failure, totalMs });
    const common = { jobId: job.id, mode: job.mode, outcome, fence: claim.fence };
    const total = { totalMs: Math.round(totalMs) };
    log.info(
      { ...common, ...total, ...fields, ...(failure === undefined ? {} : { failure }) },
      'job',
    );
    // The row names it no more; what cannot be removed now is the sweeper's.
    if (this.#inputBlob !== undefined) await this.#removeBlob(this.#inputBlob);
    return 'final';
  }

  async #lost(withProcess: boolean): Promise<WorkEnd> {
    const { jobs } = this.#dependencies;
    const { claim, memory } = this.#work;
    const job = await jobs.attemptLost(claim, withProcess, this.#lease.signal);
    if (job === undefined) {
      this.#lease.lose();
      return 'open';
    }
    memory.failure = failureDue(job);
    return 'open';
  }

  async #giveBack(): Promise<WorkEnd> {
    if (this.#lease.end === 'lost') return 'open';
    const { jobs } = this.#dependencies;
    if (!(await jobs.release(this.#work.claim, this.#lease.signal))) this.#lease.lose();
    return 'open';
  }

  async #removeBlob(name: string): Promise<void> {
    try {
      await this.#dependencies.blobs.remove(name);
    } catch (err) {
      this.#dependencies.log.warn({ err, blob: name }, 'blob not removed, left to the sweeper');
    }
  }

  #logAttempt(outcome: AttemptOutcome, offer: Offer): void {
    if (outcome.kind === 'done' || outcome.kind === 'image-fault') return;
    const { job, claim } = this.#work;
    const { nodeId, bootId } = offer;
    const fields = { jobId: job.id, fence: claim.fence, nodeId, bootId, outcome: outcome.kind };
    if (outcome.kind === 'local-fault') {
      this.#dependencies.log.error({ ...fields, err: outcome.error }, 'attempt');
    } else if (outcome.kind === 'aborted') {
      this.#dependencies.log.info(fields, 'attempt');
    } else {
      const { code, message } = outcome.error;
      this.#dependencies.log.warn({ ...fields, code, message }, 'attempt');
    }
  }
}

const STORAGE_FAILED: JobFailure = {
  code: 'PROCESSING_FAILED',
  detail: 'the storage failed while the image was processed',
  retryable: true,
};

const NODE_FAULTS: JobFailure = {
  code: 'PROCESSING_FAILED',
  detail: 'the service failed internally while it processed the image',
  retryable: true,
};

function sizes(job: Job, resultBytes: number) {
  const { input, outputFormat } = job;
  const inputFields = { inputBytes: input?.bytes, inputFormat: input?.format };
  return { ...inputFields, outputFormat, resultBytes };
}

/** What a caller is told of a fault of the image; codes of nodes never reach one. */
function failureOf(error: ContractError): JobFailure {
  const code = ERROR_CATALOGUE[error.code].scope === 'public' ? error.code : 'PROCESSING_FAILED';
  return { code, detail: error.message, retryable: error.retryable };
}

function reasonOf(outcome: AttemptOutcome) {
  return 'error' in outcome && outcome.error instanceof ContractError
    ? outcome.error.code
    : undefined;
}
