import { ElementType, type Tensor } from '@matting/serving/onnx/graph.ts';
import { isWhole } from './graph-view.ts';
import { equal, need } from './not-deformable.ts';

interface Grid {
  readonly base: Tensor;
  readonly shape: readonly [number, number, number, number, number, number];
  readonly kernel: readonly [number, number];
  /** top, left, bottom, right */
  readonly border: readonly [number, number, number, number];
}

/** Strides, dilations and pads of the convolution with the taps of `base`. Checks every number. */
export function requireGrid({ base, shape, kernel, border }: Grid, inner: readonly number[]) {
  const [, , , K, h, w] = shape;
  const wanted = [1, 1, K, 2, h, w];
  need(base.elementType === ElementType.float32 && isWhole(base), 'a base grid of float32');
  need(equal(base.dims, wanted), `a base grid [${wanted.join()}]`);
  const { data } = base;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const at = (tap: number, axis: number, row: number, column: number) =>
    view.getFloat32(4 * (((tap * 2 + axis) * h + row) * w + column), true);
  const [kh, kw] = kernel;
  const [y, x] = [at(0, 0, 0, 0), at(0, 1, 0, 0)];
  const strideY = h > 1 ? at(0, 0, 1, 0) - y : 1;
  const strideX = w > 1 ? at(0, 1, 0, 1) - x : 1;
  const dilationY = kh > 1 ? at(kw, 0, 0, 0) - y : 1;
  const dilationX = kw > 1 ? at(1, 1, 0, 0) - x : 1;
  const steps = [strideY, strideX, dilationY, dilationX];
  need(steps.every(step => Number.isInteger(step) && step > 0) && isGrid(), 'a base grid of taps');
  const [top, left] = [border[0] - y, border[1] - x];
  need(top >= 0 && left >= 0 && border[2] - y === top && border[3] - x === left, 'even padding');
  const [height = 0, width = 0] = inner;
  const outputs = (side: number, pad: number, dilation: number, taps: number, stride: number) =>
    Math.floor((side + 2 * pad - dilation * (taps - 1) - 1) / stride) + 1;
  need(outputs(height, top, dilationY, kh, strideY) === h, `${h} rows of outputs`);
  need(outputs(width, left, dilationX, kw, strideX) === w, `${w} columns of outputs`);
  return {
    strides: [strideY, strideX] as const,
    dilations: [dilationY, dilationX] as const,
    pads: [top, left] as const,
  };

  function isGrid(): boolean {
    for (let tap = 0; tap < K; tap += 1) {
      const tapY = y + Math.floor(tap / kw) * dilationY;
      const tapX = x + (tap % kw) * dilationX;
      for (let row = 0; row < h; row += 1) {
        for (let column = 0; column < w; column += 1) {
          if (at(tap, 0, row, column) !== tapY + row * strideY) return false;
          if (at(tap, 1, row, column) !== tapX + column * strideX) return false;
        }
      }
    }
    return true;
  }
}
