/**
 * A semaphore of counts or weights (bytes) with a bounded queue, which spreads a burst instead of
 * refusing it.
 *
 * Callers without a key queue in order. Callers with a key share fairly: a key may take more while
 * it holds fewer than are free (Choudhury and Hahne, "Dynamic Queue Length Thresholds in a
 * Shared-Memory Packet Switch", 1998, with a factor of one). A single key gets half, and n busy
 * keys get one part of n + 1 each, so a new key always finds room. The queue is shared by the same
 * rule. Of the waiting keys the one that holds least goes first; equals alternate.
 *
 * | state   | entered by                                    | left by                               |
 * |---------|-----------------------------------------------|---------------------------------------|
 * | waiting | take, nothing free for the key                | a release (to held); waitMs, a signal |
 * | held    | take, a release of another                    | its release                           |
 * | refused | take, the queue is full; a time-out           | -                                     |
 */

import { addAbortListener } from 'node:events';

export interface SemaphoreOptions {
  /** Bounds the sum of the held weights. Each use reads it again. */
  readonly max: number;
  readonly waitingMax: number;
  /** Longest wait. Absent: only the signal ends it. */
  readonly waitMs?: number;
  readonly refusal: () => Error;
}

interface Use {
  /** Callers share by this key. Absent: the caller queues in order. */
  readonly key?: string | undefined;
  /** Default: 1. Larger weights than `max` count as `max`. */
  readonly weight?: number;
  readonly signal?: AbortSignal | undefined;
}

/** A second call does nothing. */
export type Release = () => void;

interface Waiter {
  readonly use: Use;
  grant(release: Release): void;
}

export class Semaphore {
  readonly #options: SemaphoreOptions;
  readonly #heldBy = new Map<string, number>();
  /** The waiters of each key, in order. The key served last is last. */
  readonly #waitingBy = new Map<string | undefined, Set<Waiter>>();
  #held = 0;
  #waiting = 0;

  constructor(options: SemaphoreOptions) {
    this.#options = options;
  }

  get held(): number {
    return this.#held;
  }

  get waiting(): number {
    return this.#waiting;
  }

  heldBy(key: string | undefined): number {
    return (key !== undefined && this.#heldBy.get(key)) || 0;
  }

  /** @throws the refusal, instead of waiting */
  takeNow(use: Use = {}): Release {
    if (!this.mayEnter(use)) throw this.#options.refusal();
    return this.#hold(use);
  }

  /** @throws the refusal; the signal's reason */
  async take(use: Use = {}): Promise<Release> {
    use.signal?.throwIfAborted();
    if (this.mayEnter(use)) return this.#hold(use);
    const { waitingMax, refusal } = this.#options;
    const own = use.key === undefined ? 0 : (this.#waitingBy.get(use.key)?.size ?? 0);
    if (own >= waitingMax - this.#waiting) throw refusal();
    return await this.#wait(use);
  }

  async run<T>(use: Use, work: () => Promise<T>): Promise<T> {
    using held = new DisposableStack();
    held.defer(await this.take(use));
    return await work();
  }

  async #wait(use: Use): Promise<Release> {
    const { signal } = use;
    const { waitMs, refusal } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<Release>();
    const waiter: Waiter = { use, grant: resolve };
    const giveUp = (reason: unknown) => {
      this.#leave(waiter);
      reject(reason);
      this.#grant();
    };
    const waiting = this.#waitingBy.get(use.key) ?? new Set();
    this.#waitingBy.set(use.key, waiting.add(waiter));
    this.#waiting += 1;
    using _timer = waitMs === undefined ? undefined : setTimeout(() => giveUp(refusal()), waitMs);
    using _leaving = signal && addAbortListener(signal, () => giveUp(signal.reason));
    return await promise;
  }

  /** @returns true: `take` would not wait. Requests of one key keep their order */
  mayEnter(use: Use): boolean {
    if (!this.#fits(use) || !this.#hasShare(use.key) || this.#waitingBy.has(use.key)) return false;
    const first = this.#first();
    return first === undefined || this.heldBy(first.use.key) > this.heldBy(use.key);
  }

  get #free(): number {
    return this.#options.max - this.#held;
  }

  #fits(use: Use): boolean {
    return this.#weightOf(use) <= this.#free;
  }

  #hasShare(key: string | undefined): boolean {
    return key === undefined || this.heldBy(key) < this.#free;
  }

  #weightOf({ weight = 1 }: Use): number {
    return Math.min(weight, this.#options.max);
  }

  #hold(use: Use): Release {
    const weight = this.#weightOf(use);
    this.#count(use.key, weight);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#count(use.key, -weight);
      this.#grant();
    };
  }

  #count(key: string | undefined, weight: number): void {
    this.#held += weight;
    if (key === undefined) return;
    const held = this.heldBy(key) + weight;
    if (held === 0) this.#heldBy.delete(key);
    else this.#heldBy.set(key, held);
  }

  #grant(): void {
    for (;;) {
      const next = this.#first();
      // Serves nobody until the first fits, or lighter waiters would overtake a heavy one forever.
      if (next === undefined || !this.#fits(next.use)) return;
      this.#leave(next);
      this.#putLast(next.use.key);
      // The slot is held before the waiter resumes, or a newcomer could take it.
      next.grant(this.#hold(next.use));
    }
  }

  /** Skips few keys: only a key that holds something can lack a share. */
  #first(): Waiter | undefined {
    if (this.#held >= this.#options.max) return undefined;
    let best: Waiter | undefined;
    for (const [key, [first]] of this.#waitingBy) {
      if (first === undefined || !this.#hasShare(key)) continue;
      const held = this.heldBy(key);
      if (held === 0) return first;
      if (best === undefined || held < this.heldBy(best.use.key)) best = first;
    }
    return best;
  }

  #leave(waiter: Waiter): void {
    const waiting = this.#waitingBy.get(waiter.use.key);
    if (!waiting?.delete(waiter)) return;
    this.#waiting -= 1;
    if (waiting.size === 0) this.#waitingBy.delete(waiter.use.key);
  }

  #putLast(key: string | undefined): void {
    const waiting = this.#waitingBy.get(key);
    if (waiting === undefined) return;
    this.#waitingBy.delete(key);
    this.#waitingBy.set(key, waiting);
  }
}
