import type { Background, Size } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { kernels, pixelsAt, withMemory } from '../kernels/kernels.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { type Pixels, scalePixels, type Window } from './scale-rows.ts';

export type Backdrop =
  /** Red in the lowest byte, straight alpha in the highest. */
  | { readonly kind: 'colour'; readonly pixel: number }
  | { readonly kind: 'picture'; readonly picture: Pixels };

const WHITE = 0xffffffff;

/** May overwrite the pixels of `picture`. */
export function backdropOf(
  background: Background | undefined,
  picture: RgbaPicture | undefined,
  outputFormat: OutputFormat,
): Backdrop | undefined {
  switch (background?.kind) {
    case undefined:
      return undefined;
    case 'colour':
      return { kind: 'colour', pixel: pixelOfRgba(background.rgba) };
    case 'picture':
      if (picture === undefined) throw new Error('a background picture without its pixels');
      if (outputFormat === 'jpeg' && picture.translucent) layOnWhite(picture);
      return { kind: 'picture', picture };
    case 'original':
      return { kind: 'colour', pixel: WHITE };
  }
}

function pixelOfRgba(rgba: number): number {
  if ((rgba & 255) === 0) return 0;
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(rgba);
  return bytes.readUInt32LE();
}

function layOnWhite({ rgba, width, height }: RgbaPicture): void {
  withMemory(borrow => {
    const above = borrow(4 * width);
    const beneath = borrow(4 * width);
    for (let y = 0; y < height; y++) {
      const row = rgba.subarray(y * width, (y + 1) * width);
      pixelsAt(above, width).set(row);
      const white = pixelsAt(beneath, width).fill(WHITE);
      kernels.layOnto(above, width, beneath);
      row.set(white);
    }
  });
}

export function paintBackdrop(rgba: Uint32Array, frame: Size, backdrop: Backdrop): void {
  if (backdrop.kind === 'colour') {
    if (backdrop.pixel !== 0) rgba.fill(backdrop.pixel);
    return;
  }
  const { picture } = backdrop;
  scalePixels(picture, coverWindow(picture, frame), frame, (y, at) => {
    rgba.set(pixelsAt(at, frame.width), y * frame.width);
  });
}

function coverWindow(picture: Size, frame: Size): Window {
  const scale = Math.min(picture.width / frame.width, picture.height / frame.height);
  const width = frame.width * scale;
  const height = frame.height * scale;
  const left = (picture.width - width) / 2;
  const top = (picture.height - height) / 2;
  return { left, top, width, height };
}
