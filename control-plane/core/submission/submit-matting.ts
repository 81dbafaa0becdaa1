/**
 * A submission becomes a job, or meets the one its Idempotency-Key already made. The order is the
 * contract's: the body, then replay, join or conflict, then what no node can do, the callback's
 * secret behind `whsec_` and its address, jobs in flight, saturation and credits, which never refuse
 * a join or a replay.
 */

import { NotBegunError } from '@matting/database/database.ts';
import { OVERLONG, type TextValue } from '@matting/http/bodies.ts';
import { FETCH_LIMITS } from '@matting/http/outgoing/guarded-fetch.ts';
import {
  type CallbackPolicy,
  ForbiddenUrlError,
  type OutgoingPolicy,
  requireOutgoingUrl,
} from '@matting/http/outgoing/outgoing-url.ts';
import { isReadableSecret, UNREADABLE_SECRET } from '@matting/http/outgoing/webhook-signature.ts';
import { Remembered } from '@matting/program/remembered.ts';
import { activeKeptContext, describeSpan, traced } from '@matting/program/tracing/active-span.ts';
import {
  ContractError,
  invalidParameter,
  unsupportedOutput,
} from '@matting/proto/contract/errors.ts';
import {
  FINISHING_FIELDS,
  type FinishingField,
  isOpaque,
  parseFinishing,
} from '@matting/proto/contract/finishing/fields.ts';
import type { Channels, Finishing } from '@matting/proto/contract/finishing.ts';
import {
  contentTypeOf,
  type OutputFormat,
  parseOutputFormat,
  TRANSPARENT_FORMATS,
} from '@matting/proto/contract/formats.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import type { Caller, ReadAccount } from '../accounts/account.ts';
import {
  type AskedOfNode,
  aheadOf,
  type NodeAbility,
  needsBeforeImage,
  needsOf,
  RETRY_AFTER_MAX_S,
  refusalOf,
  retryAfterS,
} from '../dispatch/job-needs.ts';
import { type CallbackAddressCheck, requireCallbackUrl } from '../fetching/callback-check.ts';
import type { Job, JobInput } from '../jobs/job.ts';
import type { QueuedWork } from '../jobs/job-rows.ts';
import type { JobStore } from '../jobs/job-store.ts';
import type { Allowance, NewJob, SubmitOutcome } from '../jobs/job-transactions.ts';
import type { OfferedModels } from '../models/offered-models.ts';
import type { JobEvents } from '../results/job-view.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import {
  commitPictures,
  derivedKeyHash,
  fingerprintOfPictures,
  finishPictures,
  idempotencyKeyHash,
  type Pictures,
  removePictures,
  requireStored,
  SEND_ITSELF,
  type SentPictures,
  uploadedOf,
} from './pictures.ts';

const NO_CREDIT =
  'The account has no credits left. Buy credits, then send the same request again. GET /v1/account shows the balance.';
const IN_FLIGHT_RETRY_AFTER_S = 5;
const DRAINING_RETRY_AFTER_S = 1;

