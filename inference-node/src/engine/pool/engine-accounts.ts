/** What a pool's engines did since it was opened: the numbers behind the metrics. */
import { BATCH_SIZES } from '../../models/prepared-model.ts';
import type { EngineDeathCause, EnginePoolMetrics, RunOutcome } from './engine-pool.ts';
import type { RunTask } from './run-task.ts';

export class EngineAccounts {
  readonly #outcomes: Record<RunOutcome, number> = { succeeded: 0, failed: 0, lost: 0, dropped: 0 };
  readonly #deaths: Record<EngineDeathCause, number> = {
    load: 0,
    idle: 0,
    run: 0,
    watchdog: 0,
    fault: 0,
    device: 0,
  };
  readonly #runsByImages = new Map([1, ...BATCH_SIZES].map(images => [images, 0]));
  #busyMs = 0;
  #loadMs = 0;
  #warmMs = 0;

  /** An engine is free of them. Returns how long they had it, ms. */
  addRun([first, ...others]: readonly RunTask[]): number {
    if (first === undefined) return 0;
    const images = 1 + others.length;
    const takenMs = performance.now() - first.takenAtMs;
    this.#runsByImages.set(images, (this.#runsByImages.get(images) ?? 0) + 1);
    this.#busyMs += takenMs;
    return takenMs;
  }

  addOutcome(outcome: RunOutcome): void {
    this.#outcomes[outcome]++;
  }

  addDeath(cause: EngineDeathCause): void {
    this.#deaths[cause]++;
  }

  noteLoad(loadMs: number, warmMs: number): void {
    this.#loadMs = loadMs;
    this.#warmMs = warmMs;
  }

  read(): EnginePoolMetrics {
    return {
      runs: { ...this.#outcomes },
      runsByImages: Object.fromEntries(this.#runsByImages),
      deaths: { ...this.#deaths },
      busyS: this.#busyMs / 1000,
      loadMs: this.#loadMs,
      warmMs: this.#warmMs,
    };
  }
}
