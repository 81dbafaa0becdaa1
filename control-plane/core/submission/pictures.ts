import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import { frameRange, requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import { regionFault } from '@matting/proto/contract/finishing/region.ts';
import type { Finishing, Size } from '@matting/proto/contract/finishing.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import { type JobInput, sizeOf } from '../jobs/job-request.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import { type FingerprintedRequest, fingerprintOf } from './fingerprint.ts';
import type { FinishedUpload, ImageUpload } from './image-upload.ts';

export interface SentPictures {
  readonly upload: ImageUpload;
  /** Absent: this form of the body has no files. */
  readonly backgroundUpload?: ImageUpload;
  readonly hintsUpload?: ImageUpload;
}

type Picture = FinishedUpload | { readonly url: string };

export interface Pictures {
  readonly image: Picture;
  readonly background?: Picture;
  readonly hints?: FinishedUpload;
}

interface PicturedRequest {
  readonly imageUrl: string | undefined;
  readonly backgroundUrl: string | undefined;
  readonly finishing: Finishing | undefined;
  readonly hints?: Hints | undefined;
}

export type RequireImage = (image: JobInput) => void;

type FingerprintedFields = Omit<FingerprintedRequest, 'source' | 'background' | 'hintsSha256'>;

/**
 * @param requireImage absent: the region must lie inside the image
 * @throws ContractError as an upload's `finish`, as `requireImage`; INVALID_PARAMETER: a frame that
 *   is too large, a region outside
 */
export async function finishPictures(
  { upload, backgroundUpload, hintsUpload }: SentPictures,
  { imageUrl, backgroundUrl, finishing, hints: requestedHints }: PicturedRequest,
  backgroundGiven: boolean,
  requireImage?: RequireImage,
): Promise<Pictures> {
  const image = imageUrl === undefined ? await upload.finish() : { url: imageUrl };
  const background = await finishBackground(backgroundUpload, backgroundUrl, backgroundGiven);
  const uploaded = uploadedOf(image);
  if (uploaded !== undefined) requireFits(finishing, uploaded, requireImage);
  return { image, ...background, ...(await finishHints(hintsUpload, requestedHints)) };
}

export async function finishHints(
  upload: ImageUpload | undefined,
  requestedHints: Hints | undefined,
): Promise<Pick<Pictures, 'hints'>> {
  const hints = requestedHints?.picture && (await upload?.finish());
  return hints ? { hints } : {};
}

export async function finishBackground(
  upload: ImageUpload | undefined,
  url: string | undefined,
  given: boolean,
): Promise<Pick<Pictures, 'background'>> {
  if (url !== undefined) return { background: { url } };
  const background = given && (await upload?.finish());
  return background ? { background } : {};
}

/** @throws ContractError INVALID_PARAMETER: a frame that is too large, a region outside */
export function requireFits(
  finishing: Finishing | undefined,
  image: JobInput,
  requireImage?: RequireImage,
): void {
  const size = sizeOf(image);
  if (finishing !== undefined && size !== undefined) {
    requireFrame(finishing, size, frameRange(finishing, size, { turned: true }).least);
  }
  if (requireImage !== undefined) requireImage(image);
  else if (size !== undefined) requireRegion(finishing, size);
}

function requireRegion(finishing: Finishing | undefined, { width, height }: Size): void {
  const fault = finishing?.region && regionFault(finishing.region, { width, height });
  if (fault === undefined) return;
  throw fault === 'empty'
    ? invalidParameter('roi', 'is empty. Send a region with at least one pixel of the image')
    : invalidParameter('roi', `must lie within the image, which is ${width}x${height} pixels`);
}

export function fingerprintOfPictures(
  request: FingerprintedFields,
  { image, background, hints }: Pictures,
): string {
  return fingerprintOf({
    ...request,
    source: 'url' in image ? image : { imageSha256: image.sha256 },
    background,
    hintsSha256: hints?.sha256,
  });
}

export function uploadedOf(picture: Picture): JobInput | undefined {
  if ('url' in picture || picture.image instanceof ContractError) return undefined;
  return picture.image;
}

/** Undefined: no picture, or a URL. @throws ContractError SERVICE_UNAVAILABLE: not stored */
export function requireStored(picture: Picture | undefined): JobInput | undefined {
  if (picture === undefined || 'url' in picture) return undefined;
  if (picture.image instanceof ContractError) throw picture.image;
  return picture.image;
}

type Blobs = Pick<BlobStore, 'remove'>;

/** Call it before an answer names the job. */
export async function commitPictures(
  blobs: Blobs,
  job: NewJob,
  { upload, backgroundUpload, hintsUpload }: SentPictures,
): Promise<void> {
  const { input, background, hintsFile, correction } = job;
  // The input of a correction belongs to its first job.
  if (input !== null && correction === undefined) await upload.commit();
  try {
    if (background?.input != null) await backgroundUpload?.commit();
    if (hintsFile != null) await hintsUpload?.commit();
  } catch (error) {
    await removePictures(blobs, job);
    throw error;
  }
}

export async function removePictures(blobs: Blobs, job: NewJob): Promise<void> {
  const { background, hintsFile, correction } = job;
  const input = correction === undefined ? job.input : null;
  for (const picture of [input, background?.input, hintsFile]) {
    if (picture) await blobs.remove(picture.blob);
  }
}
