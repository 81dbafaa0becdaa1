/**
 * Checks in the contract's order: the body; replay, join or conflict; abilities of the nodes; the
 * callback's secret and address; jobs in flight; a full queue; credits.
 */

import type { Caller, ReadAccount } from '@matting/accounts/keys/caller.ts';
import { CREDITS_PER_JOB } from '@matting/accounts/ledger/ledger.ts';
import { NotBegunError } from '@matting/database/database.ts';
import { activeKeptContext, describeSpan, traced } from '@matting/program/tracing/active-span.ts';
import { ContractError, unavailable } from '@matting/proto/contract/errors.ts';
import type { IdempotencyKey } from '@matting/queue/idempotency.ts';
import { UNPAID } from '@matting/queue/job.ts';
import type { SubmitOutcome } from '@matting/queue/submit-job.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import {
  type CorrectedJob,
  cropRunFor,
  inheritedFields,
  keptFields,
  requireCorrectable,
} from '../corrections/correctable.ts';
import type { CallbackAddressCheck } from '../fetching/callback-check.ts';
import type { Job } from '../jobs/job.ts';
import type { JobInput } from '../jobs/job-request.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { OfferedModels } from '../models/offered-models.ts';
import type { JobTemplate, NewJob } from '../queue/matting-submission.ts';
import type { Queue } from '../queue/queue.ts';
import type { JobEvents } from '../results/job-events.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';
import type { AcceptanceGate } from './acceptance-gate.ts';
import { correctionFingerprintOf, derivedKeyHash, idempotencyKeyHash } from './fingerprint.ts';
import {
  type AcceptedAnswers,
  type FieldPolicy,
  type MattingFields,
  type MattingRequest,
  requireMattingRequest,
} from './matting-request.ts';
import {
  commitPictures,
  fingerprintOfPictures,
  finishBackground,
  finishHints,
  finishPictures,
  type Pictures,
  type RequireImage,
  removePictures,
  requireFits,
  requireStored,
  type SentPictures,
  uploadedOf,
} from './pictures.ts';

/** @param sells false: only the operator grants credits */
export function noCredit(sells: boolean, images = 1): ContractError {
  const more = sells
    ? 'Buy credits'
    : 'Ask the operator for credits (`matting credits grant <account> <credits>`)';
  const left = images === 1 ? 'no' : `fewer than ${images}`;
  const detail =
    `The account has ${left} credits left. ${more}, then send the same request again. ` +
    'GET /v1/account shows the balance.';
  return new ContractError('INSUFFICIENT_CREDITS', detail);
}
const IN_FLIGHT_RETRY_AFTER_S = 5;
const DRAINING_RETRY_AFTER_S = 1;

interface SubmitMattingDependencies {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly queue: Pick<Queue, 'submit' | 'isKeyTaken' | 'findByKey'>;
  readonly readAccount: Pick<ReadAccount, 'capRefusal' | 'credits' | 'inFlight'>;
  readonly blobs: Pick<BlobStore, 'remove'>;
  readonly events: JobEvents;
  readonly acceptance: Pick<AcceptanceGate, 'requireAble' | 'requireOpen'>;
  readonly models: Pick<OfferedModels, 'require'>;
  readonly callbackAddresses: Pick<CallbackAddressCheck, 'requireOf'>;
  readonly callbackSecrets: Pick<CallbackSecrets, 'seal'>;
  readonly sells: boolean;
  readonly jobsInFlightMax: number;
  readonly fieldPolicy: FieldPolicy;
}

interface Sent extends SentPictures {
  readonly caller: Caller;
  readonly recheckCaller: () => Promise<Caller>;
  readonly mode: 'sync' | 'async';
  /** Set: the job is free, and counts for the day that begins at this time. */
  readonly unpaidDayMs?: number | null;
}

interface Submission extends Sent {
  readonly idempotencyKey: string;
  readonly fields: MattingFields;
  readonly accepts?: AcceptedAnswers;
}

