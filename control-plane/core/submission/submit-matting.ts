/**
 * A submission becomes a job, or meets the one its Idempotency-Key already made. The order is the
 * contract's: the body, then replay, join or conflict, then what no node can do, the callback's
 * secret behind `whsec_` and its address, jobs in flight, saturation and credits, which never refuse
 * a join or a replay.
 */

import { NotBegunError } from '@matting/database/database.ts';
import { isReadableSecret, UNREADABLE_SECRET } from '@matting/http/outgoing/webhook-signature.ts';
import { activeKeptContext, describeSpan, traced } from '@matting/program/tracing/active-span.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { CallbackAddressCheck } from '../fetching/callback-check.ts';
import { type Job, type JobInput, UNPAID } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { Caller, ReadAccount } from '../keys/caller.ts';
import type { OfferedModels } from '../models/offered-models.ts';
import type { JobEvents } from '../results/job-events.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type {
  Allowance,
  JobSubmission,
  NewJob,
  SubmitOutcome,
} from '../transactions/job-submission.ts';
import type { AcceptanceGate } from './acceptance-gate.ts';
import { derivedKeyHash, idempotencyKeyHash } from './fingerprint.ts';
import {
  type AcceptedAnswers,
  type FieldPolicy,
  invalidCallback,
  type MattingFields,
  type MattingRequest,
  requireMattingRequest,
} from './matting-request.ts';
import {
  commitPictures,
  fingerprintOfPictures,
  finishPictures,
  type Pictures,
  removePictures,
  requireStored,
  type SentPictures,
  uploadedOf,
} from './pictures.ts';

const NO_CREDIT =
  'The account has no credits left. Buy credits, then send the same request again. GET /v1/account shows the balance.';
const IN_FLIGHT_RETRY_AFTER_S = 5;
const DRAINING_RETRY_AFTER_S = 1;

interface SubmitMattingDependencies {
  readonly jobs: Pick<JobStore, 'findByIdempotencyKey'> & JobSubmission;
  readonly readAccount: Pick<ReadAccount, 'credits'>;
  readonly blobs: Pick<BlobStore, 'remove'>;
  readonly events: JobEvents;
  readonly acceptance: Pick<AcceptanceGate, 'requireAble' | 'requireOpen' | 'requireRoom'>;
  readonly models: Pick<OfferedModels, 'require'>;
  readonly callbackAddresses: Pick<CallbackAddressCheck, 'require'>;
  readonly callbackSecrets: Pick<CallbackSecrets, 'seal'>;
  readonly jobsInFlightMax: number;
  readonly fieldPolicy: FieldPolicy;
}

interface Sent extends SentPictures {
  readonly caller: Caller;
  readonly askAgain: () => Promise<Caller>;
  readonly mode: 'sync' | 'async';
  /** Unpaid work has this, with bounds of its own. */
  readonly unpaid?: {
    readonly allowance: Allowance;
    /** Rejects with SERVICE_UNAVAILABLE where all accounts together have as many as may be. */
    readonly requireRoom: () => Promise<void>;
  };
}

export class AllowanceError extends Error {
  readonly reason: string;

  constructor(reason: string) {
    super(`no unpaid job: ${reason}`);
    this.reason = reason;
  }
}

interface Submission extends Sent {
  readonly idempotencyKey: string;
  readonly fields: MattingFields;
  readonly accepts?: AcceptedAnswers;
}

export interface KeylessSubmission extends Sent {
  readonly request: MattingRequest;
  readonly backgroundGiven: boolean;
  /**
   * It stands for the Idempotency-Key: made of the request's fields and of the interface's name.
   */
  readonly derivedKey: {
    readonly namespace: string;
    /** Its job answers for this time, from its end on. */
    readonly rememberedMs: number;
  };
  /** The interface requires this of the image, too; it throws a ContractError. */
  readonly requireImage?: (image: JobInput) => void;
}

/** Without an end it is remembered as long as the job's row. */
interface StoredKey {
  readonly hash: string;
  readonly rememberedMs?: number;
}

interface Asked {
  readonly request: MattingRequest;
  readonly pictures: Pictures;
  readonly fingerprint: string;
  readonly key: StoredKey;
}

type StoredPictures = Readonly<Record<keyof Pictures, JobInput | undefined>>;

export interface Submitted {
  readonly job: Job;
  readonly created: boolean;
}

