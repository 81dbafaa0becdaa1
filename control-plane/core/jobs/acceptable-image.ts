import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import {
  type ByteReader,
  describeUnread,
  type ImageHeader,
  readImageHeader,
} from '@matting/proto/contract/image-header.ts';
import {
  BACKGROUND_BYTES_MAX,
  BACKGROUND_PIXELS_MAX,
  IMAGE_BYTES_MAX,
  IMAGE_PIXELS_MAX,
  IMAGE_SIDE_PX_MAX,
} from '@matting/proto/contract/limits.ts';

export interface ImageRole {
  readonly noun: string;
  readonly bytesMax: number;
  readonly pixelsMax: number;
  /** Absent: all formats. */
  readonly only?: { readonly formats: readonly InputFormat[]; readonly field: string };
}

export const INPUT_IMAGE: ImageRole = {
  noun: 'The image',
  bytesMax: IMAGE_BYTES_MAX,
  pixelsMax: IMAGE_PIXELS_MAX,
};
export const BACKGROUND_IMAGE: ImageRole = {
  noun: 'The background',
  bytesMax: BACKGROUND_BYTES_MAX,
  pixelsMax: BACKGROUND_PIXELS_MAX,
};

export const HINTS_IMAGE: ImageRole = {
  ...BACKGROUND_IMAGE,
  noun: 'The picture of hints',
  only: { formats: ['png', 'webp'], field: 'hints_file' },
};

export const SEND_ITSELF = 'Send the image itself, for example as image_base64.';
const ANIMATED = 'The image is animated. Send one frame of it, as PNG or JPEG.';
const MIB = 1_048_576;

export function imageTooLarge({ noun, bytesMax } = INPUT_IMAGE): ContractError {
  const limit = `${bytesMax / MIB} MiB (${bytesMax} bytes)`;
  const detail = `${noun} is too large. The limit is ${limit}.`;
  return new ContractError('IMAGE_TOO_LARGE', detail);
}

function requireResolution(width: number, height: number, { noun, pixelsMax }: ImageRole): void {
  const sideOk = width <= IMAGE_SIDE_PX_MAX && height <= IMAGE_SIDE_PX_MAX;
  if (sideOk && width * height <= pixelsMax) return;
  throw new ContractError(
    'IMAGE_RESOLUTION_TOO_LARGE',
    `${noun} is ${width}x${height} pixels. The limit is ${IMAGE_SIDE_PX_MAX} pixels per side ` +
      `and ${pixelsMax / 1e6} megapixels in all. Scale it down.`,
  );
}

/**
 * Accepts a known format whose dimensions cannot be read: the node decides.
 * @param served of `describeUnread`
 * @throws ContractError
 */
export async function requireAcceptableImage(
  read: ByteReader,
  sizeBytes: number,
  role = INPUT_IMAGE,
  served?: string,
): Promise<ImageHeader> {
  if (sizeBytes > role.bytesMax) throw imageTooLarge(role);
  const header = await readImageHeader(read, sizeBytes);
  if (header === undefined) throw unsupported(role, await describeUnread(read, sizeBytes, served));
  if (header.animated || !isTaken(header, role)) throw unsupported(role, ANIMATED);
  if (header.width !== undefined && header.height !== undefined) {
    requireResolution(header.width, header.height, role);
  }
  return header;
}

function isTaken({ format }: ImageHeader, { only }: ImageRole): boolean {
  return only === undefined || only.formats.includes(format);
}

function unsupported(role: ImageRole, wrong: string): ContractError {
  if (role.only !== undefined) {
    const { field, formats } = role.only;
    return invalidParameter(field, `must be one still picture as ${formats.join(' or ')}`);
  }
  const detail = role === INPUT_IMAGE ? wrong : `${role.noun} cannot be used. ${wrong}`;
  return new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
}
