/** What a pool's engines did since it was opened: the numbers behind the metrics. */
import type { EngineDeathCause, EnginePoolMetrics, RunOutcome } from './engine-pool.ts';

export class EngineAccounts {
  readonly #runs: Record<RunOutcome, number> = { succeeded: 0, failed: 0, lost: 0, dropped: 0 };
  readonly #deaths: Record<EngineDeathCause, number> = {
    load: 0,
    idle: 0,
    run: 0,
    watchdog: 0,
    fault: 0,
    device: 0,
  };
  #busyMs = 0;
  #loadMs = 0;
  #warmMs = 0;

  addRun(outcome: RunOutcome, busyMs: number): void {
    this.#runs[outcome]++;
    this.#busyMs += busyMs;
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
      runs: { ...this.#runs },
      deaths: { ...this.#deaths },
      busyS: this.#busyMs / 1000,
      loadMs: this.#loadMs,
      warmMs: this.#warmMs,
    };
  }
}
