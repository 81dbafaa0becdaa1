/**
 * A merged matte as a file for corrections: its part of the picture (four 32-bit numbers,
 * little-endian), then a grey PNG.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { MATTE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import { decodeFile } from '../codecs/decode.ts';
import { encodePixels } from '../codecs/encode.ts';
import { type MergedMatte, WORKING_PIXELS_MAX } from '../matte/refine.ts';

const BOX_BYTES = 16;

/** In the picture's pixels; undefined: the matte shows all of it. */
export interface StoredMatte {
  readonly part: Box | undefined;
  readonly merged: MergedMatte;
}

export async function writeMatte({ part, merged }: StoredMatte): Promise<Buffer> {
  const { left = 0, top = 0, width = 0, height = 0 } = part ?? {};
  const head = Buffer.alloc(BOX_BYTES);
  for (const [index, value] of [left, top, width, height].entries()) {
    head.writeUInt32LE(value, 4 * index);
  }
  const { alpha, ...size } = merged;
  // A copy: an encoder may overwrite its pixels.
  const png = await encodePixels({ data: Buffer.from(alpha), ...size, channels: 1 }, 'png');
  const file = Buffer.concat([head, png]);
  if (file.length > MATTE_BYTES_MAX) throw new Error(`a matte of ${file.length} bytes`);
  return file;
}

/** @throws ContractError PROCESSING_FAILED: not a matte of this picture */
export async function readMatte(file: Buffer, picture: Size): Promise<StoredMatte> {
  const box = boxOf(file);
  const isWhole = box.width === 0 && box.height === 0;
  const isInside = box.left + box.width <= picture.width && box.top + box.height <= picture.height;
  if (!isInside || (!isWhole && box.width * box.height === 0)) throw unreadable();
  const png = Buffer.from(file.subarray(BOX_BYTES));
  const options = { declared: undefined, pixelsMax: WORKING_PIXELS_MAX, onOpened: () => undefined };
  const { format, rgba, width, height } = await decodeFile(png, options).catch(error => {
    throw unreadable(error);
  });
  if (format !== 'png') throw unreadable();
  // The picture is grey, so red is alpha. `Uint8Array.from` takes 0.3 s for 2 megapixels.
  const alpha = new Uint8Array(rgba.length);
  for (let i = 0; i < alpha.length; i++) alpha[i] = rgba[i]! & 255;
  return { part: isWhole ? undefined : box, merged: { alpha, width, height } };
}

function boxOf(file: Buffer): Box {
  if (file.length <= BOX_BYTES) throw unreadable();
  const [left, top, width, height] = [0, 4, 8, 12].map(at => file.readUInt32LE(at));
  return { left: left!, top: top!, width: width!, height: height! };
}

function unreadable(cause?: unknown): ContractError {
  return new ContractError('PROCESSING_FAILED', 'The matte is not one of this image.', { cause });
}
