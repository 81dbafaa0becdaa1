/** The order in which waiting runs get an engine. */
import type { EnginePriority } from './engine-pool.ts';

/**
 * An async run goes as if it had come this much later: a sync one overtakes those that came up to 5
 * s before it, and none waits for ever behind a stream of sync ones. Five seconds are a few runs on
 * a CPU, and far below what an asynchronous caller polls at.
 */
export const ASYNC_HANDICAP_MS = 5_000;

export interface Queued {
  readonly priority: EnginePriority;
  /** performance.now() at the time of arrival, ms. */
  readonly queuedAtMs: number;
}

/** Each priority in order of arrival; of the two heads, the one that is due first. */
export class RunQueue<Item extends Queued> {
  readonly #waiting: Record<EnginePriority, Item[]> = { sync: [], async: [] };

  get length(): number {
    return this.#waiting.sync.length + this.#waiting.async.length;
  }

  push(item: Item): void {
    this.#waiting[item.priority].push(item);
  }

  /** For one that was the head of its line and is again. Of several the last one first. */
  putBack(item: Item): void {
    this.#waiting[item.priority].unshift(item);
  }

  shift(): Item | undefined {
    return this.#nextLine().shift();
  }

  /** The next ones, `max` at most, up to the first that is not to be taken. */
  takeWhile(isTaken: (item: Item) => boolean, max: number): Item[] {
    const taken: Item[] = [];
    while (taken.length < max) {
      const line = this.#nextLine();
      const [next] = line;
      if (next === undefined || !isTaken(next)) break;
      taken.push(next);
      line.shift();
    }
    return taken;
  }

  /** The line whose head is due first. */
  #nextLine(): Item[] {
    const [sync] = this.#waiting.sync;
    const [async] = this.#waiting.async;
    if (sync === undefined) return this.#waiting.async;
    if (async === undefined) return this.#waiting.sync;
    const syncFirst = sync.queuedAtMs <= async.queuedAtMs + ASYNC_HANDICAP_MS;
    return this.#waiting[syncFirst ? 'sync' : 'async'];
  }

  /** Returns false where it was not waiting. */
  remove(item: Item): boolean {
    const line = this.#waiting[item.priority];
    const index = line.indexOf(item);
    if (index === -1) return false;
    line.splice(index, 1);
    return true;
  }

  /** Takes those out that are to leave. */
  removeWhere(leaves: (item: Item) => boolean): Item[] {
    const leaving = [...this.#waiting.sync, ...this.#waiting.async].filter(leaves);
    for (const item of leaving) this.remove(item);
    return leaving;
  }

  /** Empties the queue. */
  drain(): Item[] {
    return [...this.#waiting.sync.splice(0), ...this.#waiting.async.splice(0)];
  }
}
