/**
 * A submission becomes a job, or meets the one its Idempotency-Key already made. The order is the
 * contract's: the body, then replay, join or conflict, then what no node can do, the callback's
 * address, jobs in flight, saturation and credits, which never refuse a join or a replay.
 */
import { ContractError } from '#contract/errors.ts';
import { activeKeptContext, describeSpan, traced } from '#program/tracing/active-span.ts';
import { NotBegunError } from '../../database/database.ts';
import type { Caller, ReadAccount } from '../accounts/account.ts';
import type { CallbackAddressCheck } from '../fetching/guarded-post.ts';
import type { Job } from '../jobs/job.ts';
import type { JobEvents } from '../jobs/job-events.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { Allowance, NewJob, SubmitOutcome } from '../jobs/job-submission.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { AcceptanceGate } from './acceptance.ts';
import { isForgotten } from './key-memory.ts';
import {
  type AcceptedAnswers,
  type FieldPolicy,
  type MattingFields,
  type MattingRequest,
  requireMattingRequest,
} from './submit-fields.ts';
import type { UploadedImage } from './submit-upload.ts';
import {
  commitPictures,
  derivedKeyHash,
  fingerprintOfPictures,
  finishPictures,
  idempotencyKeyHash,
  type Pictures,
  removePictures,
  requireStored,
  type SentPictures,
  type StoredPictures,
  uploadedOf,
} from './submitted-pictures.ts';

/** Jobs end within seconds: a caller at its bound soon has room again. */
const IN_FLIGHT_RETRY_AFTER_S = 5;
/** Long enough for a proxy to find another replica. */
const DRAINING_RETRY_AFTER_S = 1;

export interface SubmitMattingDependencies {
  readonly jobs: Pick<JobStore, 'findByIdempotencyKey' | 'freeKey' | 'submit'>;
  readonly readAccount: Pick<ReadAccount, 'credits'>;
  readonly blobs: Pick<BlobStore, 'remove'>;
  readonly events: JobEvents;
  readonly acceptance: Pick<AcceptanceGate, 'requireAble' | 'requireOpen' | 'requireRoom'>;
  readonly callbackAddresses: Pick<CallbackAddressCheck, 'require'>;
  readonly callbackSecrets: Pick<CallbackSecrets, 'seal'>;
  readonly jobsInFlightMax: number;
  readonly fieldPolicy: FieldPolicy;
}

/** Its uploads are committed for a new job; in every other case their owner aborts them. */
interface Sent extends SentPictures {
  readonly caller: Caller;
  /** Who the caller is now; rejects where the key may not any more. */
  readonly askAgain: () => Promise<Caller>;
  /** Synchronous jobs go first. */
  readonly mode: 'sync' | 'async';
  /** Given for what nobody pays for, which has bounds of its own. */
  readonly unpaid?: UnpaidBounds;
}

export interface UnpaidBounds {
  readonly allowance: Allowance;
  /** Rejects with SERVICE_UNAVAILABLE where all accounts together have as many as may be. */
  readonly requireRoom: () => Promise<void>;
}

/** An unpaid job that its account may not have now. */
export class AllowanceError extends Error {
  readonly reason: string;

  constructor(reason: string) {
    super(`no unpaid job: ${reason}`);
    this.reason = reason;
  }
}

export interface Submission extends Sent {
  readonly idempotencyKey: string;
  readonly fields: MattingFields;
  /** JSON alone where absent. */
  readonly accepts?: AcceptedAnswers;
}

/** A request of another interface, whose fields that interface has read. */
export interface KeylessSubmission extends Sent {
  readonly request: MattingRequest;
  /** Whether the background came as a file. */
  readonly backgroundGiven: boolean;
  readonly derivedKey: DerivedKey;
  /** What the interface asks of the image besides; throws a ContractError. */
  readonly requireImage?: (image: UploadedImage) => void;
}

/** Stands for the Idempotency-Key of callers who send none: made of what they ask for. */
export interface DerivedKey {
  /** Of the interface, so that the same request by another is another one. */
  readonly namespace: string;
  /** How long its job answers, from the first request on; an open job does longer. */
  readonly rememberedMs: number;
}

/** The key as it is stored; without an end it is remembered as long as the job's row. */
interface StoredKey {
  readonly hash: string;
  readonly rememberedMs?: number;
}