interface SubmitMattingDependencies {
  readonly jobs: Pick<JobStore, 'findByIdempotencyKey' | 'freeKey' | 'submit'>;
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
  /** Of what nobody pays for, which has bounds of its own. */
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
  /** Stands for the Idempotency-Key: made of what is asked for, and of the interface's name. */
  readonly derivedKey: {
    readonly namespace: string;
    /** How long its job answers, from its end on. */
    readonly rememberedMs: number;
  };
  /** What the interface asks of the image besides; throws a ContractError. */
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
   * For a caller who sends no key: the same request joins or replays, until its time is over.
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
      class: unpaid === undefined ? mode : 'playground',
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
      // Once it has begun the row may exist, so the input stays: one without a row is swept.
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

export const MATTING_FIELDS = [
  'image_url',
  'image_base64',
  'output_format',
  'model',
  'no_subject',
  'callback_url',
  'callback_secret',
  ...FINISHING_FIELDS,
] as const;
type MattingField = (typeof MATTING_FIELDS)[number];
export type TextField = Exclude<MattingField, 'image_base64'>;

/** A body's fields as they were sent; absent and null are the same. */
export interface MattingFields {
  readonly texts: ReadonlyMap<TextField, TextValue>;
  /** Whether image_base64 was a string, an empty one too. Its bytes go into the upload. */
  readonly imageGiven: boolean;
  readonly backgroundGiven?: boolean;
}

export interface MattingRequest {
  readonly imageUrl: string | undefined;
  readonly outputFormat: OutputFormat;
  /** A plan or a model that nodes have; absent: the nodes' own plan. */
  readonly model?: string | undefined;
  /** Where no subject is seen; absent: it succeeds all the same. */
  readonly noSubject?: 'fail' | undefined;
  readonly channels: Channels;
  readonly finishing: Finishing | undefined;
  /** Undefined: none, or it came as a file. */
  readonly backgroundUrl: string | undefined;
  readonly callback: { readonly url: string; readonly secret: string } | undefined;
}

interface FieldPolicy extends OutgoingPolicy, CallbackPolicy {}

/** What a result without transparency may be made in, the default first. */
const OPAQUE_FORMATS: readonly OutputFormat[] = [...TRANSPARENT_FORMATS, 'jpeg'];

const CALLBACK_SECRET = /^[\x20-\x7e]{24,128}$/;

/**
 * Checks in the contract's order: one source, the output format, what is made of the cut-out,
 * whether that is accepted, the callback pair, the URLs' texts.
 * @param accepts decides the output format where none is named
 * @throws ContractError INVALID_IMAGE_SOURCE, UNSUPPORTED_OUTPUT_FORMAT, NOT_ACCEPTABLE,
 *   INVALID_PARAMETER, INVALID_CALLBACK
 */
export function requireMattingRequest(
  fields: MattingFields,
  policy: FieldPolicy,
  accepts: AcceptedAnswers = JSON_ALONE,
): MattingRequest {
  const { texts, imageGiven, backgroundGiven = false } = fields;
  const url = texts.get('image_url');
  if ((url !== undefined) === imageGiven) throw notOneSource(imageGiven);
  const named = requireOutputFormat(texts.get('output_format'));
  const { channels, finishing } = parseFinishing(finishingTexts(texts), {
    // Where none is named, one of those below, each of which goes with what is asked for.
    outputFormat: named ?? DEFAULT_FORMAT,
    backgroundFile: backgroundGiven,
  });
  const formats = isOpaque(finishing?.background) ? OPAQUE_FORMATS : TRANSPARENT_FORMATS;
  const outputFormat = requireAcceptedFormat(named, formats, accepts);
  const callback = requireCallback(texts.get('callback_url'), texts.get('callback_secret'), policy);
  return {
    imageUrl: url === undefined ? undefined : requireUrl(url, policy),
    outputFormat,
    model: requireShort('model', texts.get('model')),
    noSubject: requireNoSubject(texts.get('no_subject')),
    channels,
    finishing,
    backgroundUrl: requireBackground(texts.get('background_url'), policy),
    callback,
  };
}

function notOneSource(bothGiven: boolean): ContractError {
  const given = bothGiven ? 'more than one image' : 'no image';
  const detail = `The request has ${given}. Send one of image_url, image_base64.`;
  const fieldErrors = ['image_url', 'image_base64'].map(field => ({ field, detail }));
  return new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
}

function requireOutputFormat(given: TextValue | undefined): OutputFormat | undefined {
  if (given === undefined) return undefined;
  const format = given === OVERLONG ? undefined : parseOutputFormat(given);
  // The archive is of the other interface and of gRPC.
  if (format !== undefined && format !== 'zip') return format;
  throw unsupportedOutput(`must be one of ${TRANSPARENT_FORMATS.join(', ')}`);
}

/** @throws ContractError INVALID_PARAMETER where one is over every rule's length */
function finishingTexts(texts: MattingFields['texts']): Map<FinishingField, string> {
  const given = new Map<FinishingField, string>();
  for (const field of FINISHING_FIELDS) {
    const text = requireShort(field, texts.get(field));
    if (text !== undefined) given.set(field, text);
  }
  return given;
}

function requireShort(field: string, text: TextValue | undefined): string | undefined {
  if (text === OVERLONG) throw invalidParameter(field, 'is too long');
  return text;
}

function requireNoSubject(text: TextValue | undefined): MattingRequest['noSubject'] {
  if (text === undefined || text === 'fail') return text;
  throw invalidParameter(
    'no_subject',
    'must be fail. Leave it out to get a result without a subject',
  );
}

function requireBackground(given: TextValue | undefined, policy: OutgoingPolicy) {
  const url = requireShort('background_url', given);
  if (url !== undefined) requireBackgroundUrl(url, policy);
  return url;
}

function requireUrl(url: TextValue, policy: OutgoingPolicy): string {
  if (url === OVERLONG) {
    const detail = `image_url is too long. The limit is ${URL_LENGTH_MAX} characters.`;
    const fieldErrors = [{ field: 'image_url', detail }];
    throw new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
  }
  requireImageUrl(url, policy);
  return url;
}

function requireCallback(
  url: TextValue | undefined,
  secret: TextValue | undefined,
  policy: FieldPolicy,
): MattingRequest['callback'] {
  if (url === undefined && secret === undefined) return undefined;
  const pair = 'is missing. Send callback_url and callback_secret together';
  if (url === undefined) throw invalidCallback('callback_url', pair);
  if (secret === undefined) throw invalidCallback('callback_secret', pair);
  if (url === OVERLONG) {
    throw invalidCallback('callback_url', `must be at most ${URL_LENGTH_MAX} characters`);
  }
  requireCallbackUrl(url, policy);
  if (secret === OVERLONG || !CALLBACK_SECRET.test(secret)) {
    throw invalidCallback('callback_secret', 'must be 24 to 128 printable ASCII characters');
  }
  return { url, secret };
}

function invalidCallback(field: 'callback_url' | 'callback_secret', wrong: string): ContractError {
  const fieldErrors = [{ field, detail: wrong }];
  return new ContractError('INVALID_CALLBACK', `${field} ${wrong}.`, { fieldErrors });
}

export interface AcceptedAnswers {
  /**
   * The caller's choice among JSON and the picture in one of these formats, the service's
   * favourite first. 'none': the caller takes a picture, but in none of these formats.
   */
  prefer(formats: readonly OutputFormat[]): OutputFormat | 'json' | 'none';
}

export const JSON_ALONE: AcceptedAnswers = { prefer: () => 'json' };

/** Of a request that names none and whose caller takes JSON. */
const DEFAULT_FORMAT: OutputFormat = 'png';

/** The named one, else one that the caller takes, else PNG. @throws ContractError NOT_ACCEPTABLE */
function requireAcceptedFormat(
  named: OutputFormat | undefined,
  formats: readonly OutputFormat[],
  accepts: AcceptedAnswers,
): OutputFormat {
  const choice = accepts.prefer(named === undefined ? formats : [named]);
  if (choice === 'json') return named ?? DEFAULT_FORMAT;
  if (choice !== 'none') return choice;
  if (named === undefined) {
    const types = formats.map(contentTypeOf).join(', ');
    throw new ContractError(
      'NOT_ACCEPTABLE',
      `Accept takes neither JSON nor an image type that this request can produce. Add one of ${types}.`,
    );
  }
  const detail = `Accept does not take ${contentTypeOf(named)}, which output_format asks for. Name one format in both.`;
  const fieldErrors = [{ field: 'output_format', detail }];
  throw new ContractError('NOT_ACCEPTABLE', detail, { fieldErrors });
}

/** The parser would drop some and escape others. */
const CONTROL_CHARACTER = /\p{Cc}/u;
/** Before the host: the parser drops an empty one without a trace. */
const EMPTY_USERINFO = /^ *https?:[/\\]*:?@/i;

export function requireImageUrl(text: string, policy: OutgoingPolicy): void {
  requireUsable(text, policy, cause => {
    const wrong = `is not usable: ${cause.message}`;
    const fieldErrors = [{ field: 'image_url', detail: wrong }];
    const detail = `image_url ${wrong}. ${SEND_ITSELF}`;
    return new ContractError('INVALID_IMAGE_SOURCE', detail, { cause, fieldErrors });
  });
}

export function requireBackgroundUrl(text: string, policy: OutgoingPolicy): void {
  requireUsable(text, policy, ({ message }) =>
    invalidParameter('background_url', `is not usable: ${message}`),
  );
}

function requireUsable(
  text: string,
  policy: OutgoingPolicy,
  refusalOf: (forbidden: ForbiddenUrlError) => ContractError,
): void {
  try {
    if (CONTROL_CHARACTER.test(text)) {
      throw new ForbiddenUrlError('it has a control character');
    }
    requireOutgoingUrl(text, policy);
    if (EMPTY_USERINFO.test(text)) {
      throw new ForbiddenUrlError('it must have no user name or password');
    }
  } catch (error) {
    if (!(error instanceof ForbiddenUrlError)) throw error;
    throw refusalOf(error);
  }
}

/**
 * A derived key's job no longer answers for it: JobStore.freeKey repeats the rule. From its end:
 * who asks again and again while the queue is long would pay for each job and get none.
 */
export function isForgotten(
  { finishedAtMs, expiresAtMs, readAtMs }: Pick<Job, 'finishedAtMs' | 'expiresAtMs' | 'readAtMs'>,
  rememberedMs: number,
): boolean {
  const isExpired = expiresAtMs !== null && readAtMs >= expiresAtMs;
  return finishedAtMs !== null && (isExpired || readAtMs - finishedAtMs >= rememberedMs);
}

/** The rate limits bound what is accepted in between. */
const QUEUE_CACHE_MS = 1000;
const NO_NODE_RETRY_AFTER_S = 10;
const PACE_WINDOWS_MS = [60_000, 600_000];
const PACE_CACHE_MS = 5000;

interface AcceptanceDependencies {
  readonly jobs: Pick<JobStore, 'queued' | 'doneWithin'>;
  /** Since a node was last routable here, or the start. Absent: nodes come when there is work. */
  readonly unroutableMs?: (() => number) | undefined;
  readonly noNodeGraceMs: number;
  readonly advertised: () => readonly NodeAbility[] | undefined;
  readonly queueMegapixelsMax: number;
  readonly now?: () => number;
}

export class AcceptanceGate {
  readonly #dependencies: AcceptanceDependencies;
  readonly #queued: Remembered<QueuedWork>;
  readonly #megapixelsPerS: Remembered<number>;

