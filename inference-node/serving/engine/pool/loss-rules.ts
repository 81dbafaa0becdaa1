/** What losses of engines and of runs come to. Pure. */
import type { BatchGraph } from '../../models/prepared-model.ts';
import type { EngineDeathCause } from './engine-pool.ts';
import type { RunQueue } from './run-queue.ts';
import type { RunTask } from './run-task.ts';

export const FAILURE_DEATHS_MAX = 3;
export const FAILURE_WINDOW_MS = 60_000;

export interface EngineDeath {
  readonly atMs: number;
  readonly engine: number;
  readonly cause: EngineDeathCause;
  /** Hexadecimal digest of the image it died under. */
  readonly imageDigest: string | undefined;
}

/**
 * When engines die so often that the node must go.
 *
 * One poison image kills an engine at each of its attempts and must not take the node with it, so
 * deaths under an image count once for each different image (by the digest of its pixels), while a
 * death at load, in idleness or without an image to blame counts each time. Three counts within a
 * minute with no successful run between them are a failed node: by then different images have died,
 * and a process supervisor does better than another respawn. A load that fails has no image to
 * blame at all: three in a row of one engine are the end whatever their distance, since a model may
 * take a minute to load.
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

  /** Returns true when the node must go. */
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

export const LOSSES_MAX = 3;

/**
 * Which of the pictures that wait an engine takes at once. One for each group of engines: what
 * cannot do several is a GPU.
 *
 * A run of several that fails, dies or takes too long says nothing about which picture did it, so
 * each of them runs again, alone: a picture that kills engines is lost alone, as ever. After three
 * such runs with no run of several that ended well between them, every picture runs alone until
 * the pool is opened again: it may be their being together that does it.
 */
export class BatchRule {
  readonly #sizes: readonly number[];
  #losses = 0;

  /** @param batches fewest pictures first. */
  constructor(batches: readonly BatchGraph[] = []) {
    this.#sizes = [1, ...batches.map(({ images }) => images)];
  }

  /** Pictures of one run. */
  get imagesMax(): number {
    return this.#losses < LOSSES_MAX ? (this.#sizes.at(-1) ?? 1) : 1;
  }

  /**
   * Takes what goes into one run, in the queue's order: as much as there is a graph for. Undefined:
   * nothing waits.
   * @param idle engines that share what waits.
   */
  next(queue: RunQueue<RunTask>, idle: number): [RunTask, ...RunTask[]] | undefined {
    const share = this.#fitting(Math.ceil(queue.length / idle));
    const first = queue.shift();
    if (first === undefined || first.runsAlone) return first && [first];
    const others = queue.takeWhile(({ runsAlone }) => !runsAlone, share - 1);
    const extra = others.splice(this.#fitting(1 + others.length) - 1);
    for (const task of extra.reverse()) queue.putBack(task);
    return [first, ...others];
  }

  /** A run of several was lost. Returns true where there is none any more from now on. */
  recordLoss(): boolean {
    this.#losses += 1;
    return this.#losses === LOSSES_MAX;
  }

  recordSuccess(images: number): void {
    if (images > 1 && this.#losses < LOSSES_MAX) this.#losses = 0;
  }

  #fitting(images: number): number {
    const most = Math.min(images, this.imagesMax);
    return this.#sizes.findLast(size => size <= most) ?? 1;
  }
}
