export interface StorageFinding {
  readonly ability: string;
  /** One line for the operator, without secrets. undefined: no problem. */
  readonly problem: string | undefined;
}

/**
 * Accepted difference between the clocks of the storage and of this machine. Signatures and the
 * ages of files depend on both.
 */
const CLOCK_OFF_MS_MAX = 30_000;

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

export function problemOf(error: unknown): string {
  if (error instanceof StorageProblem) return error.message;
  const { message, cause } = error as Error;
  const { code } = (cause ?? error) as NodeJS.ErrnoException;
  return code === undefined ? message : `${message} (${code})`;
}
