/**
 * A submission becomes a job, or meets the one its Idempotency-Key already made. The order is the
 * contract's: the body, then replay, join or conflict, then the callback's address, jobs in flight,
 * saturation and credits, which never refuse a join or a replay.
 */
import { randomUUID } from 'node:crypto';
import { ContractError } from '#contract/errors.ts';
import type { Job, JobInput } from '../../domain/job.ts';
import type { CallbackSecrets } from '../../secrets/callback-secret.ts';
import type { CallbackAddressCheck } from '../../sources/callback-url.ts';
import type { BlobStore } from '../../storage/blob-store.ts';
import type { JobStore, NewJob, SubmitOutcome } from '../../store/jobs/job-store.ts';
import type { Caller, ReadAccount } from '../account.ts';
import type { DatabaseTurns } from '../database-turns.ts';
import type { JobEvents } from '../job-events.ts';
import type { AcceptedAnswers } from './answer-form.ts';
import {
  type FieldPolicy,
  type MattingFields,
  type MattingRequest,
  requireMattingRequest,
} from './submit-fields.ts';
import { fingerprintOf, idempotencyKeyHash } from './submit-fingerprint.ts';
import type { FinishedUpload, ImageUpload, UploadedImage } from './submit-upload.ts';

/** Jobs end within seconds: a caller at its bound soon has room again. */
const IN_FLIGHT_RETRY_AFTER_S = 5;
/** Long enough for a proxy to find another replica. */
const DRAINING_RETRY_AFTER_S = 1;

export interface SubmitMattingDependencies {
  readonly jobs: Pick<JobStore, 'findByIdempotencyKey' | 'submit'>;
  readonly readAccount: Pick<ReadAccount, 'credits'>;
  readonly blobs: Pick<BlobStore, 'remove'>;
  readonly events: JobEvents;
  readonly databaseTurns: Pick<DatabaseTurns, 'ofAccount'>;
  /** Rejects with SERVICE_UNAVAILABLE where the service takes no more of the account. */
  readonly acceptance: { requireOpen(accountId: string): Promise<void> };
  readonly callbackAddresses: Pick<CallbackAddressCheck, 'require'>;
  readonly callbackSecrets: Pick<CallbackSecrets, 'seal'>;
  readonly jobsInFlightMax: number;
  readonly fieldPolicy: FieldPolicy;
}

export interface Submission {
  readonly caller: Caller;
  readonly idempotencyKey: string;
  /** Synchronous jobs go first. */
  readonly mode: 'sync' | 'async';
  readonly fields: MattingFields;
  /** JSON alone where absent. */
  readonly accepts?: AcceptedAnswers;
  /** Committed for a new job; in every other case its owner aborts it. */
  readonly upload: ImageUpload;
  /** The same of `background_file`; absent where the form of the body can hold none. */
  readonly backgroundUpload?: ImageUpload;
}

export interface Submitted {
  readonly job: Job;
  /** Whether this request made it. */
  readonly created: boolean;
}

export class SubmitMatting {
  readonly #dependencies: SubmitMattingDependencies;
  #draining = false;

  constructor(dependencies: SubmitMattingDependencies) {
    this.#dependencies = dependencies;
  }

  /** From now on no job is made here; joins and replays are answered. */
  startDraining(): void {
    this.#draining = true;
  }

