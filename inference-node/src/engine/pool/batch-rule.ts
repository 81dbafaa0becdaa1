/**
 * Which of the pictures that wait an engine takes at once, and what becomes of those whose run was
 * lost. One for each group of engines: what cannot do several is a GPU.
 *
 * A run of several that fails, dies or takes too long says nothing about which picture did it, so
 * each of them runs again, alone: a picture that kills engines is lost alone, as ever. Where none
 * of them was at fault it was their being together: after three such runs of n, with no run of n or
 * more that ended well between them, a run has fewer than n until the pool is opened again.
 *
 * A picture whose caller left is not judged. Where another of its run was well alone, the one that
 * left may have been at fault, and the loss does not count; where all left it does.
 */
import type { BatchGraph } from '../../models/prepared-model.ts';
import type { RunQueue } from './run-queue.ts';
import type { EndAlone, RunTask } from './run-task.ts';

export const BLAMELESS_LOSSES_MAX = 3;

export interface LossVerdict {
  /** None of them ran alone: nobody knows whose fault it was. */
  readonly noneJudged: boolean;
  /** Pictures of one run from now on. Undefined: as before. */
  readonly imagesMax: number | undefined;
}

export class BatchRule {
  readonly #sizes: readonly number[];
  /** Runs that were lost and were nobody's fault, by their pictures. */
  readonly #blamelessLosses = new Map<number, number>();
  #imagesMax: number;

  /** @param batches fewest pictures first. */
  constructor(batches: readonly BatchGraph[] = []) {
    this.#sizes = [1, ...batches.map(({ images }) => images)];
    this.#imagesMax = this.#sizes.at(-1) ?? 1;
  }

  /** Pictures of one run. */
  get imagesMax(): number {
    return this.#imagesMax;
  }

  /**
   * Takes what goes into one run, in the queue's order: as much as there is a graph for. Undefined:
   * nothing waits.
   * @param idle engines that share what waits.
   */
  next(queue: RunQueue<RunTask>, idle: number): [RunTask, ...RunTask[]] | undefined {
    const share = this.#fitting(Math.ceil(queue.length / idle));
    const first = queue.shift();
    if (first === undefined || first.lostWith !== undefined) return first && [first];
    const others = queue.takeWhile(({ lostWith }) => lostWith === undefined, share - 1);
    const extra = others.splice(this.#fitting(1 + others.length) - 1);
    for (const task of extra.reverse()) queue.putBack(task);
    return [first, ...others];
  }

  /**
   * A run of several was lost, and those in `again` run again.
   * @param onJudged called when the last of them has ended.
   */
  recordLoss(
    lost: readonly RunTask[],
    again: readonly RunTask[],
    onJudged: (verdict: LossVerdict) => void,
  ): void {
    const ends = { well: 0, blamed: 0, gone: lost.length - again.length };
    let left = again.length;
    const recordEnd = (end: EndAlone) => {
      ends[end] += 1;
      left -= 1;
      if (left === 0) onJudged(this.#judge(lost.length, ends));
    };
    for (const task of again) task.lostWith = { recordEnd };
    if (left === 0) onJudged(this.#judge(lost.length, ends));
  }

  recordSuccess(images: number): void {
    for (const size of this.#sizes) if (size <= images) this.#blamelessLosses.delete(size);
  }

  #judge(images: number, { well, blamed, gone }: Record<EndAlone, number>): LossVerdict {
    const blameless = blamed === 0 && (gone === 0 || well === 0);
    const fewer = blameless && this.#countLoss(images);
    return { noneJudged: well + blamed === 0, imagesMax: fewer ? this.#imagesMax : undefined };
  }

  /** Returns whether runs have fewer pictures since. */
  #countLoss(images: number): boolean {
    // It was under way when runs of its number were given up.
    if (images > this.#imagesMax) return false;
    const losses = (this.#blamelessLosses.get(images) ?? 0) + 1;
    this.#blamelessLosses.set(images, losses);
    if (losses < BLAMELESS_LOSSES_MAX) return false;
    this.#imagesMax = this.#sizes.findLast(size => size < images) ?? 1;
    return true;
  }

  #fitting(images: number): number {
    const most = Math.min(images, this.imagesMax);
    return this.#sizes.findLast(size => size <= most) ?? 1;
  }
}
