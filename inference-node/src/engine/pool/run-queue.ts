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

  /** For a run whose engine died before it began: it was the head of its line and is again. */
  putBack(item: Item): void {
    this.#waiting[item.priority].unshift(item);
  }

  shift(): Item | undefined {
    const [sync] = this.#waiting.sync;
    const [async] = this.#waiting.async;
    if (sync === undefined) return this.#waiting.async.shift();
    if (async === undefined) return this.#waiting.sync.shift();
    const syncFirst = sync.queuedAtMs <= async.queuedAtMs + ASYNC_HANDICAP_MS;
    return this.#waiting[syncFirst ? 'sync' : 'async'].shift();
  }

  /** Returns false where it was not waiting. */
  remove(item: Item): boolean {
    const line = this.#waiting[item.priority];
    const index = line.indexOf(item);
    if (index === -1) return false;
    line.splice(index, 1);
    return true;
  }

  /** Empties the queue. */
  drain(): Item[] {
    return [...this.#waiting.sync.splice(0), ...this.#waiting.async.splice(0)];
  }
}
