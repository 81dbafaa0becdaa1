/** Draws what a layout shows of a cut-out or a matte, scaled, over the background, in one pass. */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { bytesAt, kernels, pixelsAt, withMemory } from '../kernels/kernels.ts';
import { type Backdrop, paintBackdrop } from './backdrop.ts';
import type { Layout } from './layout.ts';
import { type Pixels, scalePixels, scalePlane, type Window } from './scale-rows.ts';

/** Tells whether the layout changes nothing. */
export function isWhole({ frame, source, target }: Layout, input: Size): boolean {
  return [frame, source, target].every(
    ({ width, height }) => width === input.width && height === input.height,
  );
}

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
