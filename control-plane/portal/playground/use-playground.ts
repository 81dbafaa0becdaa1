/**
 * The playground of an account: pictures that spend no credits (docs/adr/0022). Each is a
 * submission like those of the API (submit-matting.ts), with an allowance in place of the balance.
 */
import { ContractError } from '#contract/errors.ts';
import { Semaphore } from '#program/semaphore.ts';
import type { Caller } from '../../core/accounts/account.ts';
import { type Job, UNPAID_OPEN_MAX } from '../../core/jobs/job.ts';
import type { JobStore } from '../../core/jobs/job-store.ts';
import type { ImageUploads, RequestUploads } from '../../core/submission/pictures.ts';
import type { MattingFields } from '../../core/submission/submit-matting.ts';
import { AllowanceError, type SubmitMatting } from '../../core/submission/submit-matting.ts';
import { type PlaygroundStore, playgroundAllowance } from './playground-store.ts';

/** Pictures that playgrounds send at once to one replica; uploads that are paid for have the rest. */
export const PLAYGROUND_UPLOADS_MAX = 16;
/** As many wait as may: whoever comes then is told to come again. */
const BUSY_RETRY_AFTER_S = 30;
const UPLOADS_RETRY_AFTER_S = 5;

export interface PlaygroundDependencies {
  readonly playground: PlaygroundStore;
  readonly jobs: Pick<JobStore, 'findForKey' | 'openUnpaid'>;
  readonly uploads: Pick<ImageUploads, 'beginBoth'>;
  readonly submitMatting: Pick<SubmitMatting, 'submit'>;
  /** Pictures of an account a day; 0: the playground is off. */
  readonly imagesMax: number;
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
   * Reads the body and makes its job. A body is read only where the account may have a picture.
   * @throws ContractError what is wrong with the picture or a field; SERVICE_UNAVAILABLE
   * @throws AllowanceError why the account gets none today: a PlaygroundRefusal
   */
  async submit(accountId: string, read: ReadPictures): Promise<Job> {
    const { playground, uploads, submitMatting, imagesMax } = this.#dependencies;
    if ((await this.allowance(accountId)).left === 0) {
      throw new AllowanceError('allowance-used');
    }
    const apiKeyId = await playground.internalKey(accountId);
    const caller: Caller = { accountId, apiKeyId };
    return await this.#uploading.run({ key: accountId }, async () => {
      const { image: upload, background: backgroundUpload } = uploads.beginBoth(accountId);
      try {
        const { fields, once } = await read({ image: upload, background: backgroundUpload });
        const { job } = await submitMatting.submit({
          caller,
          askAgain: async () => caller,
          mode: 'async',
          unpaid: {
            allowance: playgroundAllowance(imagesMax),
            requireRoom: () => this.#requireRoom(),
          },
          idempotencyKey: once,
          fields,
          upload,
          backgroundUpload,
        });
        return job;
      } finally {
        await Promise.all([upload.abort(), backgroundUpload.abort()]);
      }
    });
  }

  /** Undefined: no job of this account's playground. */
  async find(accountId: string, jobId: string): Promise<Job | undefined> {
    const { playground, jobs } = this.#dependencies;
    const apiKeyId = await playground.findKey(accountId);
    return apiKeyId === undefined ? undefined : jobs.findForKey(jobId, apiKeyId);
  }

  async #requireRoom(): Promise<void> {
    const open = await this.#dependencies.jobs.openUnpaid();
    if (open >= UNPAID_OPEN_MAX) throw busy(BUSY_RETRY_AFTER_S);
  }
}

function busy(retryAfterS: number): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', 'the playground is busy', { retryAfterS });
}
