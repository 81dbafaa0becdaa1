/** How often the operator key may be guessed on the sign-in page, by address and in all. */

const WINDOW_MS = 60_000;
export const FAILURES_PER_ADDRESS_MAX = 10;
export const FAILURES_MAX = 100;
/** Addresses that are counted apart; past them, they share one count. */
const ADDRESSES_MAX = 1000;
const OTHERS = 'others';

/** Counts of this process: the key has 32 characters and more, so replicas need not share them. */
export class FailedAttempts {
  readonly #now: () => number;
  #startedAtMs = 0;
  #total = 0;
  readonly #byAddress = new Map<string, number>();

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#startedAtMs = now();
  }

  /** Seconds until this address may try again; 0: now. */
  waitS(address: string): number {
    this.#turn();
    const own = this.#byAddress.get(this.#placeOf(address)) ?? 0;
    if (own < FAILURES_PER_ADDRESS_MAX && this.#total < FAILURES_MAX) return 0;
    return Math.max(1, Math.ceil((this.#startedAtMs + WINDOW_MS - this.#now()) / 1000));
  }

  note(address: string): void {
    this.#turn();
    const place = this.#placeOf(address);
    this.#total += 1;
    this.#byAddress.set(place, (this.#byAddress.get(place) ?? 0) + 1);
  }

  #placeOf(address: string): string {
    if (this.#byAddress.has(address) || this.#byAddress.size < ADDRESSES_MAX) return address;
    return OTHERS;
  }

  #turn(): void {
    const nowMs = this.#now();
    if (nowMs - this.#startedAtMs < WINDOW_MS) return;
    this.#startedAtMs = nowMs;
    this.#total = 0;
    this.#byAddress.clear();
  }
}
