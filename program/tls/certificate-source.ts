/** The latest good content of one or two files, and listeners for its changes. */
import { isDeepStrictEqual } from 'node:util';
import type { Identity } from './tls-content.ts';

export class CertificateSource<T extends Buffer | Identity> {
  #current: T | undefined;
  /** Listeners by the function by which grpc-js knows them. */
  readonly #listeners = new Map<unknown, (value: T) => void>();

  constructor(current: T | undefined) {
    this.#current = current;
  }

  get current(): T | undefined {
    return this.#current;
  }

  update(next: T | undefined): void {
    if (next === undefined || this.#current === undefined) return;
    if (isDeepStrictEqual(next, this.#current)) return;
    this.#current = next;
    for (const listener of this.#listeners.values()) listener(next);
  }

  follow(key: unknown, listener: (value: T) => void): void {
    this.#listeners.set(key, listener);
    // Later, as grpc-js wants it: told at once, it would not have asked for it completely yet.
    process.nextTick(() => {
      if (this.#current !== undefined) this.#listeners.get(key)?.(this.#current);
    });
  }

  leave(key: unknown): void {
    this.#listeners.delete(key);
  }
}
