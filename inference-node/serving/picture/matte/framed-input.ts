/** Puts the picture in a frame, as input of a model for a framed look (framed-look.ts). */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { boxInFrame } from '../framed-look.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { createModelInput } from './model-input.ts';

/**
 * Sides on which the picture is averaged, one after the other, to paint the frame: its own colours,
 * without a shape. A plain colour makes the picture's border an edge, which models take for the
 * subject's; mirrored or repeated pixels go on with what fills the picture.
 */
const FRAME_CELLS = [64, 8];

/** Makes HWC RGB of `size`, as createModelInput does. */
export function createFramedInput(picture: RgbaPicture, size: Size): Buffer {
  const box = boxInFrame(size);
  const own = createModelInput(picture, box);
  let small = pictureOf(own, box);
  for (const cells of FRAME_CELLS) {
    const square = { width: cells, height: cells };
    small = pictureOf(createModelInput(small, square), square);
  }
  const input = createModelInput(small, size);
  for (let y = 0; y < box.height; y++) {
    const row = own.subarray(3 * y * box.width, 3 * (y + 1) * box.width);
    input.set(row, 3 * ((box.top + y) * size.width + box.left));
  }
  return input;
}

function pictureOf(rgb: Buffer, { width, height }: Size): RgbaPicture {
  const rgba = new Uint32Array(width * height);
  // `rgb` has three bytes a pixel.
  for (let i = 0, at = 0; i < rgba.length; i++, at += 3) {
    rgba[i] = rgb[at]! | (rgb[at + 1]! << 8) | (rgb[at + 2]! << 16) | (255 << 24);
  }
  return { rgba, width, height, translucent: false };
}
