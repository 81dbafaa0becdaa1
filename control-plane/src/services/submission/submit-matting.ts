/**
 * A submission becomes a job, or meets the one its Idempotency-Key already made. The order is the
 * contract's: the body, then replay, join or conflict, then the callback's address, jobs in flight,
 * saturation and credits, which never refuse a join or a replay.
 */
import { randomUUID } from 'node:crypto';
import { ContractError } from '#contract/errors.ts';
import { backgroundBlob, type Job, type JobInput } from '../../domain/job.ts';
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
    const { caller, fields, upload, backgroundUpload, accepts } = submission;
    const request = requireMattingRequest(fields, this.#dependencies.fieldPolicy, accepts);
    const { imageUrl, backgroundUrl } = request;
    const image = imageUrl === undefined ? await upload.finish() : { url: imageUrl };
    const background =
      backgroundUrl === undefined
        ? fields.backgroundGiven && (await backgroundUpload?.finish())
        : { url: backgroundUrl };
    const pictures: Pictures = { image, ...(background ? { background } : {}) };
    const fingerprint = fingerprintOf({
      ...request,
      source: 'url' in image ? image : { imageSha256: image.sha256 },
      background: pictures.background,
    });
    const keyHash = idempotencyKeyHash(submission.idempotencyKey);
    const { jobs, databaseTurns } = this.#dependencies;
    const find = () =>
      databaseTurns.ofAccount(caller.accountId, () =>
        jobs.findByIdempotencyKey(caller.apiKeyId, keyHash),
      );
    const known = await find();
    if (known !== undefined) return existing(known, fingerprint);
    let stored: StoredPictures;
    try {
      stored = await this.#requireAccepting(caller, request, pictures);
    } catch (refusal) {
      // A twin may have made the job meanwhile, and a join is not refused.
      const made = refusal instanceof ContractError ? await find() : undefined;
      if (made === undefined) throw refusal;
      return existing(made, fingerprint);
    }
    return this.#create(submission, request, stored, { fingerprint, keyHash });
  }

  async #requireAccepting(
    caller: Caller,
    { callback }: MattingRequest,
    { image, background }: Pictures,
  ): Promise<StoredPictures> {
    const { acceptance, callbackAddresses, readAccount, jobsInFlightMax } = this.#dependencies;
    if (callback !== undefined) await callbackAddresses.require(callback.url, caller.accountId);
    if (this.#draining) {
      throw new ContractError('SERVICE_UNAVAILABLE', 'this replica is shutting down', {
        retryAfterS: DRAINING_RETRY_AFTER_S,
      });
    }
    try {
      const stored = { image: requireStored(image), background: requireStored(background) };
      await acceptance.requireOpen(caller.accountId);
      return stored;
    } catch (refusal) {
      // Jobs in flight come before saturation; the store counts them for good, but later. Every
      // open job holds one reserved credit.
      const { reserved } = await readAccount.credits(caller);
      throw reserved >= jobsInFlightMax ? this.#tooManyInFlight() : refusal;
    }
  }

  async #create(
    submission: Submission,
    request: MattingRequest,
    stored: StoredPictures,
    { fingerprint, keyHash }: { fingerprint: string; keyHash: string },
  ): Promise<Submitted> {
    const { events, callbackSecrets } = this.#dependencies;
    const { caller, mode } = submission;
    const { imageUrl, outputFormat, channels, finishing, backgroundUrl, callback } = request;
    const id = randomUUID();
    const input = stored.image === undefined ? null : jobInput(`inputs/${id}`, stored.image);
    const background =
      stored.background === undefined ? null : jobInput(backgroundBlob(id), stored.background);
    const hasBackground = background !== null || backgroundUrl !== undefined;
    const job: NewJob = {
      id,
      accountId: caller.accountId,
      apiKeyId: caller.apiKeyId,
      idempotencyKeyHash: keyHash,
      fingerprint,
      mode,
      outputFormat,
      channels,
      ...(finishing === undefined ? {} : { finishing }),
      input,
      sourceUrl: imageUrl ?? null,
      ...(hasBackground ? { background: { url: backgroundUrl ?? null, input: background } } : {}),
      ...(callback === undefined
        ? {}
        : { callback: { url: callback.url, ...callbackSecrets.seal(id, callback.secret) } }),
    };
    await this.#commit(job, submission);
    const outcome = await this.#insert(job);
    if (outcome.kind === 'created') {
      events.jobSubmitted(outcome.job);
      return { job: outcome.job, created: true };
    }
    await this.#removeBlobs(job);
    switch (outcome.kind) {
      case 'exists':
        return existing(outcome.job, fingerprint);
      case 'too-many-in-flight':
        throw this.#tooManyInFlight();
      case 'insufficient-credits':
        throw new ContractError('INSUFFICIENT_CREDITS', 'the account has no credit left');
    }
  }

  /** Durable before any answer names the job. */
  async #commit(job: NewJob, { upload, backgroundUpload }: Submission): Promise<void> {
    if (job.input !== null) await upload.commit(job.input.blob);
    if (job.background?.input == null) return;
    try {
      await backgroundUpload?.commit(job.background.input.blob);
    } catch (error) {
      if (job.input !== null) await this.#dependencies.blobs.remove(job.input.blob);
      throw error;
    }
  }

  async #removeBlobs({ input, background }: NewJob): Promise<void> {
    const { blobs } = this.#dependencies;
    if (input !== null) await blobs.remove(input.blob);
    if (background?.input) await blobs.remove(background.input.blob);
  }

  async #insert(job: NewJob): Promise<SubmitOutcome> {
    const { jobs, databaseTurns, jobsInFlightMax } = this.#dependencies;
    let began = false;
    try {
      return await databaseTurns.ofAccount(job.accountId, () => {
        began = true;
        return jobs.submit(job, { jobsInFlightMax });
      });
    } catch (error) {
      // Once it has begun the row may exist, so the input stays: a row without its input would fail
      // a job that was accepted, an input without a row is swept.
      if (!began) await this.#removeBlobs(job);
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

/** A picture of the request: what its upload brought, or the URL of it. */
type Picture = FinishedUpload | { readonly url: string };

interface Pictures {
  readonly image: Picture;
  /** Absent: none is asked for. */
  readonly background?: Picture;
}

/** Those that were uploaded. */
interface StoredPictures {
  readonly image: UploadedImage | undefined;
  readonly background: UploadedImage | undefined;
}

/** undefined: there is none, or a URL. @throws ContractError SERVICE_UNAVAILABLE: not stored */
function requireStored(picture: Picture | undefined): UploadedImage | undefined {
  if (picture === undefined || 'url' in picture) return undefined;
  if (picture.image instanceof ContractError) throw picture.image;
  return picture.image;
}

function jobInput(blob: string, image: UploadedImage): JobInput {
  const { bytes, format, width, height } = image;
  return { blob, bytes, format, width, height };
}
