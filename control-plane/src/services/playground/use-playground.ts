/**
 * The playground of an account: pictures that spend no credits (docs/adr/0022). The same checks of
 * a picture and its fields as a submission, the same nodes; an allowance in place of the balance.
 */
import { ContractError } from '#contract/errors.ts';
import { Semaphore } from '#program/semaphore.ts';
import { activeKeptContext } from '#program/tracing/active-span.ts';
import type { Job } from '../../domain/job.ts';
import { PLAYGROUND_OPEN_MAX } from '../../domain/playground.ts';
import type { BlobStore } from '../../storage/blob-store.ts';
import { NotBegunError } from '../../store/database/request-shares.ts';
import type { JobStore, NewJob } from '../../store/jobs/job-store.ts';
import type { PlaygroundStore } from '../../store/jobs/playground-store.ts';
import type { JobEvents } from '../job-events.ts';
import type { AcceptanceGate } from '../submission/acceptance.ts';
import {
  type FieldPolicy,
  type MattingFields,
  requireMattingRequest,
} from '../submission/submit-fields.ts';
import { idempotencyKeyHash } from '../submission/submit-fingerprint.ts';
import type { ImageUploads, RequestUploads } from '../submission/submit-upload.ts';
import {
  commitPictures,
  fingerprintOfPictures,
  finishPictures,
  jobInputs,
  removePictures,
  requireStored,
} from '../submission/submitted-pictures.ts';

/** Pictures that playgrounds send at once to one replica; uploads that are paid for have the rest. */
export const PLAYGROUND_UPLOADS_MAX = 16;
/** As many wait as may: whoever comes then is told to come again. */
const BUSY_RETRY_AFTER_S = 30;
const DRAINING_RETRY_AFTER_S = 1;
const UPLOADS_RETRY_AFTER_S = 5;

export interface PlaygroundDependencies {
  readonly playground: PlaygroundStore;
  readonly jobs: Pick<JobStore, 'findForKey' | 'findByIdempotencyKey'>;
  readonly blobs: Pick<BlobStore, 'remove'>;
  readonly uploads: Pick<ImageUploads, 'beginBoth'>;
  readonly events: Pick<JobEvents, 'jobSubmitted'>;
  readonly acceptance: Pick<AcceptanceGate, 'requireAble' | 'requireRoom'>;
  readonly isDraining: () => boolean;
  /** Pictures of an account a day; 0: the playground is off. */
  readonly imagesMax: number;
  readonly fieldPolicy: FieldPolicy;
}

export interface PlaygroundAllowance {
  readonly imagesMax: number;
  readonly left: number;
  /** When the next day begins. */
  readonly resetsAtMs: number;
}

/** A body on its way: reads it into the uploads and answers its fields. */
export type ReadPictures = (uploads: RequestUploads) => Promise<{
  readonly fields: MattingFields;
  /** Random, of the form: sent again it is the same request. */
  readonly once: string;
}>;

export type PlaygroundAnswer =
  | { readonly kind: 'job'; readonly job: Job }
  | { readonly kind: 'allowance-used' }
  | { readonly kind: 'too-many-open' };

