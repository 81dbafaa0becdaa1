/** The pictures of one submission: finished, fingerprinted, committed or removed together. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import { frameRange, requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import { type JobInput, sizeOf } from '../jobs/job.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { NewJob } from '../transactions/job-submission.ts';
import { type FingerprintedRequest, fingerprintOf } from './fingerprint.ts';
import type { FinishedUpload, ImageUpload } from './image-upload.ts';

export interface SentPictures {
  readonly upload: ImageUpload;
  /** This is for `background_file`; it is absent if the form of the body can hold none. */
  readonly backgroundUpload?: ImageUpload;
}

type Picture = FinishedUpload | { readonly url: string };

export interface Pictures {
  readonly image: Picture;
  readonly background?: Picture;
}

interface PicturedRequest {
  readonly imageUrl: string | undefined;
  readonly backgroundUrl: string | undefined;
  readonly finishing: Finishing | undefined;
}

type AskedOfPictures = Omit<FingerprintedRequest, 'source' | 'background'>;

/** @throws ContractError as an upload's `finish`; INVALID_PARAMETER: too large a frame */
export async function finishPictures(
  { upload, backgroundUpload }: SentPictures,
  { imageUrl, backgroundUrl, finishing }: PicturedRequest,
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
  request: AskedOfPictures,
  { image, background }: Pictures,
): string {
  return fingerprintOf({
    ...request,
    source: 'url' in image ? image : { imageSha256: image.sha256 },
    background,
  });
}

export function uploadedOf(picture: Picture): JobInput | undefined {
  if ('url' in picture || picture.image instanceof ContractError) return undefined;
  return picture.image;
}

/** undefined: there is none, or a URL. @throws ContractError SERVICE_UNAVAILABLE: not stored */
export function requireStored(picture: Picture | undefined): JobInput | undefined {
  if (picture === undefined || 'url' in picture) return undefined;
  if (picture.image instanceof ContractError) throw picture.image;
  return picture.image;
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

export async function removePictures(blobs: Blobs, { input, background }: NewJob): Promise<void> {
  if (input !== null) await blobs.remove(input.blob);
  if (background?.input) await blobs.remove(background.input.blob);
}
