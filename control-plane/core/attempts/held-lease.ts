/**
 * A claim kept alive while work goes on under it. Its signal aborts at once when the lease is lost
 * (another replica claimed the job) or the work is to stop; everything done under the claim takes
 * that signal.
 *
 * A renewal that fails because the database does not answer loses nothing by itself: holder and
 * fence decide, and a holder that was not replaced may renew and finish when the database is back.
 */

import type { JobStore } from '../jobs/job-store.ts';
import type { Claim } from './job-lease.ts';
import { LEASE_TIMING, type LeaseTiming } from './lease.ts';

export type LeaseEnd = 'lost' | 'stopping';

export interface HeldLeaseOptions {
  readonly jobs: Pick<JobStore, 'renew'>;
  readonly claim: Claim;
  /** LEASE_TIMING where absent. */
  readonly timing?: LeaseTiming | undefined;
  /** Aborts: the work is to stop and the job to be given back. */
  readonly stop: AbortSignal;
  /** A renewal the database did not answer. */
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

  /** Aborts when the work must end. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Why the signal aborted; undefined while it has not. */
  get end(): LeaseEnd | undefined {
    return this.#ending;
  }

  /** A write under the claim was refused: another replica has the job. */
  lose(): void {
    this.#end('lost');
  }

  /** The work is over. The lease itself is the store's to end. */
  stopRenewing(): void {
    clearInterval(this.#timer);
    this.#options.stop.removeEventListener('abort', this.#onStop);
  }

  #end(end: LeaseEnd): void {
    // A loss replaces stopping: a lost lease must not be given back.
    if (this.#ending === undefined || end === 'lost') this.#ending = end;
    this.#ended.abort();
  }

  async #renew(): Promise<void> {
    if (this.#renewing) return;
    this.#renewing = true;
    try {
      if (!(await this.#options.jobs.renew(this.claim, this.#timing.leaseMs))) this.lose();
    } catch (error) {
      this.#options.onRenewFailure(error);
    } finally {
      this.#renewing = false;
    }
  }
}
