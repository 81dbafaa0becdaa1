/**
 * Slots that accounts share and wait for: to receive an image, to ask the database, to look a name
 * up. A caller without a slot waits for one, so that a burst is spread out and not refused. Both
 * the slots and the places to wait are shared by domain/shared-places.ts, so that an account that
 * is slow, or comes all at once, cannot keep the others out. Of the accounts that wait, the one
 * that holds the fewest slots goes first; equals take turns.
 *
 * | state   | entered by                                | left by                                  |
 * |---------|-------------------------------------------|------------------------------------------|
 * | waiting | take, no slot free for the account        | a release (to held); waitMs, the signal  |
 * | held    | take, a release of another                | its release                              |
 * | refused | take, no place to wait; a time-out        | -                                        |
 */
import { mayTakePlace } from './shared-places.ts';

export interface SharedSlotsOptions {
  readonly slotsMax: number;
  readonly waitingMax: number;
  /** No limit but the signal's where absent. */
  readonly waitMs?: number;
  /** What a caller is refused with that finds no place to wait, or waits too long. */
  readonly refusal: () => Error;
}

interface Waiter {
  readonly accountId: string;
  grant(): void;
}

export class SharedSlots {
  readonly #options: SharedSlotsOptions;
  readonly #heldBy = new Map<string, number>();
  /** By account, in the order they came; the account that was served last stands last. */
  readonly #waitingBy = new Map<string, Set<Waiter>>();
  #held = 0;
  #waiting = 0;

  constructor(options: SharedSlotsOptions) {
    this.#options = options;
  }

  get held(): number {
    return this.#held;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /**
   * Resolves with a slot held; each is to be released once.
   * @throws the refusal; the signal's reason
   */
  async take(accountId: string, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.#hasRoom(accountId)) {
      this.#hold(accountId);
      return;
    }
    const { waitingMax, refusal } = this.#options;
    const ownWaiting = this.#waitingBy.get(accountId)?.size ?? 0;
    if (!mayTakePlace(ownWaiting, waitingMax - this.#waiting)) throw refusal();
    await this.#wait(accountId, signal);
  }

  release(accountId: string): void {
    const left = this.#heldOf(accountId) - 1;
    if (left < 0) throw new Error('a slot was released that was not held');
    if (left === 0) this.#heldBy.delete(accountId);
    else this.#heldBy.set(accountId, left);
    this.#held -= 1;
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      this.#leave(next);
      this.#putLast(next.accountId);
      // Before the waiter runs again, or a newcomer could take its slot.
      this.#hold(next.accountId);
      next.grant();
    }
  }

  /** The work, in a slot. @throws as `take` does, before the work has begun; what the work throws */
  async run<T>(accountId: string, work: () => Promise<T>): Promise<T> {
    await this.take(accountId);
    try {
      return await work();
    } finally {
      this.release(accountId);
    }
  }

  async #wait(accountId: string, signal: AbortSignal | undefined): Promise<void> {
    const { waitMs, refusal } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { accountId, grant: resolve };
    const giveUp = (reason: unknown) => {
      this.#leave(waiter);
      reject(reason);
    };
    const onAbort = () => giveUp(signal?.reason);
    this.#await(waiter);
    const timer = waitMs === undefined ? undefined : setTimeout(() => giveUp(refusal()), waitMs);
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /** Passes over no more accounts than there are slots: one that holds none has room. */
  #next(): Waiter | undefined {
    if (this.#held >= this.#options.slotsMax) return undefined;
    let best: Waiter | undefined;
    for (const [accountId, [first]] of this.#waitingBy) {
      const held = this.#heldOf(accountId);
      if (held === 0) return first;
      const isFewer = best === undefined || held < this.#heldOf(best.accountId);
      if (isFewer && this.#hasRoom(accountId)) best = first;
    }
    return best;
  }

  #hasRoom(accountId: string): boolean {
    return mayTakePlace(this.#heldOf(accountId), this.#options.slotsMax - this.#held);
  }

  #heldOf(accountId: string): number {
    return this.#heldBy.get(accountId) ?? 0;
  }

  #hold(accountId: string): void {
    this.#heldBy.set(accountId, this.#heldOf(accountId) + 1);
    this.#held += 1;
  }

  #await(waiter: Waiter): void {
    const waiting = this.#waitingBy.get(waiter.accountId) ?? new Set();
    this.#waitingBy.set(waiter.accountId, waiting.add(waiter));
    this.#waiting += 1;
  }

  #leave(waiter: Waiter): void {
    const waiting = this.#waitingBy.get(waiter.accountId);
    if (!waiting?.delete(waiter)) return;
    this.#waiting -= 1;
    if (waiting.size === 0) this.#waitingBy.delete(waiter.accountId);
  }

  #putLast(accountId: string): void {
    const waiting = this.#waitingBy.get(accountId);
    if (waiting === undefined) return;
    this.#waitingBy.delete(accountId);
    this.#waitingBy.set(accountId, waiting);
  }
}
