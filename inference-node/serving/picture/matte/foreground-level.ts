/**
 * One level of foreground estimation (Germer et al., "Fast Multi-Level Foreground Estimation", ICPR
 * 2020, section III); inference-node/kernels/foreground.ts has the arithmetic.
 */

import type { Size } from '#contract/finishing.ts';
import { type Borrow, bytesAt, kernels, VECTOR_BYTES } from '../kernels/kernels.ts';

/** Addresses of planes of one size, one vector per pixel. */
export interface ColourLevel extends Size {
  /** Colour, 0 to 255, and alpha, 0 to 1. */
  readonly seen: number;
  readonly foreground: number;
  readonly background: number;
}

/**
 * Weight of smoothness between neighbours of the same alpha. The paper's values (1e-5, and 1 for a
 * step of alpha) trust every alpha; a model's is a guess. Lower and higher values were measured.
 */
const SMOOTHNESS = 0.02;
/** Weight that a step of alpha from 0 to 1 adds. */
const GRADIENT_WEIGHT = 0.02;

export function borrowLevel(borrow: Borrow, { width, height }: Size): ColourLevel {
  const bytes = width * height * VECTOR_BYTES;
  return {
    width,
    height,
    seen: borrow(bytes),
    foreground: borrow(bytes),
    background: borrow(bytes),
  };
}

/** Both colours start as the observed one. */
export function startWithMeans({ seen, foreground, background, width, height }: ColourLevel): void {
  const bytes = width * height * VECTOR_BYTES;
  const colours = bytesAt(seen, bytes);
  bytesAt(foreground, bytes).set(colours);
  bytesAt(background, bytes).set(colours);
}

/** Each pixel of `fine` starts with the colours of the coarse pixel that it lies in. */
export function enlarge(coarse: ColourLevel, fine: ColourLevel): void {
  kernels.enlarge(coarse.foreground, fine.foreground, fine.width, fine.height);
  kernels.enlarge(coarse.background, fine.background, fine.width, fine.height);
}

/**
 * Improves both colours in place, pixel by pixel, each from its neighbours' newest values.
 * @param softOnly leaves pixels that are fully opaque or fully transparent unchanged.
 */
export function relax(level: ColourLevel, rounds: number, softOnly: boolean): void {
  const { seen, foreground, background, width, height } = level;
  kernels.relax(
    seen,
    foreground,
    background,
    width,
    height,
    rounds,
    softOnly,
    SMOOTHNESS,
    GRADIENT_WEIGHT,
  );
}
