import type { Size } from '#contract/finishing.ts';

export type { Size };

/** The one of more pixels. */
export function largerOf(one: Size, other: Size): Size {
  return one.width * one.height > other.width * other.height ? one : other;
}