/** A request that was read to its end. */
interface Asked {
  readonly request: MattingRequest;
  readonly pictures: Pictures;
  readonly fingerprint: string;
  readonly key: StoredKey;
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
   * @throws ContractError every code of a refused submission; AllowanceError
   */
  async submit(submission: Submission): Promise<Submitted> {
    const { fields, accepts, idempotencyKey } = submission;
    const request = requireMattingRequest(fields, this.#dependencies.fieldPolicy, accepts);
    const pictures = await finishPictures(submission, request, fields.backgroundGiven ?? false);
    const fingerprint = fingerprintOfPictures(request, pictures);
    const key = { hash: idempotencyKeyHash(idempotencyKey) };
    return await this.#traced(submission, { request, pictures, fingerprint, key });
  }

  /**
   * The same for a caller who sends no key: the same request joins or replays, until its time is
   * over; then it is a new one. Requests that meet there make one job, on any number of replicas.
   * @throws ContractError as `submit`, and what `requireImage` throws
   */
  async submitKeyless(submission: KeylessSubmission): Promise<Submitted> {
    const { caller, request, backgroundGiven, derivedKey, requireImage } = submission;
    const pictures = await finishPictures(submission, request, backgroundGiven);
    const image = uploadedOf(pictures.image);
    if (image !== undefined) requireImage?.(image);
    const fingerprint = fingerprintOfPictures(request, pictures);
    const { namespace, rememberedMs } = derivedKey;
    const hash = derivedKeyHash(namespace, caller.apiKeyId, fingerprint);
    const key = { hash, rememberedMs };
    return await this.#traced(submission, { request, pictures, fingerprint, key });
  }

  #traced(sent: Sent, asked: Asked): Promise<Submitted> {
    const attributes = { 'matting.job.mode': sent.mode };
    return traced({ name: 'submit', kind: 'PRODUCER', attributes }, async () => {
      const submitted = await this.#joinOrCreate(sent, asked);
      const { job, created } = submitted;
      describeSpan({ 'matting.job.id': job.id, 'matting.outcome': created ? 'created' : 'joined' });
      return submitted;
    });
  }

