/**
 * How many images are received at once: each holds a file, a slot and a few hundred KiB of buffers.
 * Who finds no slot waits for one, its body unread, so that a burst is spread out and not refused.
 * Both the slots and the places to wait are shared by domain/shared-places.ts, so that an account
 * whose callers send slowly, or all at once, cannot keep the others out.
 *
 * | state   | entered by                                | left by                                  |
 * |---------|-------------------------------------------|------------------------------------------|
 * | waiting | take, no slot free for the account        | a release (to held), waitMs (refused)    |
 * | held    | take, a release of another                | its release                              |
 * | refused | take, no place to wait; a time-out        | -                                        |
 */
import { ContractError } from '#contract/errors.ts';
import { mayTakePlace } from '../domain/shared-places.ts';

/** All of them stay below 200 MB of memory and 13 GB of disk. */
export const UPLOADS_MAX = 256;
/** Each holds one chunk of its body, 64 KiB at most. */
export const UPLOADS_WAITING_MAX = 2048;
/** Far above what a burst of photos takes, far below what callers and proxies wait. */
const WAIT_MS = 10_000;
const BUSY_RETRY_AFTER_S = 5;

export interface UploadSlotsOptions {
  readonly slotsMax?: number;
  readonly waitingMax?: number;
  readonly waitMs?: number;
}

interface Waiter {
  readonly accountId: string;
  /** Smaller: came earlier. */
  readonly ticket: number;
  grant(): void;
}

export class UploadSlots {
  readonly #slotsMax: number;
  readonly #waitingMax: number;
  readonly #waitMs: number;
  readonly #heldBy = new Map<string, number>();
  /** By account, in the order they came. */
  readonly #waitingBy = new Map<string, Set<Waiter>>();
  #held = 0;
  #waiting = 0;
  #tickets = 0;

  constructor(options: UploadSlotsOptions = {}) {
    this.#slotsMax = options.slotsMax ?? UPLOADS_MAX;
    this.#waitingMax = options.waitingMax ?? UPLOADS_WAITING_MAX;
    this.#waitMs = options.waitMs ?? WAIT_MS;
  }

  get held(): number {
    return this.#held;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /**
   * Resolves with a slot held; each is to be released once.
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  async take(accountId: string): Promise<void> {
    if (this.#hasRoom(accountId)) {
      this.#hold(accountId);
      return;
    }
    const ownWaiting = this.#waitingBy.get(accountId)?.size ?? 0;
    if (!mayTakePlace(ownWaiting, this.#waitingMax - this.#waiting)) throw busy();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { accountId, ticket: this.#tickets++, grant: resolve };
    this.#await(waiter);
    const timer = setTimeout(() => {
      this.#leave(waiter);
      reject(busy());
    }, this.#waitMs);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
    }
  }

  release(accountId: string): void {
    const left = this.#heldOf(accountId) - 1;
    if (left < 0) throw new Error('an upload slot was released that was not held');
    if (left === 0) this.#heldBy.delete(accountId);
    else this.#heldBy.set(accountId, left);
    this.#held -= 1;
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      this.#leave(next);
      // Before the waiter runs again, or a newcomer could take its slot.
      this.#hold(next.accountId);
      next.grant();
    }
  }

  /** Of the account that holds the fewest slots; among equals who came first. */
  #next(): Waiter | undefined {
    let best: Waiter | undefined;
    for (const [accountId, [first]] of this.#waitingBy) {
      if (!this.#hasRoom(accountId)) continue;
      const fewer =
        best === undefined ? -1 : this.#heldOf(accountId) - this.#heldOf(best.accountId);
      if (fewer < 0 || (fewer === 0 && first.ticket < best!.ticket)) best = first;
    }
    return best;
  }

  #hasRoom(accountId: string): boolean {
    return mayTakePlace(this.#heldOf(accountId), this.#slotsMax - this.#held);
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
}

function busy(): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', 'too many uploads at once', {
    retryAfterS: BUSY_RETRY_AFTER_S,
  });
}