export class UsePlayground {
  readonly #dependencies: PlaygroundDependencies;
  /** Accounts share them; nobody waits for one. */
  readonly #uploading = new Semaphore({
    max: PLAYGROUND_UPLOADS_MAX,
    waitingMax: 0,
    refusal: () => busy(UPLOADS_RETRY_AFTER_S),
  });

  constructor(dependencies: PlaygroundDependencies) {
    this.#dependencies = dependencies;
  }

  get isOn(): boolean {
    return this.#dependencies.imagesMax > 0;
  }

  /** Pictures that are being received here. */
  get uploading(): number {
    return this.#uploading.held;
  }

  async allowance(accountId: string): Promise<PlaygroundAllowance> {
    const { playground, imagesMax } = this.#dependencies;
    const { used, resetsAtMs } = await playground.usage(accountId);
    return { imagesMax, left: Math.max(0, imagesMax - used), resetsAtMs };
  }

  /**
   * Reads the body and makes its job; or says why the account gets none today. A body is read only
   * where the account may have a picture.
   * @throws ContractError what is wrong with the picture or a field; SERVICE_UNAVAILABLE
   */
  async submit(accountId: string, read: ReadPictures): Promise<PlaygroundAnswer> {
    const { playground } = this.#dependencies;
    if ((await this.allowance(accountId)).left === 0) return { kind: 'allowance-used' };
    const apiKeyId = await playground.internalKey(accountId);
    return await this.#uploading.run({ key: accountId }, async () => {
      const uploads = this.#dependencies.uploads.beginBoth(accountId);
      try {
        const { fields, once } = await read(uploads);
        return await this.#create({ accountId, apiKeyId }, uploads, { fields, once });
      } finally {
        await Promise.all([uploads.image.abort(), uploads.background.abort()]);
      }
    });
  }

  /** Undefined: no job of this account's playground. */
  async find(accountId: string, jobId: string): Promise<Job | undefined> {
    const { playground, jobs } = this.#dependencies;
    const apiKeyId = await playground.findKey(accountId);
    return apiKeyId === undefined ? undefined : jobs.findForKey(jobId, apiKeyId);
  }

  async #create(
    { accountId, apiKeyId }: { readonly accountId: string; readonly apiKeyId: string },
    uploads: RequestUploads,
    { fields, once }: { readonly fields: MattingFields; readonly once: string },
  ): Promise<PlaygroundAnswer> {
    const { jobs, blobs, events, fieldPolicy } = this.#dependencies;
    const request = requireMattingRequest(fields, fieldPolicy);
    const sent = { upload: uploads.image, backgroundUpload: uploads.background };
    const pictures = await finishPictures(sent, request, fields.backgroundGiven ?? false);
    const keyHash = idempotencyKeyHash(once);
    const known = await jobs.findByIdempotencyKey(apiKeyId, keyHash);
    if (known !== undefined) return { kind: 'job', job: known };
    const stored = {
      image: requireStored(pictures.image),
      background: requireStored(pictures.background),
    };
    const { input, background } = jobInputs(stored);
    const asked = { ...request, background: { input: background } };
    this.#dependencies.acceptance.requireAble(asked, stored.image);
    await this.#requireRoom();
    const id = uploads.image.jobId;
    const job: NewJob = {
      id,
      accountId,
      apiKeyId,
      idempotencyKeyHash: keyHash,
      fingerprint: fingerprintOfPictures(request, pictures),
      mode: 'async',
      outputFormat: request.outputFormat,
      channels: request.channels,
      traceContext: activeKeptContext(),
      ...(request.finishing === undefined ? {} : { finishing: request.finishing }),
      input,
      sourceUrl: null,
      ...(background === null ? {} : { background: { url: null, input: background } }),
    };
    await commitPictures(blobs, job, sent);
    const outcome = await this.#insert(job);
    if (outcome.kind === 'created') {
      events.jobSubmitted(outcome.job);
      return { kind: 'job', job: outcome.job };
    }
    await removePictures(blobs, job);
    return outcome.kind === 'exists' ? { kind: 'job', job: outcome.job } : outcome;
  }

  async #insert(job: NewJob) {
    const { playground, blobs, imagesMax } = this.#dependencies;
    try {
      return await playground.submit(job, { imagesMax });
    } catch (error) {
      // Once it has begun the row may exist: its input stays, or is swept.
      if (error instanceof NotBegunError) await removePictures(blobs, job);
      throw error;
    }
  }

  /** What is paid for comes first: where it waits for room at the door, a playground is refused. */
  async #requireRoom(): Promise<void> {
    const { playground, acceptance, isDraining } = this.#dependencies;
    if (isDraining()) throw busy(DRAINING_RETRY_AFTER_S);
    await acceptance.requireRoom();
    if ((await playground.openJobs()) >= PLAYGROUND_OPEN_MAX) throw busy(BUSY_RETRY_AFTER_S);
  }
}

function busy(retryAfterS: number): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', 'the playground is busy', { retryAfterS });
}