  async #joinOrCreate(sent: Sent, asked: Asked): Promise<Submitted> {
    const { request, pictures, fingerprint, key } = asked;
    const known = await this.#find(sent.caller, key);
    if (known !== undefined) return existing(known, sent, fingerprint);
    let stored: StoredPictures;
    try {
      stored = await this.#requireAccepting(sent, request, pictures);
    } catch (refusal) {
      // A twin may have made the job meanwhile, and a join is not refused.
      const made =
        refusal instanceof ContractError ? await this.#find(sent.caller, key) : undefined;
      if (made === undefined) throw refusal;
      return existing(made, sent, fingerprint);
    }
    return await this.#create(sent, request, stored, { fingerprint, keyHash: key.hash });
  }

  /** The job that answers for the key. One whose time is over gives it up first. */
  async #find({ apiKeyId }: Caller, key: StoredKey): Promise<Job | undefined> {
    const { jobs } = this.#dependencies;
    const { hash, rememberedMs } = key;
    const job = await jobs.findByIdempotencyKey(apiKeyId, hash);
    if (job === undefined || rememberedMs === undefined) return job;
    if (!isForgotten(job, rememberedMs)) return job;
    await jobs.freeKey(job.id, hash, rememberedMs);
    // Another request may have been here before, and have made the next job.
    return await jobs.findByIdempotencyKey(apiKeyId, hash);
  }

  async #requireAccepting(
    { caller, unpaid }: Sent,
    request: MattingRequest,
    { image, background }: Pictures,
  ): Promise<StoredPictures> {
    const { acceptance, callbackAddresses, readAccount, jobsInFlightMax } = this.#dependencies;
    const { callback } = request;
    const behind = { input: (background && uploadedOf(background)) ?? null };
    acceptance.requireAble({ ...request, background: behind }, uploadedOf(image));
    if (callback !== undefined) await callbackAddresses.require(callback.url, caller.accountId);
    if (this.#draining) {
      throw new ContractError('SERVICE_UNAVAILABLE', 'this replica is shutting down', {
        retryAfterS: DRAINING_RETRY_AFTER_S,
      });
    }
    try {
      const stored = { image: requireStored(image), background: requireStored(background) };
      await (unpaid === undefined
        ? acceptance.requireOpen(caller.accountId)
        : acceptance.requireRoom());
      await unpaid?.requireRoom();
      return stored;
    } catch (refusal) {
      if (unpaid !== undefined) throw refusal;
      // Jobs in flight come before saturation; the store counts them for good, but later. Every
      // open job holds one reserved credit.
      const { reserved } = await readAccount.credits(caller);
      throw reserved >= jobsInFlightMax ? this.#tooManyInFlight() : refusal;
    }
  }

  async #create(
    sent: Sent,
    request: MattingRequest,
    stored: StoredPictures,
    { fingerprint, keyHash }: { fingerprint: string; keyHash: string },
  ): Promise<Submitted> {
    const { events, callbackSecrets } = this.#dependencies;
    const { caller, mode, unpaid } = sent;
    const { imageUrl, outputFormat, channels, finishing, backgroundUrl, callback } = request;
    const id = sent.upload.jobId;
    const { image: input = null, background = null } = stored;
    const hasBackground = background !== null || backgroundUrl !== undefined;
    const job: NewJob = {
      id,
      accountId: caller.accountId,
      apiKeyId: caller.apiKeyId,
      idempotencyKeyHash: keyHash,
      fingerprint,
      class: unpaid === undefined ? mode : 'playground',
      outputFormat,
      channels,
      traceContext: activeKeptContext(),
      ...(finishing === undefined ? {} : { finishing }),
      input,
      sourceUrl: imageUrl ?? null,
      ...(hasBackground ? { background: { url: backgroundUrl ?? null, input: background } } : {}),
      ...(callback === undefined
        ? {}
        : { callback: { url: callback.url, ...callbackSecrets.seal(id, callback.secret) } }),
    };
    await commitPictures(this.#dependencies.blobs, job, sent);
    const outcome = await this.#insert(job, sent);
    if (outcome.kind === 'created') {
      events.jobSubmitted(outcome.job);
      return { job: outcome.job, created: true };
    }
    await removePictures(this.#dependencies.blobs, job);
    switch (outcome.kind) {
      case 'exists':
        return existing(outcome.job, sent, fingerprint);
      case 'too-many-in-flight':
        throw this.#tooManyInFlight();
      case 'insufficient-credits':
        throw new ContractError('INSUFFICIENT_CREDITS', 'the account has no credit left');
      case 'key-cap-reached':
        throw new ContractError('KEY_CAP_REACHED', outcome.detail);
      case 'refused':
        throw new AllowanceError(outcome.reason);
    }
  }

  /** The key is asked for once more: names were looked up and pictures stored since. */
  async #insert(job: NewJob, { askAgain, unpaid }: Sent): Promise<SubmitOutcome> {
    const { jobs, jobsInFlightMax } = this.#dependencies;
    const limits = unpaid === undefined ? { jobsInFlightMax } : { allowance: unpaid.allowance };
    let began = false;
    try {
      const { policy } = await askAgain();
      const asked = { ...job, keyHasCap: policy?.cap !== undefined };
      began = true;
      return await jobs.submit(asked, limits);
    } catch (error) {
      // Once it has begun the row may exist, so the input stays: a row without its input would fail
      // a job that was accepted, an input without a row is swept.
      if (!began || error instanceof NotBegunError)
        await removePictures(this.#dependencies.blobs, job);
      throw error;
    }
  }

  #tooManyInFlight(): ContractError {
    const detail = `the account has ${this.#dependencies.jobsInFlightMax} jobs in flight`;
    return new ContractError('RATE_LIMITED', detail, { retryAfterS: IN_FLIGHT_RETRY_AFTER_S });
  }
}

/**
 * Join or replay. A form of what is unpaid is its own key: sent again it is the same picture.
 * @throws ContractError IDEMPOTENCY_CONFLICT
 */
function existing(job: Job, { unpaid }: Sent, fingerprint: string): Submitted {
  if (unpaid !== undefined || job.fingerprint === fingerprint) return { job, created: false };
  const detail = 'this Idempotency-Key belongs to a request with other content';
  throw new ContractError('IDEMPOTENCY_CONFLICT', detail, { jobId: job.id });
}
