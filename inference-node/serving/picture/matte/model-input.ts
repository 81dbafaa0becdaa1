/**
 * Resamples the picture to a model's input or the refinement's guide. Large pictures are first
 * averaged in whole boxes (libvips' shrink); enlarging is bilinear, as in the networks' training.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { bytesAt, kernels, pixelsAt, withMemory } from '../kernels/kernels.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { type ColourRows, resampleColours } from './resample.ts';

/** HWC RGB, owned by the caller. */
export function createModelInput(picture: RgbaPicture, size: Size): Buffer {
  return shrinkOrStretch(picture, size, 3);
}

/** Colours over grey, four bytes a pixel; the fourth is undefined. */
export function createGuide(picture: RgbaPicture, size: Size): Buffer {
  return shrinkOrStretch(picture, size, 4);
}

function shrinkOrStretch(picture: RgbaPicture, size: Size, channels: 3 | 4): Buffer {
  return withMemory(borrow => {
    const box = {
      width: boxSide(picture.width, size.width),
      height: boxSide(picture.height, size.height),
    };
    const rows = averageBoxes(picture, box, borrow(4 * picture.width * box.height));
    const same = rows.width === size.width && rows.height === size.height;
    return same ? copyRows(rows, channels) : resampleColours(rows, size, channels);
  });
}

function boxSide(from: number, to: number): number {
  return Math.min(BOX_SIDE_MAX, Math.max(1, Math.floor(from / to)));
}

/** Bounds the rows in memory, and a box to the 256 pixels that the kernel can sum. */
const BOX_SIDE_MAX = 16;

/** @param strip address for the rows of one row of boxes */
function averageBoxes(picture: RgbaPicture, box: Size, strip: number): ColourRows {
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
      else kernels.averageBoxes(...terms, at);
    },
  };
}

function copyRows(rows: ColourRows, channels: 3 | 4): Buffer {
  const { width, height } = rows;
  const result = Buffer.allocUnsafeSlow(width * height * channels);
  withMemory(borrow => {
    const row = borrow(4 * width);
    const out = borrow(4 * width);
    const written = bytesAt(channels === 4 ? row : out, channels * width);
    for (let y = 0; y < height; y++) {
      rows.writeRow(y, row);
      if (channels === 3) kernels.dropFourth(row, width, out);
      result.set(written, y * width * channels);
    }
  });
  return result;
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