  constructor(dependencies: AcceptanceDependencies) {
    const { jobs, now = () => performance.now() } = dependencies;
    this.#dependencies = dependencies;
    this.#queued = new Remembered(() => jobs.queued(), QUEUE_CACHE_MS, now);
    this.#megapixelsPerS = new Remembered(() => megapixelsPerS(jobs), PACE_CACHE_MS, now);
  }

  /**
   * @param image undefined: it is not there yet, and its job finds out
   * @throws ContractError of the field that none can follow, or of the image
   */
  requireAble(asked: AskedOfNode, image: JobInput | undefined): void {
    const nodes = this.#dependencies.advertised();
    if (nodes === undefined) return;
    const needs = image === undefined ? needsBeforeImage(asked) : needsOf(image, asked);
    const refusal = refusalOf(nodes, needs);
    if (refusal !== undefined) throw refusal;
  }

  /** @throws ContractError SERVICE_UNAVAILABLE: the account may not add a job */
  async requireOpen(accountId: string): Promise<void> {
    const { queueMegapixelsMax } = this.#dependencies;
    this.#requireNode();
    const { byAccount } = await this.#queued.get();
    const ahead = aheadOf(accountId, byAccount, queueMegapixelsMax);
    if (ahead === undefined) return;
    const megapixelsPerS = await this.#megapixelsPerS.get();
    throw new ContractError(
      'SERVICE_UNAVAILABLE',
      'The queue is full. Send the same request again after Retry-After.',
      {
        retryAfterS: retryAfterS(ahead, { megapixelsPerS, fetchMsMax: FETCH_LIMITS.totalMs }),
      },
    );
  }

