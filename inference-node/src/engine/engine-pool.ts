/** The engines of one prepared model: interface first, implementation below it. */

export type EnginePriority = 'sync' | 'async';

export interface EngineRun {
  /** HWC, 3 bytes a pixel in RGB order, exactly the model's input size. */
  readonly rgb: Uint8Array;
  readonly priority: EnginePriority;
  /** Aborted while queued: leaves the queue. Aborted while running: the result is dropped. */
  readonly signal: AbortSignal;
}

export interface EngineResult {
  /** One byte a pixel, 255 opaque, the model's input size. Never rescaled per image. */
  readonly alpha: Buffer;
  readonly waitMs: number;
  readonly inferMs: number;
}

export interface EnginePoolSnapshot {
  /** failed: engines keep dying, the node must go. */
  readonly state: 'starting' | 'ready' | 'failed';
  readonly engines: number;
  readonly enginesReady: number;
  readonly running: number;
  readonly queued: number;
  /** Running mean of a run, ms. */
  readonly inferMs: number;
  /** For a run queued now, until an engine takes it, ms. */
  readonly estimatedWaitMs: number;
}

export interface EnginePool {
  /**
   * Queues a run; sync before async. Rejects with ContractError ENGINE_LOST when its engine died
   * under it (also by the watchdog), NODE_UNAVAILABLE when the pool closes or failed, and with the
   * signal's reason when aborted. The queue is bounded by the node's admission.
   */
  run(run: EngineRun): Promise<EngineResult>;
  snapshot(): EnginePoolSnapshot;
  /** Called after each change of the snapshot's state, enginesReady, running or queued. */
  onChange(listener: () => void): () => void;
  /** Lets a running image finish up to `graceMs`, then kills. Idempotent. */
  close(graceMs: number): Promise<void>;
}
