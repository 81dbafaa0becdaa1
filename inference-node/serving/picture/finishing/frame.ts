/**
 * Makes the pixels of a result from those of a cut-out: what the layout shows of it, scaled, in its
 * place, over the background. In one pass over the rows of the result.
 */

import type { Size } from '#contract/finishing.ts';
import { bytesAt, kernels, pixelsAt, withMemory } from '../kernels/kernels.ts';
import type { Layout } from './layout.ts';
import { type Pixels, scalePixels, scalePlane, type Window } from './scale.ts';

/** What lies behind the subject. */
export type Backdrop =
  /** As pixels have it: red in the lowest byte, straight alpha in the highest. */
  | { readonly kind: 'colour'; readonly pixel: number }
  | { readonly kind: 'picture'; readonly picture: Pixels };

/** Whether the layout changes nothing. */
export function isWhole({ frame, source, target }: Layout, input: Size): boolean {
  return [frame, source, target].every(
    ({ width, height }) => width === input.width && height === input.height,
  );
}

/** @param cutOut straight alpha, no colour where it is 0. */
export function frameCutOut(
  cutOut: Pixels,
  layout: Layout,
  backdrop: Backdrop | undefined,
): Pixels {
  const { frame, source, target } = layout;
  const rgba = new Uint32Array(frame.width * frame.height);
  if (backdrop !== undefined) paintBackdrop(rgba, frame, backdrop);
  const isCopy = source.width === target.width && source.height === target.height;
  const offsetOf = (y: number) => (target.top + y) * frame.width + target.left;
  if (isCopy && backdrop === undefined) {
    for (let y = 0; y < target.height; y++) rgba.set(rowOf(cutOut, source, y), offsetOf(y));
    return { rgba, ...frame };
  }
  withMemory(borrow => {
    const beneath = borrow(4 * target.width);
    const own = borrow(4 * target.width);
    const lay = (y: number, above: number) => {
      const pixels = rgba.subarray(offsetOf(y), offsetOf(y) + target.width);
      if (backdrop === undefined) {
        pixels.set(pixelsAt(above, target.width));
        return;
      }
      pixelsAt(beneath, target.width).set(pixels);
      kernels.layOnto(above, target.width, beneath);
      pixels.set(pixelsAt(beneath, target.width));
    };
    if (!isCopy) return scalePixels(cutOut, source, target, lay);
    for (let y = 0; y < target.height; y++) {
      pixelsAt(own, target.width).set(rowOf(cutOut, source, y));
      lay(y, own);
    }
  });
  return { rgba, ...frame };
}

/** The same of a matte alone; outside of the input nothing is seen. */
export function framePlane(plane: Uint8Array, input: Size, layout: Layout): Buffer {
  const { frame, source, target } = layout;
  const result = Buffer.alloc(frame.width * frame.height);
  const offsetOf = (y: number) => (target.top + y) * frame.width + target.left;
  if (source.width === target.width && source.height === target.height) {
    for (let y = 0; y < target.height; y++) {
      const from = (source.top + y) * input.width + source.left;
      result.set(plane.subarray(from, from + source.width), offsetOf(y));
    }
    return result;
  }
  scalePlane(plane, input, source, target, (y, at) => {
    result.set(bytesAt(at, target.width), offsetOf(y));
  });
  return result;
}

function rowOf({ rgba, width }: Pixels, { left, top, width: count }: Window, y: number) {
  const from = (top + y) * width + left;
  return rgba.subarray(from, from + count);
}

function paintBackdrop(rgba: Uint32Array, frame: Size, backdrop: Backdrop): void {
  if (backdrop.kind === 'colour') {
    if (backdrop.pixel !== 0) rgba.fill(backdrop.pixel);
    return;
  }
  const { picture } = backdrop;
  scalePixels(picture, coverWindow(picture, frame), frame, (y, at) => {
    rgba.set(pixelsAt(at, frame.width), y * frame.width);
  });
}

/** The middle of a picture, of the frame's proportions and as large as the picture lets it be. */
export function coverWindow(picture: Size, frame: Size): Window {
  const scale = Math.min(picture.width / frame.width, picture.height / frame.height);
  const width = frame.width * scale;
  const height = frame.height * scale;
  const left = (picture.width - width) / 2;
  const top = (picture.height - height) / 2;
  return { left, top, width, height };
}
