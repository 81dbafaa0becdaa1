import type { Size } from '@matting/proto/contract/finishing.ts';
import { type Borrow, bytesAt, kernels, VECTOR_BYTES } from '../kernels/kernels.ts';

export interface ColourLevel extends Size {
  /** Addresses; `seen` has colour (0 to 255) and alpha (0 to 1). */
  readonly seen: number;
  readonly foreground: number;
  readonly background: number;
}

/** Germer et al. use 1e-5 and 1, which trust every alpha. */
const SMOOTHNESS = 0.005;
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

export function startWithMeans({ seen, foreground, background, width, height }: ColourLevel): void {
  const bytes = width * height * VECTOR_BYTES;
  const colours = bytesAt(seen, bytes);
  bytesAt(foreground, bytes).set(colours);
  bytesAt(background, bytes).set(colours);
}

/** @param softOnly leaves opaque and transparent pixels unchanged */
export function relax(level: ColourLevel, rounds: number, softOnly: boolean, spans = 0): void {
  const { seen, foreground, background, width, height } = level;
  const rules = [rounds, Number(softOnly), spans, SMOOTHNESS, GRADIENT_WEIGHT] as const;
  kernels.relax(seen, foreground, background, width, height, ...rules);
}
