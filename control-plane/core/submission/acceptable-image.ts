/**
 * What an input file must be before a job takes it: of a supported format, still, and within the
 * contract's bounds, all judged by its header bytes. One function for uploads and for URLs.
 */
import { ContractError } from '#contract/errors.ts';
import { type ByteReader, type ImageHeader, readImageHeader } from '#contract/image-header.ts';
import {
  BACKGROUND_BYTES_MAX,
  BACKGROUND_PIXELS_MAX,
  IMAGE_BYTES_MAX,
  IMAGE_PIXELS_MAX,
  IMAGE_SIDE_PX_MAX,
} from '#contract/limits.ts';

/** What a picture is for, and the bounds it has for that. */
export interface ImageRole {
  /** The subject of the errors' sentences. */
  readonly noun: string;
  readonly bytesMax: number;
  readonly pixelsMax: number;
}

export const INPUT_IMAGE: ImageRole = {
  noun: 'the image',
  bytesMax: IMAGE_BYTES_MAX,
  pixelsMax: IMAGE_PIXELS_MAX,
};
export const BACKGROUND_IMAGE: ImageRole = {
  noun: 'the background',
  bytesMax: BACKGROUND_BYTES_MAX,
  pixelsMax: BACKGROUND_PIXELS_MAX,
};

/** The error for a file over the bound, also for readers who notice while it arrives. */
export function imageTooLarge({ noun, bytesMax } = INPUT_IMAGE): ContractError {
  return new ContractError('IMAGE_TOO_LARGE', `${noun} is larger than ${bytesMax} bytes`);
}

function requireResolution(width: number, height: number, { noun, pixelsMax }: ImageRole): void {
  const sideOk = width <= IMAGE_SIDE_PX_MAX && height <= IMAGE_SIDE_PX_MAX;
  if (sideOk && width * height <= pixelsMax) return;
  throw new ContractError(
    'IMAGE_RESOLUTION_TOO_LARGE',
    `${noun} is ${width}x${height}; at most ${IMAGE_SIDE_PX_MAX} pixels a side and ` +
      `${pixelsMax} pixels in all are taken`,
  );
}

/**
 * The header of an image the contract accepts. A known format whose dimensions cannot be read is
 * accepted: its job finds out. Throws IMAGE_TOO_LARGE, UNSUPPORTED_IMAGE_FORMAT (animated too) and
 * IMAGE_RESOLUTION_TOO_LARGE; rejects also where `read` does.
 */
export async function requireAcceptableImage(
  read: ByteReader,
  sizeBytes: number,
  role = INPUT_IMAGE,
): Promise<ImageHeader> {
  if (sizeBytes > role.bytesMax) throw imageTooLarge(role);
  const header = await readImageHeader(read, sizeBytes);
  if (header === undefined) {
    throw unsupported(role, 'the bytes are no JPEG, PNG, WebP, AVIF or JPEG XL image');
  }
  if (header.animated) throw unsupported(role, 'animated images are not supported');
  if (header.width !== undefined && header.height !== undefined) {
    requireResolution(header.width, header.height, role);
  }
  return header;
}

function unsupported(role: ImageRole, wrong: string): ContractError {
  const detail = role === INPUT_IMAGE ? wrong : `${role.noun}: ${wrong}`;
  return new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
}
