/**
 * The engines of the own plan on a small machine (MATTING_PROFILE=small): an `EngineSet` that is
 * loaded at the start, ended when no image has wanted it for a time, and loaded again by the next.
 * Its memory stays counted as the own plan's, so an image that is admitted always finds room.
 *
 * | the set is           | the pool says                                             |
 * |----------------------|-----------------------------------------------------------|
 * | loading, at first    | starting                                                  |
 * | loaded               | what its engines say                                      |
 * | unloaded             | ready, no wait: it takes images, and the node serves      |
 * | loading, again       | ready, the rest of the load as the wait                   |
 * | off: its load failed | failed: the node ends, as with engines that keep dying    |
 */
import { within } from '@matting/program/waiting.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type {
  EnginePool,
  EnginePoolSnapshot,
  EngineResult,
  EngineRun,
} from '../engine/pool/engine-pool.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import { type EngineShare, ROOM_WAIT_MAX_MS } from './engine-memory.ts';
import { EngineSet, type EngineSetParts } from './engine-set.ts';

type IdleEnginesParts = Pick<EngineSetParts, 'engines' | 'idleMs' | 'log' | 'open' | 'metrics'>;

export class IdleEngines implements EnginePool {
  readonly #set: EngineSet;
  readonly #listeners = new Set<() => void>();
  readonly #started: Promise<void>;
  #hasBeenReady = false;

  constructor(model: PreparedModel, parts: IdleEnginesParts) {
    this.#set = new EngineSet(model, {
      ...parts,
      memory: new OneAfterAnother(),
      prepare: async prepared => prepared,
      onTurn: () => this.#changed(),
    });
    this.#set.onChange(() => this.#changed());
    const leave = this.#set.enter();
    this.#started = this.#set
      .ready()
      .then(() => {
        this.#hasBeenReady = true;
        this.#changed();
      })
      .finally(leave);
    // Callers that do not wait for ready() read the state.
    this.#started.catch(() => undefined);
  }

  /** Rejects with what the engines said, in one line for the operator. */
  async ready(): Promise<void> {
    try {
      await this.#started;
    } catch (error) {
      throw (error as Error).cause ?? error;
    }
  }

  async run(run: EngineRun): Promise<EngineResult> {
    using left = new DisposableStack();
    left.defer(this.#set.enter());
    await this.#loaded(run);
    return await this.#set.run(run);
  }

  snapshot(): EnginePoolSnapshot {
    const snapshot = this.#set.snapshot();
    const { state, isOff, model } = this.#set;
    if (isOff) {
      const failure = `the engines of ${model.model} cannot be loaded`;
      return { ...snapshot, state: 'failed', failure };
    }
    if (!this.#hasBeenReady || state === 'loaded') return snapshot;
    const estimatedWaitMs = state === 'loading' ? snapshot.estimatedWaitMs : 0;
    return { ...snapshot, state: 'ready', enginesReady: snapshot.engines, estimatedWaitMs };
  }

  metrics() {
    return this.#set.metrics();
  }

  processes() {
    return this.#set.processes();
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(graceMs: number): Promise<void> {
    return this.#set.close(graceMs);
  }

  async #loaded({ leavesWhenDown }: EngineRun): Promise<void> {
    try {
      await this.#set.ready();
    } catch (cause) {
      if (!leavesWhenDown) throw cause;
      throw new ContractError('ENGINE_LOST', 'The engines could not be loaded.', { cause });
    }
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** New engines begin once the last process of those before is gone: both would not fit. */
class OneAfterAnother {
  #gone: Promise<void> = Promise.resolve();

  take(): EngineShare {
    const before = this.#gone;
    const own = Promise.withResolvers<void>();
    return {
      room: () => within(before, ROOM_WAIT_MAX_MS, stuck),
      resize: () => undefined,
      leave: () => {
        this.#gone = own.promise;
      },
      release: () => own.resolve(),
    };
  }
}

function stuck(): Error {
  // No refusal: they are stuck, and a node that says it is ready would take no image again.
  return new Error('the engines before these were killed and do not die');
}
