/** A claimed job and its lease. A refused write under the claim means that the lease is lost. */
import type { RunEnd } from './dispatch-core.ts';
import { HeldLease } from './held-lease.ts';
import type { QueueJob } from './job.ts';
import { type Claim, failureDue, type LeaseTiming } from './lease-rules.ts';
import type { JobLeases } from './queue.ts';

export type HeldQueue<J> = Pick<JobLeases<J>, 'renew' | 'release' | 'attemptLost' | 'admitted'>;

type HoldableJob = Pick<QueueJob, 'createdAtMs' | 'readAtMs'> & Parameters<typeof failureDue>[0];

interface HeldJobOptions<J> {
  readonly queue: HeldQueue<J>;
  readonly leaseTiming: LeaseTiming | undefined;
  /** Aborts when the replica must give the job back. */
  readonly stop: AbortSignal;
  readonly onRenewFailure: (error: unknown) => void;
}

export class HeldJob<J extends HoldableJob> {
  readonly job: J;
  readonly claim: Claim;
  readonly #queue: HeldQueue<J>;
  readonly #lease: HeldLease;
  readonly #claimedAtMs = performance.now();

  constructor(
    { job, claim }: { readonly job: J; readonly claim: Claim },
    { queue, leaseTiming, ...lease }: HeldJobOptions<J>,
  ) {
    this.job = job;
    this.claim = claim;
    this.#queue = queue;
    this.#lease = new HeldLease({ queue, claim, timing: leaseTiming, ...lease });
  }

  /** Aborts when the lease is lost or the replica must give the job back. */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  get leaseLost(): boolean {
    return this.#lease.end === 'lost';
  }

  get ageMs(): number {
    const { createdAtMs, readAtMs } = this.job;
    return readAtMs - createdAtMs + (performance.now() - this.#claimedAtMs);
  }

  stopRenewing(): void {
    this.#lease.stopRenewing();
  }

  async wrote<T>(write: Promise<T>): Promise<T> {
    const answer = await write;
    if (answer === false || answer === undefined) this.#lease.lose();
    return answer;
  }

  async admitted(): Promise<void> {
    await this.wrote(this.#queue.admitted(this.claim, this.signal));
  }

  async attemptLost(withProcess: boolean): Promise<RunEnd> {
    const job = await this.wrote(this.#queue.attemptLost(this.claim, withProcess, this.signal));
    return { kind: 'open', failure: job && failureDue(job) };
  }

  async giveBack(storageFull = false): Promise<RunEnd> {
    if (!this.leaseLost) await this.wrote(this.#queue.release(this.claim, this.signal));
    return { kind: 'open', storageFull };
  }
}
