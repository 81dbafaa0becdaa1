import {
  ENGINE_DEATH_CAUSES,
  type EngineDeathCause,
  type EnginePoolMetrics,
  RUN_OUTCOMES,
  type RunOutcome,
} from './engine-pool.ts';
import type { RunTask } from './run-task.ts';

export class EngineCounters implements EnginePoolMetrics {
  readonly runs = noneOf<RunOutcome>(RUN_OUTCOMES);
  readonly deaths = noneOf<EngineDeathCause>(ENGINE_DEATH_CAUSES);
  busyS = 0;
  loadMs = 0;
  warmMs = 0;

  addRun(task: RunTask): number {
    const takenMs = performance.now() - task.takenAtMs;
    this.busyS += takenMs / 1000;
    return takenMs;
  }
}

function noneOf<Name extends string>(names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map(name => [name, 0])) as Record<Name, number>;
}
