/**
 * Bytes of one kind that are held for callers, all of them together, with shares by account: a
 * bound of one caller's bytes and a bound of how many callers there are say nothing about both.
 * The shares are those of semaphore.ts.
 */
import { type Release, Semaphore } from './semaphore.ts';

interface HeldBytesOptions {
  /** Sum over all callers. */
  readonly bytesMax: number;
  readonly refusal: () => Error;
}

/** A reader asks it for room before it keeps more. */
export interface HeldRoom {
  /** @throws the refusal, where the account holds its share or nothing is left */
  grow(bytes: number): void;
}

/** The room for readers that have a bound of their own. */
export const UNCOUNTED: HeldRoom = { grow: () => undefined };

export class HeldBytes {
  readonly #semaphore: Semaphore;

  constructor({ bytesMax, refusal }: HeldBytesOptions) {
    this.#semaphore = new Semaphore({ max: bytesMax, waitingMax: 0, refusal });
  }

  get held(): number {
    return this.#semaphore.held;
  }

  /** Counts what one request holds. @param account that made the request */
  begin(account: string): Holding {
    return new Holding(this.#semaphore, account);
  }
}

class Holding implements HeldRoom {
  readonly #semaphore: Semaphore;
  readonly #account: string;
  #releases: Release[] = [];

  constructor(semaphore: Semaphore, account: string) {
    this.#semaphore = semaphore;
    this.#account = account;
  }

  grow(bytes: number): void {
    if (bytes <= 0) return;
    this.#releases.push(this.#semaphore.takeNow({ key: this.#account, weight: bytes }));
  }

  /** Gives all of it back. */
  end(): void {
    for (const release of this.#releases) release();
    this.#releases = [];
  }
}

export type { Holding };
