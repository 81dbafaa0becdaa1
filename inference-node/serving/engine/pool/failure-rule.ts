import type { EngineDeathCause } from './engine-pool.ts';

const FAILURE_DEATHS_MAX = 3;
export const FAILURE_WINDOW_MS = 60_000;

export interface EngineDeath {
  readonly atMs: number;
  readonly engine: number;
  readonly cause: EngineDeathCause;
  readonly imageDigest: string | undefined;
}

/**
 * Decides when engines die so often that the node must end: three deaths within a minute without a
 * successful run in between, or three failed loads of one engine in a row.
 *
 * Deaths under the same image (by the digest of its pixels) count once, so that a poison image does
 * not end the node. A death without an image counts each time.
 */
export class FailureRule {
  readonly #windowMs: number;
  #deaths: EngineDeath[] = [];
  readonly #loadsLostInARow = new Map<number, number>();

  constructor(windowMs: number = FAILURE_WINDOW_MS) {
    this.#windowMs = windowMs;
  }

  recordReady(engine: number): void {
    this.#loadsLostInARow.delete(engine);
  }

  recordSuccess(): void {
    this.#deaths = [];
  }

  recordDeath(death: EngineDeath): boolean {
    if (death.cause === 'load') {
      const inARow = (this.#loadsLostInARow.get(death.engine) ?? 0) + 1;
      this.#loadsLostInARow.set(death.engine, inARow);
      if (inARow >= FAILURE_DEATHS_MAX) return true;
    }
    const { imageDigest } = death;
    const recent = this.#deaths.filter(earlier => death.atMs - earlier.atMs < this.#windowMs);
    const isNew =
      imageDigest === undefined || recent.every(earlier => earlier.imageDigest !== imageDigest);
    this.#deaths = isNew ? [...recent, death] : recent;
    return this.#deaths.length >= FAILURE_DEATHS_MAX;
  }
}
