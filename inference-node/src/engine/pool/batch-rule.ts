/**
 * Which of the pictures that wait an engine takes at once. One for each group of engines: what
 * cannot do several is a GPU.
 *
 * A run of several that fails, dies or takes too long says nothing about which picture did it, so
 * each of them runs again, alone: a picture that kills engines is lost alone, as ever. After three
 * such runs with no run of several that ended well between them, every picture runs alone until
 * the pool is opened again: it may be their being together that does it.
 */
import type { BatchGraph } from '../../models/prepared-model.ts';
import type { RunQueue } from './run-queue.ts';
import type { RunTask } from './run-task.ts';

export const LOSSES_MAX = 3;

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
