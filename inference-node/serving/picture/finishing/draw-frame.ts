import type { Size } from '@matting/proto/contract/finishing.ts';
import { borrowCopy, kernels, pixelsAt, withMemory } from '../kernels/kernels.ts';
import { type Backdrop, paintBackdrop } from './backdrop.ts';
import type { Layout } from './layout.ts';
import { type Pixels, scalePixels, scalePlane, type Window } from './scale-rows.ts';
import type { CastShadow } from './shadow.ts';

export function isWhole({ frame, source, target }: Layout, input: Size): boolean {
  return [frame, source, target].every(
    ({ width, height }) => width === input.width && height === input.height,
  );
}

interface Beneath {
  readonly backdrop: Backdrop | undefined;
  readonly shadow: CastShadow | undefined;
}

export function frameCutOut(cutOut: Pixels, layout: Layout, { backdrop, shadow }: Beneath): Pixels {
  const { frame } = layout;
  const rgba = new Uint32Array(frame.width * frame.height);
  if (backdrop !== undefined) paintBackdrop(rgba, frame, backdrop);
  const isBare = backdrop === undefined;
  if (shadow !== undefined && !isBare) drawShadow(rgba, frame, shadow, 'above');
  drawCutOut(rgba, cutOut, layout, isBare);
  if (shadow !== undefined && isBare) drawShadow(rgba, frame, shadow, 'beneath');
  return { rgba, ...frame };
}

function drawCutOut(rgba: Uint32Array, cutOut: Pixels, layout: Layout, isBare: boolean): void {
  const { frame, source, target } = layout;
  const isCopy = source.width === target.width && source.height === target.height;
  const offsetOf = (y: number) => (target.top + y) * frame.width + target.left;
  if (isCopy && isBare) {
    for (let y = 0; y < target.height; y++) rgba.set(rowOf(cutOut, source, y), offsetOf(y));
    return;
  }
  withMemory(borrow => {
    const beneath = borrow(4 * target.width);
    const own = borrow(4 * target.width);
    const lay = (y: number, above: number) => {
      const pixels = rgba.subarray(offsetOf(y), offsetOf(y) + target.width);
      if (isBare) {
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
}

export function drawShadow(
  rgba: Uint32Array,
  { width, height }: Size,
  shadow: CastShadow,
  order: 'above' | 'beneath',
): void {
  for (let y = 0; y < height; y++) {
    const row = shadow.rowAt(y);
    if (row === undefined) continue;
    const { first, count, along, step } = row;
    const pixels = rgba.subarray(y * width + first, y * width + first + count);
    withMemory(borrow => {
      const cells = borrowCopy(borrow, row.cells);
      const dither = borrowCopy(borrow, row.dither);
      const cast = borrow(4 * (count + 3));
      const drawn = borrow(4 * count);
      kernels.castRow(cells, along, step, first, count, dither, cast);
      pixelsAt(drawn, count).set(pixels);
      const [above, beneath] = order === 'above' ? [cast, drawn] : [drawn, cast];
      kernels.layOnto(above, count, beneath);
      pixels.set(pixelsAt(beneath, count));
    });
  }
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
  scalePlane(plane, input, source, target, (y, row) => result.set(row, offsetOf(y)));
  return result;
}

function rowOf({ rgba, width }: Pixels, { left, top, width: count }: Window, y: number) {
  const from = (top + y) * width + left;
  return rgba.subarray(from, from + count);
}