  /**
   * The job of this request, durable.
   * @throws ContractError every code of a refused submission
   */
  async submit(submission: Submission): Promise<Submitted> {
    const { caller, fields, upload, accepts } = submission;
    const request = requireMattingRequest(fields, this.#dependencies.fieldPolicy, accepts);
    const finished = request.imageUrl === undefined ? await upload.finish() : undefined;
    const fingerprint = fingerprintOf({
      source:
        finished === undefined ? { url: request.imageUrl! } : { imageSha256: finished.sha256 },
      outputFormat: request.outputFormat,
      callback: request.callback,
    });
    const keyHash = idempotencyKeyHash(submission.idempotencyKey);
    const { jobs, databaseTurns } = this.#dependencies;
    const find = () =>
      databaseTurns.ofAccount(caller.accountId, () =>
        jobs.findByIdempotencyKey(caller.apiKeyId, keyHash),
      );
    const known = await find();
    if (known !== undefined) return existing(known, fingerprint);
    let image: UploadedImage | undefined;
    try {
      image = await this.#requireAccepting(caller, request, finished);
    } catch (refusal) {
      // A twin may have made the job meanwhile, and a join is not refused.
      const made = refusal instanceof ContractError ? await find() : undefined;
      if (made === undefined) throw refusal;
      return existing(made, fingerprint);
    }
    return this.#create(submission, request, image, { fingerprint, keyHash });
  }

  /** The image, stored; undefined where the request has a URL. */
  async #requireAccepting(
    caller: Caller,
    { callback }: MattingRequest,
    finished: FinishedUpload | undefined,
  ): Promise<UploadedImage | undefined> {
    const { acceptance, callbackAddresses, readAccount, jobsInFlightMax } = this.#dependencies;
    if (callback !== undefined) await callbackAddresses.require(callback.url, caller.accountId);
    if (this.#draining) {
      throw new ContractError('SERVICE_UNAVAILABLE', 'this replica is shutting down', {
        retryAfterS: DRAINING_RETRY_AFTER_S,
      });
    }
    try {
      if (finished?.image instanceof ContractError) throw finished.image;
      await acceptance.requireOpen(caller.accountId);
      return finished?.image;
    } catch (refusal) {
      // Jobs in flight come before saturation; the store counts them for good, but later. Every
      // open job holds one reserved credit.
      const { reserved } = await readAccount.credits(caller);
      throw reserved >= jobsInFlightMax ? this.#tooManyInFlight() : refusal;
    }
  }

  async #create(
    { caller, mode, upload }: Submission,
    { imageUrl, outputFormat, callback }: MattingRequest,
    image: UploadedImage | undefined,
    { fingerprint, keyHash }: { fingerprint: string; keyHash: string },
  ): Promise<Submitted> {
    const { events, callbackSecrets } = this.#dependencies;
    const id = randomUUID();
    const input = image === undefined ? null : jobInput(id, image);
    // Durable before any answer names the job.
    if (input !== null) await upload.commit(input.blob);
    const job: NewJob = {
      id,
      accountId: caller.accountId,
      apiKeyId: caller.apiKeyId,
      idempotencyKeyHash: keyHash,
      fingerprint,
      mode,
      outputFormat,
      input,
      sourceUrl: imageUrl ?? null,
      ...(callback === undefined
        ? {}
        : { callback: { url: callback.url, ...callbackSecrets.seal(id, callback.secret) } }),
    };
    const outcome = await this.#insert(job);
    if (outcome.kind === 'created') {
      events.jobSubmitted(outcome.job);
      return { job: outcome.job, created: true };
    }
    if (input !== null) await this.#dependencies.blobs.remove(input.blob);
    switch (outcome.kind) {
      case 'exists':
        return existing(outcome.job, fingerprint);
      case 'too-many-in-flight':
        throw this.#tooManyInFlight();
      case 'insufficient-credits':
        throw new ContractError('INSUFFICIENT_CREDITS', 'the account has no credit left');
    }
  }

  async #insert(job: NewJob): Promise<SubmitOutcome> {
    const { jobs, databaseTurns, blobs, jobsInFlightMax } = this.#dependencies;
    let began = false;
    try {
      return await databaseTurns.ofAccount(job.accountId, () => {
        began = true;
        return jobs.submit(job, { jobsInFlightMax });
      });
    } catch (error) {
      // Once it has begun the row may exist, so the input stays: a row without its input would fail
      // a job that was accepted, an input without a row is swept.
      if (!began && job.input !== null) await blobs.remove(job.input.blob);
      throw error;
    }
  }

  #tooManyInFlight(): ContractError {
    const detail = `the account has ${this.#dependencies.jobsInFlightMax} jobs in flight`;
    return new ContractError('RATE_LIMITED', detail, { retryAfterS: IN_FLIGHT_RETRY_AFTER_S });
  }
}

/** Join or replay. @throws ContractError IDEMPOTENCY_CONFLICT */
function existing(job: Job, fingerprint: string): Submitted {
  if (job.fingerprint === fingerprint) return { job, created: false };
  const detail = 'this Idempotency-Key belongs to a request with other content';
  throw new ContractError('IDEMPOTENCY_CONFLICT', detail, { jobId: job.id });
}

function jobInput(jobId: string, image: UploadedImage): JobInput {
  const { bytes, format, width, height } = image;
  return { blob: `inputs/${jobId}`, bytes, format, width, height };
}
