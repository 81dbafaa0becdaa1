/** Bounds the bytes held for all callers together. Accounts share them as in semaphore.ts. */
import { type Release, Semaphore } from './semaphore.ts';

interface HeldBytesOptions {
  readonly bytesMax: number;
  readonly refusal: () => Error;
}

/** A reader reserves room before it keeps more. */
export interface HeldRoom {
  /** @throws the refusal: the account has its share, or nothing is left */
  grow(bytes: number): void;
}

export interface Holding extends HeldRoom {
  end(): void;
}

/** For readers with a bound of their own. */
export const UNCOUNTED: HeldRoom = { grow: () => undefined };

export class HeldBytes {
  readonly #semaphore: Semaphore;

  constructor({ bytesMax, refusal }: HeldBytesOptions) {
    this.#semaphore = new Semaphore({ max: bytesMax, waitingMax: 0, refusal });
  }

  get held(): number {
    return this.#semaphore.held;
  }

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
