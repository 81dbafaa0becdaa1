/**
 * How many images are received at once: each holds a file, a slot and a few hundred KiB of buffers.
 * Who finds no slot waits for one, its body unread, so that a burst is spread out and not refused.
 * No account holds more than its share, so that one whose callers send slowly cannot keep all the
 * others out.
 *
 * | state   | entered by                                | left by                                  |
 * |---------|-------------------------------------------|------------------------------------------|
 * | waiting | take, no slot or no share free            | a release (to held), waitMs (refused)    |
 * | held    | take, a release of another                | its release                              |
 * | refused | take, waitingMax already wait; a time-out | -                                        |
 */
import { ContractError } from '#contract/errors.ts';

/** All of them stay below 200 MB of memory and 13 GB of disk. */
export const UPLOADS_MAX = 256;
/** Each holds one chunk of its body, 64 KiB at most. */
export const UPLOADS_WAITING_MAX = 1024;
/** Far above what a burst of photos takes, far below what callers and proxies wait. */
const WAIT_MS = 10_000;
/** Of the slots, for one account. */
const ACCOUNT_SHARE = 0.5;
const BUSY_RETRY_AFTER_S = 5;

export interface UploadSlotsOptions {
  readonly slotsMax?: number;
  readonly waitingMax?: number;
  readonly waitMs?: number;
}

interface Waiter {
  readonly accountId: string;
  grant(): void;
}

export class UploadSlots {
  readonly #slotsMax: number;
  readonly #shareMax: number;
  readonly #waitingMax: number;
  readonly #waitMs: number;
  readonly #heldBy = new Map<string, number>();
  /** In the order they came. */
  readonly #waiting = new Set<Waiter>();
  #held = 0;

  constructor(options: UploadSlotsOptions = {}) {
    this.#slotsMax = options.slotsMax ?? UPLOADS_MAX;
    this.#shareMax = Math.ceil(this.#slotsMax * ACCOUNT_SHARE);
    this.#waitingMax = options.waitingMax ?? UPLOADS_WAITING_MAX;
    this.#waitMs = options.waitMs ?? WAIT_MS;
  }

  get held(): number {
    return this.#held;
  }

  get waiting(): number {
    return this.#waiting.size;
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
    if (this.#waiting.size >= this.#waitingMax) throw busy();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = { accountId, grant: resolve };
    this.#waiting.add(waiter);
    const timer = setTimeout(() => {
      this.#waiting.delete(waiter);
      reject(busy());
    }, this.#waitMs);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
    }
  }

  release(accountId: string): void {
    const left = (this.#heldBy.get(accountId) ?? 0) - 1;
    if (left < 0) throw new Error('an upload slot was released that was not held');
    if (left === 0) this.#heldBy.delete(accountId);
    else this.#heldBy.set(accountId, left);
    this.#held -= 1;
    for (const waiter of this.#waiting) {
      if (!this.#hasRoom(waiter.accountId)) continue;
      this.#waiting.delete(waiter);
      // Before the waiter runs again, or a newcomer could take its slot.
      this.#hold(waiter.accountId);
      waiter.grant();
      return;
    }
  }

  #hasRoom(accountId: string): boolean {
    return this.#held < this.#slotsMax && (this.#heldBy.get(accountId) ?? 0) < this.#shareMax;
  }

  #hold(accountId: string): void {
    this.#heldBy.set(accountId, (this.#heldBy.get(accountId) ?? 0) + 1);
    this.#held += 1;
  }
}

function busy(): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', 'too many uploads at once', {
    retryAfterS: BUSY_RETRY_AFTER_S,
  });
}
