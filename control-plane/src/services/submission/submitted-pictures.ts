/**
 * The pictures of a submission: what their uploads brought at the end of the body, and where they
 * are stored for its job.
 */
import { ContractError } from '#contract/errors.ts';
import { frameRange, requireFrame } from '#contract/finishing/frame.ts';
import { sizeOf } from '../../domain/dispatch/job-needs.ts';
import type { JobInput } from '../../domain/job.ts';
import type { BlobStore } from '../../storage/blob-store.ts';
import type { NewJob } from '../../store/jobs/job-submission.ts';
import type { MattingRequest } from './submit-fields.ts';
import { fingerprintOf } from './submit-fingerprint.ts';
import type { FinishedUpload, ImageUpload, UploadedImage } from './submit-upload.ts';

/** What a request is sent with. Its owner aborts what is not committed. */
export interface SentPictures {
  readonly upload: ImageUpload;
  /** The same of `background_file`; absent where the form of the body can hold none. */
  readonly backgroundUpload?: ImageUpload;
}

/** A picture of the request: what its upload brought, or the URL of it. */
export type Picture = FinishedUpload | { readonly url: string };

export interface Pictures {
  readonly image: Picture;
  /** Absent: none is asked for. */
  readonly background?: Picture;
}

/** Those that were uploaded. */
export interface StoredPictures {
  readonly image: UploadedImage | undefined;
  readonly background: UploadedImage | undefined;
}

/**
 * At the end of the body.
 * @throws ContractError what an upload's `finish` throws; INVALID_PARAMETER: the fields make too
 *   much of the image
 */
export async function finishPictures(
  { upload, backgroundUpload }: SentPictures,
  { imageUrl, backgroundUrl, finishing }: MattingRequest,
  backgroundGiven: boolean,
): Promise<Pictures> {
  const image = imageUrl === undefined ? await upload.finish() : { url: imageUrl };
  const background =
    backgroundUrl === undefined
      ? backgroundGiven && (await backgroundUpload?.finish())
      : { url: backgroundUrl };
  const uploaded = uploadedOf(image);
  const size = uploaded && sizeOf(uploaded);
  if (finishing !== undefined && size !== undefined) {
    requireFrame(finishing, size, frameRange(finishing, size, { turned: true }).least);
  }
  return { image, ...(background ? { background } : {}) };
}

export function fingerprintOfPictures(
  request: MattingRequest,
  { image, background }: Pictures,
): string {
  return fingerprintOf({
    ...request,
    source: 'url' in image ? image : { imageSha256: image.sha256 },
    background,
  });
}

/** undefined: a URL, or not stored. */
export function uploadedOf(picture: Picture): UploadedImage | undefined {
  if ('url' in picture || picture.image instanceof ContractError) return undefined;
  return picture.image;
}

/** undefined: there is none, or a URL. @throws ContractError SERVICE_UNAVAILABLE: not stored */
export function requireStored(picture: Picture | undefined): UploadedImage | undefined {
  if (picture === undefined || 'url' in picture) return undefined;
  if (picture.image instanceof ContractError) throw picture.image;
  return picture.image;
}

/** Where the pictures of a new job are stored; null: none, or a URL. */
export function jobInputs({ image, background }: StoredPictures): {
  readonly input: JobInput | null;
  readonly background: JobInput | null;
} {
  return { input: image ?? null, background: background ?? null };
}

type Blobs = Pick<BlobStore, 'remove'>;

/** Durable before any answer names the job. */
export async function commitPictures(
  blobs: Blobs,
  job: NewJob,
  { upload, backgroundUpload }: SentPictures,
): Promise<void> {
  if (job.input !== null) await upload.commit();
  if (job.background?.input == null) return;
  try {
    await backgroundUpload?.commit();
  } catch (error) {
    if (job.input !== null) await blobs.remove(job.input.blob);
    throw error;
  }
}

/** Where no row names them. */
export async function removePictures(blobs: Blobs, { input, background }: NewJob): Promise<void> {
  if (input !== null) await blobs.remove(input.blob);
  if (background?.input) await blobs.remove(background.input.blob);
}
