/** Bounds the bytes that all callers hold together. Accounts share them as in semaphore.ts. */
import { type Release, Semaphore } from './semaphore.ts';

interface HeldBytesOptions {
  readonly bytesMax: number;
  readonly refusal: () => Error;
}

/** A reader reserves room before it keeps more. */
export interface HeldRoom {
  /** @throws the refusal: the account has its share, or no byte is free */
  grow(bytes: number): void;
}

/** The bytes of one request. */
export interface Holding extends HeldRoom {
  end(): void;
}

/** Readers with a bound of their own use it. */
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
