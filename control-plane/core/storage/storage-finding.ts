/** What a check of a storage tries, one after the other, and what it says of each. */

export interface StorageFinding {
  /** What was tried, in a few words. */
  readonly ability: string;
  /** Undefined: it is as it should be. One line for the operator, without secrets. */
  readonly problem: string | undefined;
}

/** The storage's clock and this machine's: signatures and ages go by them. */
export const CLOCK_OFF_MS_MAX = 30_000;

/** Says what is wrong instead of throwing it. */
export class StorageProblem extends Error {}

export function clockProblem(theirsMs: number): string | undefined {
  const offMs = theirsMs - Date.now();
  if (Math.abs(offMs) <= CLOCK_OFF_MS_MAX) return undefined;
  const seconds = Math.round(Math.abs(offMs) / 1000);
  return `the storage's clock is ${seconds} s ${offMs > 0 ? 'ahead of' : 'behind'} this machine's`;
}

export function requireThat(holds: boolean, otherwise: string): void {
  if (!holds) throw new StorageProblem(otherwise);
}
