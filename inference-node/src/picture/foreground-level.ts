/**
 * One level of foreground estimation: given colour and alpha, foreground and background colours
 * that explain them (colour = alpha * foreground + (1 - alpha) * background) and are smooth, all
 * the more where alpha changes. Germer et al., "Fast Multi-Level
 * Foreground Estimation", ICPR 2020, section III.
 */
import type { Size } from './picture-pool.ts';

/** Planes of one size; three floats a pixel, 0 to 255, but for alpha in [0, 1]. */
export interface ColourLevel extends Size {
  readonly colour: Float32Array;
  readonly alpha: Float32Array;
  readonly foreground: Float32Array;
  readonly background: Float32Array;
}

/**
 * Of neighbours of the same alpha: both colours are smooth where nothing else is known. The paper's
 * 1e-5, and 1 for a step, believe every alpha; a model's is a guess. Lower and higher were measured.
 */
const SMOOTHNESS = 0.02;
/** What a step of alpha from 0 to 1 adds. */
const GRADIENT_WEIGHT = 0.02;

export function createLevel({ width, height }: Size): ColourLevel {
  const pixels = width * height;
  return {
    width,
    height,
    colour: new Float32Array(3 * pixels),
    alpha: new Float32Array(pixels),
    foreground: new Float32Array(3 * pixels),
    background: new Float32Array(3 * pixels),
  };
}

/**
 * Improves both colours in place, pixel by pixel, each from its neighbours' newest values.
 * @param softOnly leaves what is quite opaque or quite transparent as it is.
 */
export function relax(level: ColourLevel, rounds: number, softOnly: boolean): void {
  for (let round = 0; round < rounds; round++) {
    for (let y = 0; y < level.height; y++) relaxRow(level, y, softOnly);
  }
}

/** Of each pixel the 2x2 system of its two colours, the same for each channel. */
function relaxRow(level: ColourLevel, y: number, softOnly: boolean): void {
  const { width, alpha, colour, foreground, background } = level;
  const toUp = y > 0 ? -width : 0;
  const toDown = y < level.height - 1 ? width : 0;
  for (let x = 0, at = y * width; x < width; x++, at++) {
    const a = alpha[at];
    if (softOnly && (a === 0 || a === 1)) continue;
    const left = x > 0 ? at - 1 : at;
    const right = x < width - 1 ? at + 1 : at;
    const up = at + toUp;
    const down = at + toDown;
    const wl = SMOOTHNESS + GRADIENT_WEIGHT * Math.abs(a - alpha[left]);
    const wr = SMOOTHNESS + GRADIENT_WEIGHT * Math.abs(a - alpha[right]);
    const wu = SMOOTHNESS + GRADIENT_WEIGHT * Math.abs(a - alpha[up]);
    const wd = SMOOTHNESS + GRADIENT_WEIGHT * Math.abs(a - alpha[down]);
    const sum = wl + wr + wu + wd;
    const b = 1 - a;
    const ff = a * a + sum;
    const fb = a * b;
    const bb = b * b + sum;
    const scale = 1 / (ff * bb - fb * fb);
    for (let c = 0; c < 3; c++) {
      const l = 3 * left + c;
      const r = 3 * right + c;
      const u = 3 * up + c;
      const d = 3 * down + c;
      const here = 3 * at + c;
      const seen = colour[here];
      const f =
        a * seen +
        wl * foreground[l] +
        wr * foreground[r] +
        wu * foreground[u] +
        wd * foreground[d];
      const g =
        b * seen +
        wl * background[l] +
        wr * background[r] +
        wu * background[u] +
        wd * background[d];
      foreground[here] = clamp((bb * f - fb * g) * scale);
      background[here] = clamp((ff * g - fb * f) * scale);
    }
  }
}

function clamp(value: number): number {
  return value < 0 ? 0 : value > 255 ? 255 : value;
}
