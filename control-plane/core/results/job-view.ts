/**
 * What callers hear of a job: how it looks, by the contract's "Job fields by state", the token of its
 * result's link, and its end, which a request may wait for.
 */
import { hash, randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { outsideRequests } from '@matting/program/request-owner.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { type Sight, warningsOf } from '@matting/proto/contract/finishing.ts';
import { contentTypeOf } from '@matting/proto/contract/formats.ts';
import type { FastifyReply } from 'fastify';
import {
  isFinal,
  isoTime,
  type Job,
  type JobCallback,
  type JobResult,
  publicState,
} from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { Caller } from '../keys/caller.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';

export class JobViews {
  readonly #baseUrl: string;
  readonly #tokenOf: (jobId: string, result: JobResult) => string;

  /**
   * @param baseUrl without a trailing slash; links are made of it, never of the Host header.
   * @param tokenOf the unguessable part of a result's link
   */
  constructor(baseUrl: string, tokenOf: (jobId: string, result: JobResult) => string) {
    this.#baseUrl = baseUrl;
    this.#tokenOf = tokenOf;
  }

  statusUrl(jobId: string): string {
    return `${this.#baseUrl}/v1/matting/jobs/${jobId}`;
  }

  view(job: Job) {
    const view = this.viewWithoutCallback(job);
    return job.callback === null ? view : { ...view, callback: callbackOf(job.callback) };
  }

  viewWithoutCallback(job: Job) {
    const status = publicState(job);
    return {
      job_id: job.id,
      status,
      created_at: isoTime(job.createdAtMs),
      started_at: isoTime(job.startedAtMs),
      finished_at: isoTime(job.finishedAtMs),
      status_url: this.statusUrl(job.id),
      credits: { reserved: isFinal(job) ? 0 : 1, charged: job.state === 'succeeded' ? 1 : 0 },
      ...(job.result?.models ? { models: job.result.models } : {}),
      ...(status === 'succeeded' ? { result: this.#result(job) } : {}),
      ...(job.failure === null ? {} : { error: job.failure }),
    };
  }

  #result(job: Job) {
    const { result, expiresAtMs } = job;
    if (result === null || expiresAtMs === null) {
      throw new Error(`job ${job.id} succeeded without a result`);
    }
    return {
      url: `${this.#baseUrl}/v1/results/${this.#tokenOf(job.id, result)}`,
      format: result.format,
      contentType: contentTypeOf(result.format),
      sizeBytes: result.bytes,
      width: result.width,
      height: result.height,
      expiresAt: isoTime(expiresAtMs),
      subject: subjectOf(result),
      warnings: warningsOf(result.sight),
    };
  }
}

/** The box in pixels of the oriented input; its share of that, 0 to 1; null: no subject was seen. */
function subjectOf({ sight }: JobResult) {
  if (!sight?.subject) return null;
  const { inputBox, share } = sight.subject;
  return { ...inputBox, share };
}

/** Undefined: the job is open, or its result is there. */
export function refusalOf(job: Job): ContractError | undefined {
  if (job.failure !== null) {
    const { code, detail, retryable } = job.failure;
    return new ContractError(code, detail, { retryable, jobId: job.id });
  }
  if (publicState(job) !== 'expired') return undefined;
  const detail =
    'The result of this job has expired. Submit the image again under another Idempotency-Key.';
  return new ContractError('RESULT_EXPIRED', detail, { jobId: job.id });
}

function callbackOf(callback: JobCallback) {
  return {
    url: callback.url,
    status: callback.status,
    attempts: callback.attempts,
    last_status_code: callback.lastStatusCode,
    last_failure: callback.lastFailure,
    last_attempt_at: isoTime(callback.lastAttemptAtMs),
    next_attempt_at: isoTime(callback.nextAttemptAtMs),
  };
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/**
 * Another key's job, an unknown one and a malformed id are the same to the caller.
 * @throws ContractError JOB_NOT_FOUND, SERVICE_UNAVAILABLE
 */
export async function readJobOfCaller(
  jobs: Pick<JobStore, 'findForKey'>,
  { apiKeyId }: Caller,
  jobId: string,
): Promise<Job> {
  const job = UUID.test(jobId) ? await jobs.findForKey(jobId.toLowerCase(), apiKeyId) : undefined;
  if (job !== undefined) return job;
  throw new ContractError(
    'JOB_NOT_FOUND',
    'This API key has no job with this id. Use the status_url and the key of the submission.',
  );
}

/** 256 bits: the link is the capability. */
const TOKEN_BYTES = 32;

type StoredToken = Pick<JobResult, 'token' | 'sealedToken'>;

/**
 * A row has the SHA-256 of a link's token, to find it by, and the token only sealed: who reads the
 * database gets none. While keys are changed whoever has two seals with both.
 */
export class ResultTokens {
  readonly #secrets: CallbackSecrets;

  constructor(secrets: CallbackSecrets) {
    this.#secrets = secrets;
  }

  make(jobId: string): StoredToken {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    const sealedToken = this.#secrets.sealTextByAll(token, bindingOf(jobId));
    return { token: hash('sha256', token, 'hex'), sealedToken };
  }

  /** Throws where no key that is here opens it. */
  open(jobId: string, { sealedToken }: Pick<StoredToken, 'sealedToken'>): string {
    const opened = this.#secrets.openTextByAny(sealedToken, bindingOf(jobId));
    if (opened !== undefined) return opened;
    throw new Error(`the token of job ${jobId} was sealed with a secrets key that is not here`);
  }
}

function bindingOf(jobId: string): string {
  return `result token of ${jobId}`;
}

/** How late the end of a job in another replica is seen. */
const POLL_MS = 500;
const POLL_JOBS_MAX = 500;

type WaitingJobs = Pick<JobStore, 'findForKey' | 'findFinal'>;

interface Wait {
  readonly job: Job;
  /** The final job; undefined: the wait is over without one. */
  resolve(job: Job | undefined): void;
  reject(error: unknown): void;
}

/**
 * Waiting for a job's end. The row is the truth; an event, or the poll that all waits share for
 * jobs that end in another replica, only decides when it is read.
 */
export class WaitForJob {
  readonly #jobs: WaitingJobs;
  readonly #events: JobEvents;
  readonly #waits = new Map<string, Set<Wait>>();
  /** Ids that the next poll reads. */
  readonly #due = new Set<string>();
  #reading = false;
  #poll: NodeJS.Timeout | undefined;
  #waiting = 0;
  #ended = false;

  constructor(jobs: WaitingJobs, events: JobEvents) {
    this.#jobs = jobs;
    this.#events = events;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** From now on every wait ends at once, with the job as it is. */
  endAllWaits(): void {
    this.#ended = true;
    for (const wait of [...this.#waits.values()].flatMap(waits => [...waits])) {
      wait.resolve(undefined);
    }
  }

  /** Final, or as it was when `waitMs` had passed, the caller hung up or this replica drained. */
  async wait(job: Job, waitMs: number, hangUp: AbortSignal): Promise<Job> {
    const over = this.#ended || waitMs <= 0;
    const final = over ? undefined : await this.#untilFinal(job, waitMs, hangUp);
    // The caller is gone: no answer is read.
    if (final !== undefined || hangUp.aborted) return final ?? job;
    return (await this.#jobs.findForKey(job.id, job.apiKeyId)) ?? job;
  }

  async #untilFinal(job: Job, waitMs: number, hangUp: AbortSignal): Promise<Job | undefined> {
    if (hangUp.aborted) return undefined;
    const { promise, resolve, reject } = Promise.withResolvers<Job | undefined>();
    const wait: Wait = { job, resolve, reject };
    const giveUp = () => resolve(undefined);
    const timer = setTimeout(giveUp, waitMs);
    hangUp.addEventListener('abort', giveUp);
    this.#add(wait);
    // Before the first read, or an end between read and subscription would be missed.
    const unsubscribe = this.#events.onFinal(job.id, () => this.#pollFor(job.id));
    this.#pollFor(job.id);
    try {
      return await promise;
    } finally {
      unsubscribe();
      hangUp.removeEventListener('abort', giveUp);
      clearTimeout(timer);
      this.#remove(wait);
    }
  }

  #add(wait: Wait): void {
    const waits = this.#waits.get(wait.job.id) ?? new Set();
    this.#waits.set(wait.job.id, waits.add(wait));
    this.#waiting += 1;
    this.#poll ??= setInterval(() => {
      for (const id of this.#waits.keys()) this.#pollFor(id);
    }, POLL_MS);
  }

  #remove(wait: Wait): void {
    const waits = this.#waits.get(wait.job.id);
    waits?.delete(wait);
    if (waits?.size === 0) this.#waits.delete(wait.job.id);
    this.#waiting -= 1;
    if (this.#waiting > 0) return;
    clearInterval(this.#poll);
    this.#poll = undefined;
  }

  /** Polls once all ids of this tick of the loop are known, and the poll before has ended. */
  #pollFor(jobId: string): void {
    this.#due.add(jobId);
    if (this.#reading) return;
    this.#reading = true;
    // One poll is for the jobs of many accounts.
    setImmediate(() => outsideRequests(() => void this.#readDue()));
  }

  /** Never rejects. An id that is due again meanwhile is read again. */
  async #readDue(): Promise<void> {
    while (this.#due.size > 0) {
      const ids = [...this.#due].slice(0, POLL_JOBS_MAX);
      for (const id of ids) this.#due.delete(id);
      try {
        for (const job of await this.#jobs.findFinal(ids)) {
          for (const wait of this.#waits.get(job.id) ?? []) wait.resolve(job);
        }
      } catch (error) {
        this.#failed(ids, error);
      }
    }
    this.#reading = false;
  }

  #failed(ids: readonly string[], error: unknown): void {
    // The job may go on meanwhile, so the wait does too: the next poll reads again.
    if (error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE') return;
    for (const id of ids) for (const wait of this.#waits.get(id) ?? []) wait.reject(error);
  }
}

/** What happens to jobs in this replica: a hint, never the truth. */
export class JobEvents {
  readonly #submitted = new EventEmitter();
  readonly #final = new EventEmitter();
  readonly #images = new EventEmitter();
  readonly #notifications = new EventEmitter();

  constructor() {
    // One listener a waiting request; bounded by the server's connections.
    this.#final.setMaxListeners(0);
  }

  jobSubmitted(job: Job): void {
    // What it starts is nobody's request.
    outsideRequests(() => this.#submitted.emit('job', job));
  }

  onSubmitted(listener: (job: Job) => void): () => void {
    this.#submitted.on('job', listener);
    return () => this.#submitted.off('job', listener);
  }

  /** @param megapixels as it was admitted at */
  imageDone(megapixels: number): void {
    this.#images.emit('done', megapixels);
  }

  onImageDone(listener: (megapixels: number) => void): () => void {
    this.#images.on('done', listener);
    return () => this.#images.off('done', listener);
  }

  jobFinal(jobId: string): void {
    this.#final.emit(jobId);
  }

  notificationDue(): void {
    this.#notifications.emit('due');
  }

  onNotificationDue(listener: () => void): () => void {
    this.#notifications.on('due', listener);
    return () => this.#notifications.off('due', listener);
  }

  onFinal(jobId: string, listener: () => void): () => void {
    this.#final.on(jobId, listener);
    return () => this.#final.off(jobId, listener);
  }
}

/** What goes wrong once a request's job exists names it: the job goes on, or stays as it is. */
export function withJob(cause: unknown, jobId: string): ContractError {
  if (!(cause instanceof ContractError)) {
    const detail = 'Something went wrong on our side. Send the same request again.';
    return new ContractError('INTERNAL_ERROR', detail, { cause, jobId });
  }
  const { code, message, retryable, retryAfterS } = cause;
  return new ContractError(code, message, { cause, retryable, retryAfterS, jobId });
}

/** As `WaitForJob.wait`. @throws ContractError that names the job: it exists and goes on */
export async function waitForEnd(
  waitForJob: WaitForJob,
  job: Job,
  waitMs: number,
  reply: FastifyReply,
): Promise<Job> {
  if (isFinal(job)) return job;
  const hangUp = new AbortController();
  const onClose = () => hangUp.abort();
  reply.raw.once('close', onClose);
  // The caller may have hung up while the body was stored.
  if (reply.raw.closed) onClose();
  try {
    return await waitForJob.wait(job, waitMs, hangUp.signal);
  } catch (cause) {
    throw withJob(cause, job.id);
  } finally {
    reply.raw.off('close', onClose);
  }
}

/**
 * `X-Subject-Box` (left, top, width and height in pixels of the input) and `X-Subject-Share` (of the
 * input's area). Without a subject the share alone, 0; neither where the node did not say. And
 * `X-Warnings`, where there are any.
 */
export function subjectHeaders(sight: Sight | null): Record<string, string> {
  if (sight === null) return {};
  const warnings = warningsOf(sight).join(', ');
  const warned = warnings === '' ? {} : { 'x-warnings': warnings };
  if (sight.subject === null) return { 'x-subject-share': '0', ...warned };
  const { inputBox, share } = sight.subject;
  const { left, top, width, height } = inputBox;
  return {
    'x-subject-box': [left, top, width, height].join(','),
    // Digits enough for a pixel of the largest picture.
    'x-subject-share': String(Number(share.toPrecision(6))),
    ...warned,
  };
}

export function serverTimingOf({ timings }: Job): Record<string, string> {
  const stages = Object.entries(timings ?? {});
  if (stages.length === 0) return {};
  const metrics = stages.map(([stage, ms]) => {
    const token = stage.replaceAll(/[^A-Za-z0-9_-]/g, '_');
    return `${token};dur=${Number(ms.toFixed(1))}`;
  });
  return { 'server-timing': metrics.join(', ') };
}
