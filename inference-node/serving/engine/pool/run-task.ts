/** A run on its way through the pool: the request, and the one answer that its caller gets. */
import { ContractError } from '#contract/errors.ts';
import type { EngineDeathCause, EngineResult, EngineRun } from './engine-pool.ts';

export interface RunTask {
  readonly id: number;
  readonly rgb: Uint8Array;
  readonly priority: EngineRun['priority'];
  readonly leavesWhenDown: boolean;
  readonly queuedAtMs: number;
  /** The first of these settles the caller's promise; later ones do nothing. */
  readonly resolve: (result: EngineResult) => void;
  readonly reject: (reason: unknown) => void;
  /** The caller has its answer; where native code still runs, the engine is still taken. */
  settled: boolean;
  /** When an engine took it last. */
  takenAtMs: number;
  /** How many engines took it. */
  dispatches: number;
  /** It was lost with others. */
  runsAlone: boolean;
}

/** `onAbort` is called at most once, and not after the task was settled. */
export function createRunTask(
  id: number,
  { rgb, priority, signal, leavesWhenDown = false }: EngineRun,
  onAbort: (task: RunTask) => void,
): { task: RunTask; promise: Promise<EngineResult> } {
  const { promise, resolve, reject } = Promise.withResolvers<EngineResult>();
  const abort = () => onAbort(task);
  const settle = <Value>(settleWith: (value: Value) => void, value: Value) => {
    if (task.settled) return;
    task.settled = true;
    signal.removeEventListener('abort', abort);
    settleWith(value);
  };
  const task: RunTask = {
    id,
    rgb,
    priority,
    leavesWhenDown,
    queuedAtMs: performance.now(),
    resolve: result => settle(resolve, result),
    reject: reason => settle(reject, reason),
    settled: false,
    takenAtMs: 0,
    dispatches: 0,
    runsAlone: false,
  };
  signal.addEventListener('abort', abort);
  return { task, promise };
}

/** The error for the caller of a run whose engine was lost. */
export function createLossError(cause: EngineDeathCause, message: string): ContractError {
  const options = { cause: new Error(message) };
  switch (cause) {
    case 'fault':
      return new ContractError('NODE_FAULT', 'The inference failed.', options);
    case 'watchdog':
      return new ContractError('ENGINE_LOST', 'The engine took too long over this image.', options);
    // The image did nothing: the control plane must not count it among those that kill engines.
    case 'device':
      return new ContractError('NODE_UNAVAILABLE', 'The GPU under this image is out.', options);
    default:
      return new ContractError('ENGINE_LOST', 'The engine died under this image.', options);
  }
}
