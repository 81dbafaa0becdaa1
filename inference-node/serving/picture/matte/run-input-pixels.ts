import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { boxInInput, type RunInput } from '../run-input.ts';
import { createModelInput } from './model-input.ts';

/**
 * Sides of the grids that blur the picture in turn to its own colours without shapes. A plain
 * colour makes the picture's border an edge, which models take for the subject's.
 */
const BLURRED_CELLS = [64, 8];

/** HWC RGB of `size`, as createModelInput. */
export function createRunInput(
  picture: RgbaPicture,
  size: Size,
  input: RunInput | undefined,
): Buffer {
  if (input === undefined) return createModelInput(picture, size);
  if (input.kind === 'mirrored') return mirrored(createModelInput(picture, size), size);
  const box = boxInInput(size, input);
  const own = createModelInput(picture, box);
  if (input.kind === 'edges') return withEdges(own, box, size);
  const painted = withoutShapes(own, box, size);
  const { left, top, width, height } = box;
  for (let y = 0; y < height; y++) {
    const row = own.subarray(3 * y * width, 3 * (y + 1) * width);
    painted.set(row, 3 * ((top + y) * size.width + left));
  }
  return painted;
}

function mirrored(rgb: Buffer, { width }: Size): Buffer {
  const row = Buffer.allocUnsafe(3 * width);
  for (let from = 0; from < rgb.length; from += row.length) {
    row.set(rgb.subarray(from, from + row.length));
    for (let x = 0, at = from + row.length - 3; x < row.length; x += 3, at -= 3) {
      rgb[at] = row[x]!;
      rgb[at + 1] = row[x + 1]!;
      rgb[at + 2] = row[x + 2]!;
    }
  }
  return rgb;
}

/** Repeats the nearest pixel of the box. */
function withEdges(own: Buffer, { left, top, width, height }: Box, size: Size): Buffer {
  const painted = Buffer.allocUnsafeSlow(3 * size.width * size.height);
  const rowBytes = 3 * size.width;
  for (let y = 0; y < size.height; y++) {
    const from = 3 * width * Math.min(height - 1, Math.max(0, y - top));
    const row = painted.subarray(y * rowBytes, (y + 1) * rowBytes);
    row.fill(own.subarray(from, from + 3), 0, 3 * left);
    row.set(own.subarray(from, from + 3 * width), 3 * left);
    row.fill(own.subarray(from + 3 * (width - 1), from + 3 * width), 3 * (left + width));
  }
  return painted;
}

function withoutShapes(own: Buffer, box: Size, size: Size): Buffer {
  let small = pictureOf(own, box);
  for (const cells of BLURRED_CELLS) {
    const square = { width: cells, height: cells };
    small = pictureOf(createModelInput(small, square), square);
  }
  return createModelInput(small, size);
}

function pictureOf(rgb: Buffer, { width, height }: Size): RgbaPicture {
  const rgba = new Uint32Array(width * height);
  for (let i = 0, at = 0; i < rgba.length; i++, at += 3) {
    rgba[i] = rgb[at]! | (rgb[at + 1]! << 8) | (rgb[at + 2]! << 16) | (255 << 24);
  }
  return { rgba, width, height, translucent: false };
}
