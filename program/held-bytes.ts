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

/** Bytes of one request. */
export interface Holding extends HeldRoom {
  /** Gives all of it back. */
  end(): void;
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
    let releases: Release[] = [];
    return {
      grow: bytes => {
        if (bytes > 0) releases.push(this.#semaphore.takeNow({ key: account, weight: bytes }));
      },
      end: () => {
        for (const release of releases) release();
        releases = [];
      },
    };
  }
}
