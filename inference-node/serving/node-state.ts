/**
 * What the node is doing, for all that ask: admission, the capacity stream, gRPC health,
 * /readyz and the metrics read this one place. It holds one fact (why it drains, if it does) and
 * derives the rest from the engines, so that no copy of their state can go stale.
 *
 * | state    | while                                  | new images  | left when                  |
 * |----------|----------------------------------------|-------------|----------------------------|
 * | starting | some model has no engine ready (at     | UNAVAILABLE | every model has one:       |
 * |          | start, or all of its engines died)     |             | serving                    |
 * | serving  | every model has an engine ready        | admitted    | as the other rows say      |
 * | draining | a drain was ordered, or the process    | UNAVAILABLE | the control plane takes    |
 * |          | ends                                   |             | its order back: by engines |
 * | failed   | the engines of some model keep dying,  | UNAVAILABLE | never: main.ts exits       |
 * |          | or most of them, or of the picture     |             |                            |
 * |          | workers, do not die                    |             |                            |
 *
 * failed goes before draining, draining before starting.
 */
import type { EnginePool } from './engine/pool/engine-pool.ts';
import type { PicturePool } from './picture/pool/picture-pool.ts';

export const NODE_STATES = ['starting', 'serving', 'draining', 'failed'] as const;
export type NodeState = (typeof NODE_STATES)[number];

/** `command`: by a control plane, which can take it back; `shutdown` cannot be taken back. */
export type DrainCause = 'command' | 'shutdown';

export class NodeStatus {
  readonly #engines: EnginePool[] = [];
  #pictures: PicturePool | undefined;
  readonly #drainCauses = new Set<DrainCause>();
  readonly #listeners = new Set<(state: NodeState) => void>();
  #announced: NodeState = 'starting';

  get state(): NodeState {
    const snapshots = this.#engines.map(engines => engines.snapshot());
    const failed = snapshots.some(({ state }) => state === 'failed');
    if (failed || this.#pictures?.snapshot().state === 'failed') return 'failed';
    if (this.#drainCauses.size > 0) return 'draining';
    const ready = snapshots.length > 0 && snapshots.every(({ enginesReady }) => enginesReady > 0);
    return ready ? 'serving' : 'starting';
  }

  /** Why the node failed, in one line. */
  get failure(): string | undefined {
    const snapshots = [...this.#engines, this.#pictures].map(pool => pool?.snapshot());
    return snapshots.find(snapshot => snapshot?.state === 'failed')?.failure;
  }

  /** Called once, with the pools that the node cannot do without, as soon as they exist. */
  attach(engines: readonly EnginePool[], pictures: PicturePool): void {
    this.#engines.push(...engines);
    this.#pictures = pictures;
    for (const pool of [...engines, pictures]) pool.onChange(() => this.#announce());
    this.#announce();
  }

  drain(cause: DrainCause): void {
    this.#drainCauses.add(cause);
    this.#announce();
  }

  /** Takes the control plane's order back; a shutdown stays. */
  undrain(): void {
    this.#drainCauses.delete('command');
    this.#announce();
  }

  /** Called after each change of state, with the new one. */
  onChange(listener: (state: NodeState) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #announce(): void {
    const state = this.state;
    if (state === this.#announced) return;
    this.#announced = state;
    for (const listener of [...this.#listeners]) listener(state);
  }
}
