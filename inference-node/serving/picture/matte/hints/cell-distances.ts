import type { Size } from '@matting/proto/contract/finishing.ts';

/** Distance of each cell from the nearest that `isIn`, in cells (chamfers: Borgefors 1986). */
export function distancesFrom(
  isIn: (cell: number) => boolean,
  { width, height }: Size,
): Float32Array {
  // A frame of one cell avoids all tests of borders.
  const stride = width + 2;
  const far = new Float32Array(stride * (height + 2)).fill(1e6);
  for (let y = 0, cell = 0; y < height; y++) {
    for (let at = (y + 1) * stride + 1, x = 0; x < width; x++, at++, cell++) {
      if (isIn(cell)) far[at] = 0;
    }
  }
  const last = far.length - stride - 2;
  for (const step of [1, -1]) {
    for (let at = step === 1 ? stride + 1 : last; at > stride && at <= last; at += step) {
      const beside = Math.min(far[at - step]!, far[at - step * stride]!) + 1;
      const across = Math.min(far[at - step * (stride - 1)]!, far[at - step * (stride + 1)]!);
      far[at] = Math.min(far[at]!, beside, across + 4 / 3);
    }
  }
  const distances = new Float32Array(width * height);
  for (let y = 0; y < height; y++) {
    const from = (y + 1) * stride + 1;
    distances.set(far.subarray(from, from + width), y * width);
  }
  return distances;
}
