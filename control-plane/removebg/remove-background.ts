/**
 * A request of the remove.bg interface becomes a job like every other, under a key of its own: its
 * clients send none, time out after 20 s and post the same again, and are charged once.
 */
import type {
  KeylessSubmission,
  SubmitMatting,
  Submitted,
} from '../core/submission/submit-matting.ts';
import type { RequestUploads } from '../core/submission/submit-upload.ts';
import { requireRegionIn } from './region-bounds.ts';
import type { RemovebgFields } from './removebg-fields.ts';
import { type RemovebgPolicy, requireRemovebgRequest } from './removebg-request.ts';

/**
 * From the first request on the same request joins its job or has its result again. Beyond the
 * retries of any client, and soon enough that who wants a picture made again gets that.
 */
export const REMOVEBG_REMEMBERED_MS = 600_000;
const NAMESPACE = 'removebg';

export interface RemoveBackgroundSubmission extends Pick<KeylessSubmission, 'caller' | 'askAgain'> {
  readonly fields: RemovebgFields;
  readonly uploads: RequestUploads;
}

export class RemoveBackground {
  readonly #submitMatting: Pick<SubmitMatting, 'submitKeyless'>;
  readonly #policy: RemovebgPolicy;

  constructor(submitMatting: Pick<SubmitMatting, 'submitKeyless'>, policy: RemovebgPolicy) {
    this.#submitMatting = submitMatting;
    this.#policy = policy;
  }

  /**
   * The job of this request, durable, and whether its answer names the kind of subject.
   * @throws RemovebgRefusal; ContractError every code of a refused submission
   */
  async submit(
    submission: RemoveBackgroundSubmission,
  ): Promise<Submitted & { readonly saysType: boolean }> {
    const { caller, askAgain, fields, uploads } = submission;
    const { request, saysType } = requireRemovebgRequest(fields, this.#policy);
    const region = request.finishing?.region;
    const submitted = await this.#submitMatting.submitKeyless({
      caller,
      askAgain,
      mode: 'sync',
      request,
      backgroundGiven: fields.pictures.has('bg_image_file'),
      upload: uploads.image,
      backgroundUpload: uploads.background,
      derivedKey: { namespace: NAMESPACE, rememberedMs: REMOVEBG_REMEMBERED_MS },
      requireImage: ({ width, height }) => {
        if (region !== undefined && width !== null && height !== null) {
          requireRegionIn(region, { width, height });
        }
      },
    });
    return { ...submitted, saysType };
  }
}
