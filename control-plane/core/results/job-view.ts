/** A job as callers see it, by the contract's "Job fields by state". Pure. */
import { ContractError } from '#contract/errors.ts';
import { contentTypeOf } from '#contract/formats.ts';
import type { Caller } from '../accounts/account.ts';
import {
  isFinal,
  type Job,
  type JobCallback,
  type JobFailure,
  type JobResult,
  publicState,
} from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { isoTime } from '../time-format.ts';

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

  /** Times are ISO 8601 in UTC; null until set. */
  view(job: Job) {
    const view = this.viewWithoutCallback(job);
    return job.callback === null ? view : { ...view, callback: callbackOf(job.callback) };
  }

  /** The job as its notification shows it. */
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
      ...(status === 'succeeded' ? { result: this.#result(job) } : {}),
      ...(job.failure === null ? {} : { error: errorOf(job.failure) }),
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
      ...(job.finishing === null ? {} : { subject: subjectOf(result) }),
    };
  }
}

/** The box in pixels of the oriented input; its share of that, 0 to 1; null: no subject was seen. */
function subjectOf({ sight }: JobResult) {
  if (!sight?.subject) return null;
  const { inputBox, share } = sight.subject;
  return { ...inputBox, share };
}

/** Why a final job cannot be answered with a result; undefined for open and succeeded ones. */
export function refusalOf(job: Job): ContractError | undefined {
  if (job.failure !== null) {
    const { code, detail, retryable } = job.failure;
    return new ContractError(code, detail, { retryable, jobId: job.id });
  }
  if (publicState(job) !== 'expired') return undefined;
  const detail = 'the result of this job has expired; submit the image again under another key';
  return new ContractError('RESULT_EXPIRED', detail, { jobId: job.id });
}

function errorOf({ code, detail, retryable }: JobFailure) {
  return { code, detail, retryable };
}

function callbackOf(callback: JobCallback) {
  return {
    url: callback.url,
    status: callback.status,
    attempts: callback.attempts,
    last_status_code: callback.lastStatusCode,
    last_attempt_at: isoTime(callback.lastAttemptAtMs),
    next_attempt_at: isoTime(callback.nextAttemptAtMs),
  };
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export class ReadJob {
  readonly #jobs: Pick<JobStore, 'findForKey'>;

  constructor(jobs: Pick<JobStore, 'findForKey'>) {
    this.#jobs = jobs;
  }

  /**
   * Another key's job, an unknown one and a malformed id are the same to the caller.
   * @throws ContractError JOB_NOT_FOUND, SERVICE_UNAVAILABLE
   */
  async read({ apiKeyId }: Caller, jobId: string): Promise<Job> {
    const job = UUID.test(jobId)
      ? await this.#jobs.findForKey(jobId.toLowerCase(), apiKeyId)
      : undefined;
    if (job === undefined) {
      throw new ContractError('JOB_NOT_FOUND', 'this API key has no job of that id');
    }
    return job;
  }
}
