/** What a pool's engines did since it was opened: the numbers behind the metrics. */
import { BATCH_SIZES } from '../../models/prepared-model.ts';
import {
  ENGINE_DEATH_CAUSES,
  type EngineDeathCause,
  type EnginePoolMetrics,
  RUN_OUTCOMES,
  type RunOutcome,
} from './engine-pool.ts';
import type { RunTask } from './run-task.ts';

export class EngineAccounts implements EnginePoolMetrics {
  readonly runs = noneOf<RunOutcome>(RUN_OUTCOMES);
  readonly deaths = noneOf<EngineDeathCause>(ENGINE_DEATH_CAUSES);
  readonly runsByImages = noneOf<number>([1, ...BATCH_SIZES]);
  busyS = 0;
  loadMs = 0;
  warmMs = 0;

  /** An engine is free of them. Returns how long they had it, ms. */
  addRun(tasks: readonly RunTask[]): number {
    const [first] = tasks;
    if (first === undefined) return 0;
    const takenMs = performance.now() - first.takenAtMs;
    this.runsByImages[tasks.length] = (this.runsByImages[tasks.length] ?? 0) + 1;
    this.busyS += takenMs / 1000;
    return takenMs;
  }
}

function noneOf<Name extends string | number>(names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map(name => [name, 0])) as Record<Name, number>;
}
