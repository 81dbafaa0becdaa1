/** Runs claimed jobs, each under a lease that is kept alive while it runs. */
import type { Logger } from 'pino';
import type { JobNeeds } from '../../domain/dispatch/dispatch-policy.ts';
import type { JobMemory } from '../../domain/dispatch/job-memories.ts';
import type { Job, JobFailure } from '../../domain/job.ts';
import type { LeaseTiming } from '../../domain/lease.ts';
import type { Offer } from '../../nodes/node-link.ts';
import type { BlobStore } from '../../storage/blob-store.ts';
import type { Claim, JobStore } from '../../store/jobs/job-store.ts';
import type { JobEvents } from '../job-events.ts';
import { ClaimedJob } from './claimed-job.ts';
import { HeldLease } from './held-lease.ts';
import type { JobObserver } from './job-observer.ts';
import type { SourceFetcher } from './source-fetch.ts';

export interface JobRunnerDependencies {
  readonly jobs: Pick<
    JobStore,
    'renew' | 'release' | 'inputStored' | 'admitted' | 'attemptLost' | 'succeed' | 'fail'
  >;
  readonly blobs: Pick<BlobStore, 'createWriter' | 'openRead' | 'remove'>;
  readonly fetcher: SourceFetcher;
  readonly events: JobEvents;
  readonly observer: JobObserver;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly attemptTimeoutMs: number;
  readonly resultTtlMs: number;
  /** LEASE_TIMING where absent. */
  readonly leaseTiming?: LeaseTiming;
}

export interface JobWork {
  readonly claim: Claim;
  /** As the claim read it. */
  readonly job: Job;
  readonly memory: JobMemory;
  /** It is to be ended with this, whatever the row says. */
  readonly failure: JobFailure | undefined;
  /** Room on a node, taken before the claim; undefined where the job needs none yet. */
  readonly offer: Offer | undefined;
  /** Takes room on a node for the job, undefined where there is none now. */
  readonly takeOffer: (needs: JobNeeds) => Offer | undefined;
  /** Aborts: give the job back. */
  readonly stop: AbortSignal;
}

/** final: ended here. open: given back, or another holder's now. */
export type WorkEnd = 'final' | 'open';

export class JobRunner {
  readonly #dependencies: JobRunnerDependencies;

  constructor(dependencies: JobRunnerDependencies) {
    this.#dependencies = dependencies;
  }

  /** Rejects only where the database stays away; the lease then runs out by itself. */
  async run(work: JobWork): Promise<WorkEnd> {
    const { jobs, log } = this.#dependencies;
    const lease = new HeldLease({
      jobs,
      claim: work.claim,
      timing: this.#dependencies.leaseTiming,
      stop: work.stop,
      onRenewFailure: err => log.warn({ err, jobId: work.job.id }, 'lease not renewed'),
    });
    try {
      return await new ClaimedJob(this.#dependencies, work, lease).run();
    } finally {
      lease.stopRenewing();
      if (lease.end === 'lost') {
        this.#dependencies.observer.leaseLost();
        log.warn({ jobId: work.job.id, fence: work.claim.fence }, 'lease lost');
      }
    }
  }
}
