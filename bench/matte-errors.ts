/**
 * Errors of a matte against a reference, as the matting literature counts them (Rhemann et al.
 * 2009, "A Perceptually Motivated Online Benchmark for Image Matting"). Pure.
 */

export interface MatteErrors {
  /** Mean absolute difference, of 1. */
  readonly mae: number;
  readonly mse: number;
  /** Squared difference of the Gaussian gradients' magnitudes, summed, in thousands. */
  readonly gradient: number;
  /** MAE over the pixels whose reference is strictly between .02 and .98; 0 where there are none. */
  readonly softMae: number;
  /** Sum of absolute differences, in thousands. */
  readonly sad: number;
}

const SOFT_MIN = 0.02;
const SOFT_MAX = 0.98;
const GRADIENT_SIGMA_PX = 1.4;
const GRADIENT_RADIUS_PX = 5;

/** Both in [0, 1], row by row. */
export function matteErrors(
  matte: Float32Array,
  reference: Float32Array,
  width: number,
  height: number,
): MatteErrors {
  let absolute = 0;
  let squared = 0;
  let soft = 0;
  let softPixels = 0;
  for (let i = 0; i < reference.length; i++) {
    const difference = Math.abs(matte[i] - reference[i]);
    absolute += difference;
    squared += difference * difference;
    if (reference[i] > SOFT_MIN && reference[i] < SOFT_MAX) {
      soft += difference;
      softPixels++;
    }
  }
  const found = gradientMagnitude(matte, width, height);
  const wanted = gradientMagnitude(reference, width, height);
  let gradient = 0;
  for (let i = 0; i < wanted.length; i++) gradient += (found[i] - wanted[i]) ** 2;
  return {
    mae: absolute / reference.length,
    mse: squared / reference.length,
    gradient: gradient / 1000,
    softMae: softPixels === 0 ? 0 : soft / softPixels,
    sad: absolute / 1000,
  };
}

function gradientMagnitude(values: Float32Array, width: number, height: number): Float32Array {
  const taps = Array.from({ length: 2 * GRADIENT_RADIUS_PX + 1 }, (_, i) => i - GRADIENT_RADIUS_PX);
  const gauss = taps.map(x => Math.exp(-(x * x) / (2 * GRADIENT_SIGMA_PX ** 2)));
  const slope = taps.map((x, i) => -x * gauss[i]);
  const norm = Math.sqrt(
    gauss.reduce((sum, g) => sum + g * g, 0) * slope.reduce((sum, s) => sum + s * s, 0),
  );
  const along = (kernel: readonly number[], from: Float32Array, step: 1 | 'row') =>
    convolve(from, width, height, kernel, step);
  const dx = along(gauss, along(slope, values, 1), 'row');
  const dy = along(slope, along(gauss, values, 1), 'row');
  const magnitude = new Float32Array(values.length);
  for (let i = 0; i < magnitude.length; i++) magnitude[i] = Math.hypot(dx[i], dy[i]) / norm;
  return magnitude;
}

/** Beyond the border the border's value goes on. */
function convolve(
  from: Float32Array,
  width: number,
  height: number,
  kernel: readonly number[],
  step: 1 | 'row',
): Float32Array {
  const to = new Float32Array(from.length);
  const radius = kernel.length >> 1;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (let k = -radius; k <= radius; k++) {
        const at =
          step === 1
            ? y * width + Math.max(0, Math.min(width - 1, x + k))
            : Math.max(0, Math.min(height - 1, y + k)) * width + x;
        sum += kernel[k + radius] * from[at];
      }
      to[y * width + x] = sum;
    }
  }
  return to;
}
