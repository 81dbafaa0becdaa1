/** How often the operator key may be guessed on the sign-in page from one network. */
import { networkOf } from '#program/network-of.ts';

const WINDOW_MS = 60_000;
export const FAILURES_MAX = 10;
/** Networks that are counted; past them, the one counted first is forgotten. */
export const NETWORKS_MAX = 1000;

/**
 * Counts of this process: the key has 32 characters and more, so replicas need not share them, and
 * there is no count of all networks together, which those of others could use up for the operator.
 */
export class FailedAttempts {
  readonly #now: () => number;
  #startedAtMs = 0;
  readonly #byNetwork = new Map<string, number>();

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#startedAtMs = now();
  }

  /** Seconds until this address may try again; 0: now. */
  waitS(address: string): number {
    this.#turn();
    if ((this.#byNetwork.get(networkOf(address)) ?? 0) < FAILURES_MAX) return 0;
    return Math.max(1, Math.ceil((this.#startedAtMs + WINDOW_MS - this.#now()) / 1000));
  }

  note(address: string): void {
    this.#turn();
    const network = networkOf(address);
    this.#byNetwork.set(network, (this.#byNetwork.get(network) ?? 0) + 1);
    if (this.#byNetwork.size <= NETWORKS_MAX) return;
    for (const first of this.#byNetwork.keys()) {
      this.#byNetwork.delete(first);
      return;
    }
  }

  #turn(): void {
    const nowMs = this.#now();
    if (nowMs - this.#startedAtMs < WINDOW_MS) return;
    this.#startedAtMs = nowMs;
    this.#byNetwork.clear();
  }
}