  /** For the playground. @throws ContractError SERVICE_UNAVAILABLE: no account may add a job */
  async requireRoom(): Promise<void> {
    this.#requireNode();
    const { megapixels } = await this.#queued.get();
    if (megapixels < this.#dependencies.queueMegapixelsMax) return;
    throw new ContractError(
      'SERVICE_UNAVAILABLE',
      'The queue is full. Send the same request again after Retry-After.',
      {
        retryAfterS: RETRY_AFTER_MAX_S,
      },
    );
  }

  #requireNode(): void {
    const { unroutableMs, noNodeGraceMs } = this.#dependencies;
    if (unroutableMs === undefined || unroutableMs() <= noNodeGraceMs) return;
    throw new ContractError(
      'SERVICE_UNAVAILABLE',
      'No inference node is available. Send the same request again after Retry-After.',
      {
        retryAfterS: NO_NODE_RETRY_AFTER_S,
      },
    );
  }
}

/** The higher of two: a minute in which no job finished does not predict the next. */
async function megapixelsPerS(jobs: Pick<JobStore, 'doneWithin'>): Promise<number> {
  const paces = PACE_WINDOWS_MS.map(async windowMs => {
    const { megapixels } = await jobs.doneWithin(windowMs);
    return (megapixels * 1000) / windowMs;
  });
  return Math.max(...(await Promise.all(paces)));
}
