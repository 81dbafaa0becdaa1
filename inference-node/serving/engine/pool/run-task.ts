import { ContractError } from '@matting/proto/contract/errors.ts';
import type { EngineDeathCause, EngineResult, EngineRun } from './engine-pool.ts';

export interface RunTask {
  readonly id: number;
  readonly rgb: Uint8Array;
  readonly size: EngineRun['size'];
  readonly priority: EngineRun['priority'];
  readonly failsWhenDown: boolean;
  readonly queuedAtMs: number;
  /** The first call settles the caller's promise; later ones do nothing. */
  readonly resolve: (result: EngineResult) => void;
  readonly reject: (reason: unknown) => void;
  /** The caller has its answer, but native code may still hold the engine. */
  settled: boolean;
  takenAtMs: number;
  dispatches: number;
}

/** Calls `onAbort` at most once, and not after the task was settled. */
export function createRunTask(
  id: number,
  { rgb, size, priority, signal, failsWhenDown = false }: EngineRun,
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
    size,
    priority,
    failsWhenDown,
    queuedAtMs: performance.now(),
    resolve: result => settle(resolve, result),
    reject: reason => settle(reject, reason),
    settled: false,
    takenAtMs: 0,
    dispatches: 0,
  };
  signal.addEventListener('abort', abort);
  return { task, promise };
}

export function createLossError(cause: EngineDeathCause, message: string): ContractError {
  const options = { cause: new Error(message) };
  switch (cause) {
    case 'fault':
      return new ContractError('NODE_FAULT', 'The inference failed.', options);
    case 'watchdog':
      return new ContractError(
        'ENGINE_LOST',
        'The engine took too long to process this image.',
        options,
      );
    case 'shortage':
      return new ContractError('NODE_OVERLOADED', 'The GPU has too little free memory.', options);
    case 'memory':
      return new ContractError(
        'PROCESSING_FAILED',
        'The model takes too much memory to process this image.',
        options,
      );
    // The control plane must not count this image among those that kill engines.
    case 'device':
      return new ContractError(
        'NODE_UNAVAILABLE',
        'The GPU failed while it processed this image.',
        options,
      );
    default:
      return new ContractError(
        'ENGINE_LOST',
        'The engine died while it processed this image.',
        options,
      );
  }
}
