import type { EnginePriority } from './engine-pool.ts';

/**
 * A sync run overtakes async ones that came up to 5 s before it, so no run waits forever. 5 s are a
 * few runs on a CPU, and far less than an asynchronous caller's polling interval.
 */
const ASYNC_HANDICAP_MS = 5_000;

interface Queued {
  readonly priority: EnginePriority;
  readonly queuedAtMs: number;
}

/** Each priority keeps its order. Of the first runs of both, the one due earlier is next. */
export class RunQueue<Item extends Queued> {
  readonly #waiting: Record<EnginePriority, Item[]> = { sync: [], async: [] };

  get length(): number {
    return this.#waiting.sync.length + this.#waiting.async.length;
  }

  push(item: Item): void {
    this.#waiting[item.priority].push(item);
  }

  putBack(item: Item): void {
    this.#waiting[item.priority].unshift(item);
  }

  shift(): Item | undefined {
    return this.#nextLine().shift();
  }

  #nextLine(): Item[] {
    const [sync] = this.#waiting.sync;
    const [async] = this.#waiting.async;
    if (sync === undefined) return this.#waiting.async;
    if (async === undefined) return this.#waiting.sync;
    const syncFirst = sync.queuedAtMs <= async.queuedAtMs + ASYNC_HANDICAP_MS;
    return this.#waiting[syncFirst ? 'sync' : 'async'];
  }

  remove(item: Item): boolean {
    const line = this.#waiting[item.priority];
    const index = line.indexOf(item);
    if (index === -1) return false;
    line.splice(index, 1);
    return true;
  }

  removeWhere(leaves: (item: Item) => boolean): Item[] {
    const leaving = [...this.#waiting.sync, ...this.#waiting.async].filter(leaves);
    for (const item of leaving) this.remove(item);
    return leaving;
  }

  drain(): Item[] {
    return [...this.#waiting.sync.splice(0), ...this.#waiting.async.splice(0)];
  }
}
