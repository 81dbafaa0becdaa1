/**
 * The pictures of a submission: what their uploads brought at the end of the body, and where they
 * are stored for its job.
 */

import { hash } from 'node:crypto';
import { ContractError } from '#contract/errors.ts';
import { frameRange, requireFrame } from '#contract/finishing/frame.ts';
import type { Channels, Finishing } from '#contract/finishing.ts';
import type { OutputFormat } from '#contract/formats.ts';
import { sizeOf } from '../dispatch/job-needs.ts';
import type { NewJob } from '../jobs/job-submission.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { MattingRequest } from './submit-fields.ts';
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

export interface FingerprintedRequest {
  /** SHA-256 of the decoded bytes, hexadecimal; or the URL's text as it was sent. */
  readonly source: { readonly imageSha256: string } | { readonly url: string };
  readonly outputFormat: OutputFormat;
  /** rgba where absent. */
  readonly channels?: Channels | undefined;
  /** Absent, or empty: nothing that could change the fingerprint. */
  readonly finishing?: Finishing | undefined;
  /** As `source`; absent: no picture. */
  readonly background?: { readonly sha256: string } | { readonly url: string } | undefined;
  /** As they were sent; undefined: none. */
  readonly callback: { readonly url: string; readonly secret: string } | undefined;
}

/**
 * SHA-256, hexadecimal, over the fields that are there, each as `tag:length in bytes:value` and a
 * new line, so that no two different requests make the same text. What a later release adds is
 * there only where it is asked for, so that a repetition is known across an upgrade.
 */
export function fingerprintOf(request: FingerprintedRequest): string {
  const { source, outputFormat, channels = 'rgba', finishing = {}, background } = request;
  const { callback } = request;
  const fields: [tag: string, value: string][] = [
    'url' in source ? ['image_url', source.url] : ['image_sha256', source.imageSha256],
    ['output_format', outputFormat],
  ];
  if (channels !== 'rgba') fields.push(['channels', channels]);
  if (Object.keys(finishing).length > 0) fields.push(['finishing', canonicalText(finishing)]);
  if (background !== undefined) {
    fields.push(
      'url' in background
        ? ['background_url', background.url]
        : ['background_sha256', background.sha256],
    );
  }
  if (callback !== undefined) {
    fields.push(['callback_url', callback.url]);
    fields.push(['callback_secret_sha256', sha256(callback.secret)]);
  }
  return sha256(
    fields.map(([tag, value]) => `${tag}:${Buffer.byteLength(value)}:${value}\n`).join(''),
  );
}

/** JSON with the names of each object in order: the same for the same values. */
function canonicalText(value: Finishing): string {
  return JSON.stringify(value, (_name, part: unknown) =>
    typeof part === 'object' && part !== null
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

/** The form in which an Idempotency-Key is stored: SHA-256, hexadecimal. */
export function idempotencyKeyHash(idempotencyKey: string): string {
  return sha256(idempotencyKey);
}

/**
 * The same for a request that brings no key: a hash that no caller's key has, since line ends are
 * in none.
 * @param namespace of the interface
 * @param fingerprint of the request: the same picture, and the same of it asked for
 */
export function derivedKeyHash(namespace: string, apiKeyId: string, fingerprint: string): string {
  return sha256(`derived\n${namespace}\n${apiKeyId}\n${fingerprint}\n`);
}

function sha256(text: string): string {
  return hash('sha256', text, 'hex');
}
