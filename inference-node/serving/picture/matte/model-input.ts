/**
 * Resamples the picture to a model's input or the refinement's guide. Large pictures are first
 * averaged in whole boxes (libvips' shrink); enlarging is bilinear, as in the networks' training.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { type Borrow, bytesAt, kernels, pixelsAt, withMemory } from '../kernels/kernels.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { type ColourRows, resampleColours } from './resample.ts';

/** HWC RGB over grey, owned by the caller. The fourth of four channels is undefined. */
export function createModelInput(picture: RgbaPicture, size: Size, channels: 3 | 4 = 3): Buffer {
  const result = Buffer.allocUnsafeSlow(channels * size.width * size.height);
  withMemory(borrow => {
    result.set(bytesAt(shrinkOrStretch(borrow, picture, size, channels), result.length));
  });
  return result;
}

/** Answers the address of such pixels with four channels. */
export function createGuide(borrow: Borrow, picture: RgbaPicture, size: Size): number {
  return shrinkOrStretch(borrow, picture, size, 4);
}

function shrinkOrStretch(borrow: Borrow, picture: RgbaPicture, size: Size, channels: 3 | 4) {
  const out = borrow(channels * size.width * size.height);
  withMemory(borrow => {
    const box = {
      width: boxSide(picture.width, size.width),
      height: boxSide(picture.height, size.height),
    };
    const strip = borrow(4 * picture.width * box.height);
    const rows = averageBoxes(picture, box, strip, borrow(8 * (picture.width + 3)));
    const same = rows.width === size.width && rows.height === size.height;
    if (same) copyRows(rows, channels, out);
    else resampleColours(rows, size, channels, out);
  });
  return out;
}

function boxSide(from: number, to: number): number {
  return Math.min(BOX_SIDE_MAX, Math.max(1, Math.floor(from / to)));
}

/** Bounds the rows in memory, and a box to the 256 pixels that the kernel can sum. */
const BOX_SIDE_MAX = 16;

/** @param strip, sums addresses for the rows of one row of boxes and their sums */
function averageBoxes(picture: RgbaPicture, box: Size, strip: number, sums: number): ColourRows {
  const { rgba, width, height, translucent } = picture;
  const plain = box.width === 1 && box.height === 1 && !translucent;
  return {
    width: Math.ceil(width / box.width),
    height: Math.ceil(height / box.height),
    extent: { width: width / box.width, height: height / box.height },
    writeRow: (y, at) => {
      const top = y * box.height;
      const bottom = Math.min(height, top + box.height);
      const pixels = rgba.subarray(top * width, bottom * width);
      pixelsAt(plain ? at : strip, pixels.length).set(pixels);
      if (plain) return;
      const terms = [strip, width, box.width, bottom - top] as const;
      if (translucent) kernels.averageBoxesOver(...terms, UNDER_TRANSPARENCY, at);
      else kernels.averageBoxes(...terms, sums, at);
    },
  };
}

function copyRows(rows: ColourRows, channels: 3 | 4, out: number): void {
  const { width, height } = rows;
  withMemory(borrow => {
    const row = borrow(4 * width);
    for (let y = 0; y < height; y++) {
      const at = out + y * width * channels;
      rows.writeRow(y, channels === 4 ? at : row);
      if (channels === 3) kernels.dropFourth(row, width, at);
    }
  });
}

/**
 * Middle grey: colours under transparent pixels are often the removed background. Grey contrasts
 * with dark and light, and is the mean of ISNet's training.
 */
const UNDER_TRANSPARENCY = 128;

export function overGrey(pixel: number): number {
  const alpha = pixel >>> 24;
  const grey = UNDER_TRANSPARENCY * (255 - alpha);
  const red = ((pixel & 255) * alpha + grey + 127) / 255;
  const green = (((pixel >>> 8) & 255) * alpha + grey + 127) / 255;
  const blue = (((pixel >>> 16) & 255) * alpha + grey + 127) / 255;
  return red | (green << 8) | (blue << 16) | 0xff000000;
}
