/** By the contract's "Job fields by state". */

import { isoTime } from '@matting/program/iso-time.ts';
import { warningsOf } from '@matting/proto/contract/finishing.ts';
import { contentTypeOf } from '@matting/proto/contract/formats.ts';
import { isFinal, publicState } from '@matting/queue/job.ts';
import type { ViewedJob } from '../jobs/job.ts';
import type { JobCallback } from '../jobs/job-callback.ts';
import { takesCredit } from '../jobs/job-funding.ts';
import type { JobResult } from '../jobs/job-outcome.ts';

export class JobViews {
  readonly #baseUrl: string;
  readonly #tokenOf: (jobId: string, result: JobResult) => string;

  /** @param baseUrl without a trailing slash; links use it, never the Host header */
  constructor(baseUrl: string, tokenOf: (jobId: string, result: JobResult) => string) {
    this.#baseUrl = baseUrl;
    this.#tokenOf = tokenOf;
  }

  statusUrl(jobId: string): string {
    return `${this.#baseUrl}/v1/matting/jobs/${jobId}`;
  }

  view(job: ViewedJob) {
    const view = this.viewWithoutCallback(job);
    return job.callback === null ? view : { ...view, callback: callbackOf(job.callback) };
  }

  viewWithoutCallback(job: Omit<ViewedJob, 'callback'>) {
    const status = publicState(job);
    return {
      job_id: job.id,
      ...(job.reference === null ? {} : { reference: job.reference }),
      ...(job.correction === null ? {} : { corrects: job.correction.of }),
      ...(job.group === null ? {} : { batch_id: job.group.id, item: job.group.item }),
      status,
      created_at: isoTime(job.createdAtMs),
      started_at: isoTime(job.startedAtMs),
      finished_at: isoTime(job.finishedAtMs),
      ...(job.deletedAtMs === null ? {} : { deleted_at: isoTime(job.deletedAtMs) }),
      status_url: this.statusUrl(job.id),
      credits: creditsOf(job),
      ...(job.resultModels ? { models: job.resultModels } : {}),
      ...(status === 'succeeded' ? { result: this.#result(job) } : {}),
      ...(job.failure === null ? {} : { error: job.failure }),
    };
  }

  #result(job: Pick<ViewedJob, 'id' | 'result' | 'expiresAtMs'>) {
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
      subject: viewSubject(result),
      warnings: warningsOf(result.sight),
    };
  }
}

function creditsOf(job: Pick<ViewedJob, 'state' | 'class' | 'correction'>) {
  if (!takesCredit(job)) return { reserved: 0, charged: 0 };
  return { reserved: isFinal(job) ? 0 : 1, charged: job.state === 'succeeded' ? 1 : 0 };
}

/** In pixels of the oriented input; share of its area, 0 to 1. */
function viewSubject({ sight }: JobResult) {
  if (!sight?.subject) return null;
  const { inputBox, share } = sight.subject;
  return { ...inputBox, share };
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
