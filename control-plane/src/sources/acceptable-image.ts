/**
 * What an input file must be before a job takes it: of a supported format, still, and within the
 * contract's bounds, all judged by its header bytes. One function for Base64 and for URLs.
 */
import { ContractError } from '#contract/errors.ts';
import { type ByteReader, type ImageHeader, readImageHeader } from '#contract/image-header.ts';
import { IMAGE_BYTES_MAX, IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '#contract/limits.ts';

/** The error for a file over the bound, also for readers who notice while it arrives. */
export function imageTooLarge(): ContractError {
  return new ContractError('IMAGE_TOO_LARGE', `the image is larger than ${IMAGE_BYTES_MAX} bytes`);
}

function requireResolution(width: number, height: number): void {
  const sideOk = width <= IMAGE_SIDE_PX_MAX && height <= IMAGE_SIDE_PX_MAX;
  if (sideOk && width * height <= IMAGE_PIXELS_MAX) return;
  throw new ContractError(
    'IMAGE_RESOLUTION_TOO_LARGE',
    `the image is ${width}x${height}; at most ${IMAGE_SIDE_PX_MAX} pixels a side and ` +
      `${IMAGE_PIXELS_MAX} pixels in all are taken`,
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
): Promise<ImageHeader> {
  if (sizeBytes > IMAGE_BYTES_MAX) throw imageTooLarge();
  const header = await readImageHeader(read, sizeBytes);
  if (header === undefined) {
    throw new ContractError(
      'UNSUPPORTED_IMAGE_FORMAT',
      'the bytes are no JPEG, PNG, WebP, AVIF or JPEG XL image',
    );
  }
  if (header.animated) {
    throw new ContractError('UNSUPPORTED_IMAGE_FORMAT', 'animated images are not supported');
  }
  if (header.width !== undefined && header.height !== undefined) {
    requireResolution(header.width, header.height);
  }
  return header;
}
