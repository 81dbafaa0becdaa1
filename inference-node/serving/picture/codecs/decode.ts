/**
 * Decodes an untrusted file to oriented sRGB pixels, once and at full size. Decoding a JPEG of 12
 * MP a second time with shrink-on-load was rejected: 54 ms in addition to 67.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import {
  describeDamaged,
  describeUnread,
  type ImageHeader,
  readImageHeader,
} from '@matting/proto/contract/image-header.ts';
import { IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '@matting/proto/contract/limits.ts';
import type { HeifDecoder } from '../children/heif-decoder.ts';
import { jxlPixelsMax } from '../makeable.ts';
import type { Mended, OpenedPicture, RgbaPicture } from '../rgba-picture.ts';
import { openJxl } from './codec-jxl.ts';
import { openWithSharp } from './codec-sharp.ts';
import { openHeic } from './heif/codec-heic.ts';

export interface DecodeOptions {
  readonly declared: Size | undefined;
  readonly onOpened: (size: Size) => void;
  readonly pixelsMax?: number;
  readonly heif?: HeifDecoder | undefined;
}

export interface DecodedFile extends RgbaPicture {
  readonly format: InputFormat;
  readonly mended?: Mended | undefined;
}

/**
 * @throws ContractError UNSUPPORTED_IMAGE_FORMAT, IMAGE_RESOLUTION_TOO_LARGE, NODE_INCAPABLE,
 * PROCESSING_FAILED (damaged, or larger than declared)
 */
export async function decodeFile(file: Buffer, options: DecodeOptions): Promise<DecodedFile> {
  const { format, width, height } = await requireHeader(file);
  if (width !== undefined && height !== undefined)
    requireSize({ width, height }, format, options.pixelsMax);
  const opened = await whole(open(file, format, options), file);
  const size = { width: opened.width, height: opened.height };
  // The stored size decides the cost. It may differ from the header's, and is never less than the
  // shown size.
  const { stored = size } = opened;
  requireSize(stored, format, options.pixelsMax);
  if (options.declared !== undefined) requireDeclared(stored, options.declared);
  options.onOpened(stored);
  return { format, ...size, ...(await whole(opened.readPixels(), file)) };
}

/** @throws ContractError as `decoding`, with a detail that names the damage */
async function whole<T>(decoding: Promise<T>, file: Buffer): Promise<T> {
  try {
    return await decoding;
  } catch (error) {
    if (!(error instanceof ContractError && error.code === 'PROCESSING_FAILED')) throw error;
    throw new ContractError('PROCESSING_FAILED', describeDamaged(file, error.message), {
      cause: error,
    });
  }
}

function open(file: Buffer, format: InputFormat, { heif }: DecodeOptions): Promise<OpenedPicture> {
  if (format === 'jxl') return openJxl(file);
  return format === 'heic' ? openHeic(file, heif) : openWithSharp(file, format);
}

async function requireHeader(file: Buffer): Promise<ImageHeader> {
  const read = (offset: number, length: number) => file.subarray(offset, offset + length);
  const header = await readImageHeader(read, file.length);
  if (header === undefined) {
    const detail = await describeUnread(read, file.length);
    throw new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
  }
  if (header.animated) {
    throw new ContractError(
      'UNSUPPORTED_IMAGE_FORMAT',
      'The image is animated. Send one frame of it, as PNG or JPEG.',
    );
  }
  return header;
}

function requireSize({ width, height }: Size, format: InputFormat, pixelsMax = IMAGE_PIXELS_MAX) {
  const sideMax = Math.max(width, height);
  if (sideMax > IMAGE_SIDE_PX_MAX || width * height > pixelsMax) {
    throw new ContractError(
      'IMAGE_RESOLUTION_TOO_LARGE',
      `The image is ${width}x${height} pixels. The limit is ${IMAGE_SIDE_PX_MAX} pixels per side ` +
        `and ${pixelsMax / 1e6} megapixels in all. Scale it down.`,
    );
  }
  if (format === 'jxl' && width * height > jxlPixelsMax()) {
    const detail = `This node takes JPEG XL up to ${jxlPixelsMax()} pixels.`;
    throw new ContractError('NODE_INCAPABLE', detail);
  }
}

/** Sizes may be declared before orientation. */
function requireDeclared(size: Size, declared: Size): void {
  const shortOf = ({ width, height }: Size) => Math.min(width, height);
  const longOf = ({ width, height }: Size) => Math.max(width, height);
  if (shortOf(size) <= shortOf(declared) && longOf(size) <= longOf(declared)) return;
  throw new ContractError(
    'PROCESSING_FAILED',
    `The image is ${size.width}x${size.height} pixels, larger than the declared ` +
      `${declared.width}x${declared.height}.`,
  );
}
