/** Renews a claim. A renewal without an answer from the database does not end the lease. */

import { type Claim, LEASE_TIMING, type LeaseTiming } from './lease-rules.ts';

type LeaseEnd = 'lost' | 'stopping';

interface HeldLeaseOptions {
  readonly queue: { renew(claim: Claim, leaseMs: number): Promise<boolean> };
  readonly claim: Claim;
  readonly timing?: LeaseTiming | undefined;
  /** Aborts when the replica must give the job back. */
  readonly stop: AbortSignal;
  readonly onRenewFailure: (error: unknown) => void;
}

export class HeldLease {
  readonly claim: Claim;
  readonly #options: HeldLeaseOptions;
  readonly #ended = new AbortController();
  readonly #onStop = () => this.#end('stopping');
  readonly #timing: LeaseTiming;
  readonly #timer: NodeJS.Timeout;
  #ending: LeaseEnd | undefined;
  #renewing = false;

  constructor(options: HeldLeaseOptions) {
    this.#options = options;
    this.claim = options.claim;
    this.#timing = options.timing ?? LEASE_TIMING;
    this.#timer = setInterval(() => void this.#renew(), this.#timing.renewMs);
    if (options.stop.aborted) this.#onStop();
    else options.stop.addEventListener('abort', this.#onStop, { once: true });
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  get end(): LeaseEnd | undefined {
    return this.#ending;
  }

  lose(): void {
    this.#end('lost');
  }

  stopRenewing(): void {
    clearInterval(this.#timer);
    this.#options.stop.removeEventListener('abort', this.#onStop);
  }

  #end(end: LeaseEnd): void {
    // `lost` replaces `stopping`: the replica must not give back a lost lease.
    if (this.#ending === undefined || end === 'lost') this.#ending = end;
    this.#ended.abort();
  }

  async #renew(): Promise<void> {
    if (this.#renewing) return;
    this.#renewing = true;
    try {
      if (!(await this.#options.queue.renew(this.claim, this.#timing.leaseMs))) this.lose();
    } catch (error) {
      this.#options.onRenewFailure(error);
    } finally {
      this.#renewing = false;
    }
  }
}