export class SubmitMatting {
  readonly #dependencies: SubmitMattingDependencies;
  #draining = false;

  constructor(dependencies: SubmitMattingDependencies) {
    this.#dependencies = dependencies;
  }

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
   * Serves a caller who sends no key: the same request joins or replays, until its time is over.
   * @throws ContractError as `submit`, and what `requireImage` throws
   */
  async submitKeyless(submission: KeylessSubmission): Promise<Submitted> {
    const { caller, request, backgroundGiven, derivedKey, requireImage } = submission;
    const pictures = await finishPictures(submission, request, backgroundGiven);
    const image = uploadedOf(pictures.image);
    if (image !== undefined) requireImage?.(image);
    const fingerprint = fingerprintOfPictures(request, pictures);
    const { namespace, rememberedMs } = derivedKey;
    const key = { hash: derivedKeyHash(namespace, caller.apiKeyId, fingerprint), rememberedMs };
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

  /** Finds the job that answers for the key. A job whose time is over gives it up first. */
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
    const { callback, model } = request;
    this.#dependencies.models.require(model, caller.policy);
    const behind = { input: (background && uploadedOf(background)) ?? null };
    acceptance.requireAble({ ...request, background: behind }, uploadedOf(image));
    if (callback !== undefined) {
      if (!isReadableSecret(callback.secret)) {
        throw invalidCallback('callback_secret', UNREADABLE_SECRET);
      }
      await callbackAddresses.require(callback.url, caller.accountId);
    }
    if (this.#draining) {
      throw new ContractError(
        'SERVICE_UNAVAILABLE',
        'This replica is shutting down. Send the same request again.',
        {
          retryAfterS: DRAINING_RETRY_AFTER_S,
        },
      );
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
      // Jobs in flight come before saturation. Every open job holds one reserved credit.
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
    const { model, noSubject } = request;
    const id = sent.upload.jobId;
    const { image: input = null, background = null } = stored;
    const hasBackground = background !== null || backgroundUrl !== undefined;
    const job: NewJob = {
      id,
      accountId: caller.accountId,
      apiKeyId: caller.apiKeyId,
      idempotencyKeyHash: keyHash,
      fingerprint,
      class: unpaid === undefined ? mode : UNPAID,
      outputFormat,
      model,
      noSubject,
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
        throw new ContractError('INSUFFICIENT_CREDITS', NO_CREDIT);
      case 'key-cap-reached':
        throw new ContractError('KEY_CAP_REACHED', outcome.detail);
      case 'refused':
        throw new AllowanceError(outcome.reason);
    }
  }

  /** The key is checked once more: names were looked up and pictures stored since. */
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
      // Once it has begun the row may exist, so the input stays: an input without a row is swept.
      if (!began || error instanceof NotBegunError)
        await removePictures(this.#dependencies.blobs, job);
      throw error;
    }
  }

  #tooManyInFlight(): ContractError {
    const detail = `The account already has ${this.#dependencies.jobsInFlightMax} jobs in flight. Wait until one ends.`;
    return new ContractError('RATE_LIMITED', detail, { retryAfterS: IN_FLIGHT_RETRY_AFTER_S });
  }
}

/**
 * Join or replay. A form of what is unpaid is its own key: sent again it is the same picture.
 * @throws ContractError IDEMPOTENCY_CONFLICT
 */
function existing(job: Job, { unpaid }: Sent, fingerprint: string): Submitted {
  if (unpaid !== undefined || job.fingerprint === fingerprint) return { job, created: false };
  const detail =
    'This Idempotency-Key belongs to a request with other content. Send another key for another ' +
    'image or other fields.';
  throw new ContractError('IDEMPOTENCY_CONFLICT', detail, { jobId: job.id });
}

/**
 * A derived key's job no longer answers for it: `freeKey` repeats the rule. From its end:
 * who asks again and again while the queue is long would pay for each job and get none.
 */
export function isForgotten(
  { finishedAtMs, expiresAtMs, readAtMs }: Pick<Job, 'finishedAtMs' | 'expiresAtMs' | 'readAtMs'>,
  rememberedMs: number,
): boolean {
  const isExpired = expiresAtMs !== null && readAtMs >= expiresAtMs;
  return finishedAtMs !== null && (isExpired || readAtMs - finishedAtMs >= rememberedMs);
}
