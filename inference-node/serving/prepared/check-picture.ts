/**
 * A picture made by arithmetic, and a summary of a model's answer to it: with it a machine shows
 * that it computes a quantised graph like the machine it was calibrated on. Pure.
 *
 * Integer kernels differ between CPUs in how they round, by a level here and there. A CPU whose
 * 8-bit products saturate in 16-bit sums, or a faulty driver, gives another matte.
 */

/** An answer is summarised as the means of 16 x 16 blocks. */
const BLOCKS_A_SIDE = 16;
export const CHECK_BLOCKS = BLOCKS_A_SIDE ** 2;

/**
 * Differences between two answers, in levels of 255. ISNet's answers in int8 and in float32 differ
 * by 0.02 in the mean and 1 at most, so another rounding stays far below.
 */
const MEAN_DIFFERENCE_MAX = 1;
const BLOCK_DIFFERENCE_MAX = 16;

/**
 * A lit ball with a thin stem before a background that grows brighter, and a little noise. Only
 * additions, products and roots, so that every machine makes the same bytes.
 * @returns HWC RGB.
 */
export function drawCheckPicture(width: number, height: number): Buffer {
  const rgb = Buffer.alloc(3 * width * height);
  let state = 1;
  for (let row = 0; row < height; row++) {
    const y = row / height - 0.48;
    for (let column = 0; column < width; column++) {
      const x = column / width - 0.5;
      const distance = Math.sqrt(x * x + y * y);
      const light = 1 - 1.6 * Math.sqrt((x + 0.1) ** 2 + (y + 0.12) ** 2);
      const stem = y > 0 && Math.abs(x) < 0.012 + 0.02 * y;
      const at = 3 * (row * width + column);
      const background = 120 + 70 * y;
      for (let channel = 0; channel < 3; channel++) {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
        const noise = state / 2 ** 32 - 0.5;
        const ball = (channel === 0 ? 235 : channel === 1 ? 120 : 60) * light + 15;
        const subject = distance < 0.27 ? ball : 70 - 20 * channel;
        const value = distance < 0.27 || stem ? subject : background + 14 * channel;
        rgb[at + channel] = Math.max(0, Math.min(255, Math.round(value + 12 * noise)));
      }
    }
  }
  return rgb;
}

/** Means of an alpha's blocks, rounded to whole levels. */
export function summariseAnswer(alpha: Uint8Array, width: number, height: number): number[] {
  const sums = new Float64Array(CHECK_BLOCKS);
  const counts = new Float64Array(CHECK_BLOCKS);
  for (let row = 0; row < height; row++) {
    const first = Math.floor((row * BLOCKS_A_SIDE) / height) * BLOCKS_A_SIDE;
    for (let column = 0; column < width; column++) {
      const block = first + Math.floor((column * BLOCKS_A_SIDE) / width);
      sums[block] = (sums[block] ?? 0) + (alpha[row * width + column] ?? 0);
      counts[block] = (counts[block] ?? 0) + 1;
    }
  }
  return Array.from(sums, (sum, block) => Math.round(sum / (counts[block] ?? 1)));
}

/** Undefined where the answers agree, else one line that says by how much they differ. */
export function compareAnswers(
  found: readonly number[],
  stored: readonly number[],
): string | undefined {
  const differences = found.map((level, block) => Math.abs(level - (stored[block] ?? Number.NaN)));
  const mean = differences.reduce((sum, difference) => sum + difference, 0) / differences.length;
  const largest = Math.max(...differences);
  if (mean <= MEAN_DIFFERENCE_MAX && largest <= BLOCK_DIFFERENCE_MAX) return undefined;
  return `it differs by ${mean.toFixed(1)} levels of 255 in the mean, ${largest} at most`;
}