/** Used if there is no Idempotency-Key. */
interface DerivedKey {
  readonly namespace: string;
  /** How long after the job's end the key is remembered. */
  readonly rememberedMs: number;
}

interface CorrectionSubmission extends Omit<Submission, 'accepts' | 'idempotencyKey'> {
  readonly idempotencyKey: string | DerivedKey;
  readonly corrects: CorrectedJob;
}

export interface KeylessSubmission extends Sent {
  readonly request: MattingRequest;
  readonly backgroundGiven: boolean;
  readonly derivedKey: DerivedKey;
  readonly requireImage?: RequireImage;
}

interface Resolved {
  readonly request: MattingRequest;
  readonly pictures: Pick<Pictures, 'background' | 'hints'> & Partial<Pictures>;
  readonly corrects?: CorrectedJob;
  readonly fingerprint: string;
  readonly key: IdempotencyKey;
}

interface StoredPictures extends Readonly<Record<keyof Pictures, JobInput | undefined>> {
  readonly correction?: NewJob['correction'];
}

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
   * The job is durable once this resolves. @throws ContractError every code of a refused submission
   */
  async submit(submission: Submission): Promise<Submitted> {
    const { fields, accepts, idempotencyKey } = submission;
    const request = requireMattingRequest(fields, this.#dependencies.fieldPolicy, accepts);
    const pictures = await finishPictures(submission, request, fields.backgroundGiven ?? false);
    const fingerprint = fingerprintOfPictures(request, pictures);
    const key = { hash: idempotencyKeyHash(idempotencyKey) };
    return await this.#traced(submission, { request, pictures, fingerprint, key });
  }

  /** For routes that look for the job before they read the rest of a body. */
  findMade(caller: Caller, idempotencyKey: string): Promise<Job | undefined> {
    return this.#find(caller, { hash: idempotencyKeyHash(idempotencyKey) });
  }

  /**
   * Inherits fields that are not sent.
   * @throws ContractError as `submit`; JOB_NOT_CORRECTABLE, RESULT_EXPIRED, CORRECTIONS_EXHAUSTED
   */
  async submitCorrection(submission: CorrectionSubmission): Promise<Submitted> {
    const { caller, fields: sent, idempotencyKey, corrects } = submission;
    const given = sent.backgroundGiven ?? false;
    const merged = inheritedFields(sent.texts, given, corrects);
    const fields = { ...sent, texts: merged, imageGiven: true };
    const required = requireMattingRequest(fields, this.#dependencies.fieldPolicy);
    const request = { ...required, correctable: keptFields(merged) };
    const pictures = {
      ...(await finishBackground(submission.backgroundUpload, request.backgroundUrl, given)),
      ...(await finishHints(submission.hintsUpload, request.hints)),
    };
    const { background, hints } = pictures;
    const texts = sent.texts as ReadonlyMap<string, string>;
    const backgroundHash = background &&
      'sha256' in background && { background_sha256: background.sha256 };
    const files = { ...backgroundHash, ...(hints && { hints_sha256: hints.sha256 }) };
    const fingerprint = correctionFingerprintOf({ jobId: corrects.id, texts, files });
    const key =
      typeof idempotencyKey === 'string'
        ? { hash: idempotencyKeyHash(idempotencyKey) }
        : storedKeyOf(idempotencyKey, caller, fingerprint);
    return await this.#traced(submission, { request, pictures, fingerprint, key, corrects });
  }

  /**
   * The same request gets the same job while its key is remembered.
   * @throws ContractError as `submit`, and as `requireImage`
   */
  async submitKeyless(submission: KeylessSubmission): Promise<Submitted> {
    const { caller, request, backgroundGiven, derivedKey, requireImage } = submission;
    const pictures = await finishPictures(submission, request, backgroundGiven, requireImage);
    const fingerprint = fingerprintOfPictures(request, pictures);
    const key = storedKeyOf(derivedKey, caller, fingerprint);
    return await this.#traced(submission, { request, pictures, fingerprint, key });
  }

  #traced(sent: Sent, resolved: Resolved): Promise<Submitted> {
    const attributes = { 'matting.job.mode': sent.mode };
    return traced({ name: 'submit', kind: 'PRODUCER', attributes }, async () => {
      const submitted = await this.#joinOrCreate(sent, resolved);
      const { job, created } = submitted;
      describeSpan({ 'matting.job.id': job.id, 'matting.outcome': created ? 'created' : 'joined' });
      return submitted;
    });
  }

  async #joinOrCreate(sent: Sent, resolved: Resolved): Promise<Submitted> {
    const { fingerprint, key } = resolved;
    const known = await this.#find(sent.caller, key);
    if (known !== undefined) return existing(known, sent, fingerprint);
    const isTaken = await this.#dependencies.queue.isKeyTaken(sent.caller.apiKeyId, key.hash);
    if (isTaken) throw keyConflict(undefined);
    let stored: StoredPictures;
    try {
      stored = await this.#requireAccepting(sent, resolved);
    } catch (refusal) {
      // A concurrent repeat may have made the job; a join is not refused.
      const made =
        refusal instanceof ContractError ? await this.#find(sent.caller, key) : undefined;
      if (made === undefined) throw refusal;
      return existing(made, sent, fingerprint);
    }
    return await this.#create(sent, resolved, stored);
  }

  #find({ apiKeyId }: Caller, key: IdempotencyKey): Promise<Job | undefined> {
    return this.#dependencies.queue.findByKey(apiKeyId, key);
  }

  async #requireAccepting(
    { caller, upload, unpaidDayMs }: Sent,
    { request, pictures: { image, background, hints }, corrects }: Resolved,
  ): Promise<StoredPictures> {
    const { acceptance, callbackAddresses, readAccount, jobsInFlightMax } = this.#dependencies;
    const { callback, model } = request;
    const family = corrects && (await requireCorrectable(this.#dependencies.jobs, corrects.id));
    if (family !== undefined) requireFits(request.finishing, family.input);
    const shown = family?.input ?? (image && uploadedOf(image));
    this.#dependencies.models.require(model, caller.policy);
    const backgroundImage = { input: (background && uploadedOf(background)) ?? null };
    const hintsFile = hints && uploadedOf(hints);
    acceptance.requireAble({ ...request, background: backgroundImage, hintsFile }, shown);
    await callbackAddresses.requireOf(callback, caller.accountId);
    if (this.#draining) {
      throw unavailable(
        'This replica is shutting down. Send the same request again.',
        DRAINING_RETRY_AFTER_S,
      );
    }
    try {
      const stored = {
        image: family?.input ?? requireStored(image),
        background: requireStored(background),
        hints: requireStored(hints),
        correction: family && {
          ...family.correction,
          cropRun: cropRunFor(request.hints ?? {}, family.model),
        },
      };
      await acceptance.requireOpen(caller.accountId);
      if (upload.isCopy) await this.#requireCredit(caller);
      await upload.copy();
      return stored;
    } catch (refusal) {
      if (unpaidDayMs != null) throw refusal;
      // The contract checks jobs in flight before a full queue.
      throw (await readAccount.inFlight(caller)) >= jobsInFlightMax
        ? this.#tooManyInFlight()
        : refusal;
    }
  }

  /** The job's transaction decides, but an early refusal saves a copy. */
  async #requireCredit(caller: Caller): Promise<void> {
    const { readAccount, jobsInFlightMax, sells } = this.#dependencies;
    if ((await readAccount.inFlight(caller)) >= jobsInFlightMax) throw this.#tooManyInFlight();
    if ((await readAccount.credits(caller)).available < CREDITS_PER_JOB) throw noCredit(sells);
    const reached = await readAccount.capRefusal(caller);
    if (reached !== undefined) throw new ContractError('KEY_CAP_REACHED', reached);
  }

  async #create(
    sent: Sent,
    { request, fingerprint, key }: Resolved,
    stored: StoredPictures,
  ): Promise<Submitted> {
    const { events, callbackSecrets } = this.#dependencies;
    const { caller, mode, unpaidDayMs } = sent;
    const { imageUrl, reference, callback } = request;
    const id = sent.upload.jobId;
    const { image: input = null, background = null, hints: hintsFile, correction } = stored;
    const job: NewJob = {
      ...templateOf(request, background),
      id,
      accountId: caller.accountId,
      apiKeyId: caller.apiKeyId,
      idempotencyKeyHash: key.hash,
      fingerprint,
      class: unpaidDayMs == null ? mode : UNPAID,
      unpaidDayMs,
      correction,
      reference,
      hintsFile,
      input,
      sourceUrl: imageUrl ?? null,
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
        throw noCredit(this.#dependencies.sells);
      case 'key-taken':
        throw keyConflict(undefined);
      case 'key-cap-reached':
        throw new ContractError('KEY_CAP_REACHED', outcome.detail);
      case 'refused': {
        const { of = '' } = correction ?? {};
        await requireCorrectable(this.#dependencies.jobs, of);
        throw new ContractError('JOB_NOT_CORRECTABLE', 'The job takes no corrections.');
      }
    }
  }

  /** Checks the key again, because look-ups and the upload took time. */
  async #insert(job: NewJob, { recheckCaller }: Sent): Promise<SubmitOutcome<Job>> {
    const { queue, jobsInFlightMax } = this.#dependencies;
    let began = false;
    try {
      const { policy } = await recheckCaller();
      const newJob = { ...job, keyHasCap: policy?.cap !== undefined };
      began = true;
      return await queue.submit(newJob, { jobsInFlightMax });
    } catch (error) {
      // Once begun, the insert may have made the row. The sweep removes pictures without a row.
      if (!began || error instanceof NotBegunError)
        await removePictures(this.#dependencies.blobs, job);
      throw error;
    }
  }

  #tooManyInFlight(): ContractError {
    const detail = `The account can have ${this.#dependencies.jobsInFlightMax} jobs in flight. Wait until one ends.`;
    return new ContractError('RATE_LIMITED', detail, { retryAfterS: IN_FLIGHT_RETRY_AFTER_S });
  }
}

function storedKeyOf(
  { namespace, rememberedMs }: DerivedKey,
  { apiKeyId }: Caller,
  fingerprint: string,
): IdempotencyKey {
  return { hash: derivedKeyHash(namespace, apiKeyId, fingerprint), rememberedMs };
}

export function templateOf(request: MattingRequest, background: JobInput | null): JobTemplate {
  const { outputFormat, model, noSubject, channels, finishing, backgroundUrl, hints } = request;
  const hasBackground = background !== null || backgroundUrl !== undefined;
  return {
    outputFormat,
    model,
    noSubject,
    correctable: request.correctable,
    hints,
    channels,
    traceContext: activeKeptContext(),
    ...(finishing === undefined ? {} : { finishing }),
    ...(hasBackground ? { background: { url: backgroundUrl ?? null, input: background } } : {}),
  };
}

export function keyConflict(jobId: string | undefined): ContractError {
  const detail =
    'This Idempotency-Key belongs to a request with other content. Send another key for another ' +
    'image or other fields.';
  return new ContractError('IDEMPOTENCY_CONFLICT', detail, { jobId });
}

/**
 * An unpaid job has the key of its form. The same form again means the same picture.
 * @throws ContractError IDEMPOTENCY_CONFLICT
 */
function existing(job: Job, { unpaidDayMs }: Sent, fingerprint: string): Submitted {
  if (unpaidDayMs != null || job.fingerprint === fingerprint) return { job, created: false };
  throw keyConflict(job.id);
}
