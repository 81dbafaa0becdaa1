/** What waits for a node, and whose it is, for the operator. */
import type { AccountStore } from '../../store/accounts/account-store.ts';
import type { JobStore } from '../../store/jobs/job-store.ts';

/** Accounts that are shown: those that have most megapixels queued. */
export const QUEUED_ACCOUNTS_MAX = 50;

export interface QueueView {
  readonly jobs: number;
  readonly megapixels: number;
  /** Of the bound MATTING_QUEUE_MEGAPIXELS_MAX. */
  readonly megapixelsMax: number;
  /** 0 where nothing waits. */
  readonly oldestAgeMs: number;
  /** All that have something queued. */
  readonly accountCount: number;
  readonly accounts: readonly QueuedAccount[];
}

export interface QueuedAccount {
  readonly accountId: string;
  readonly name: string;
  readonly jobs: number;
  readonly megapixels: number;
}

export interface ReadQueueDependencies {
  readonly jobs: Pick<JobStore, 'queued'>;
  readonly accounts: Pick<AccountStore, 'namesOf'>;
}

export class ReadQueue {
  readonly #jobs: ReadQueueDependencies['jobs'];
  readonly #accounts: ReadQueueDependencies['accounts'];
  readonly #megapixelsMax: number;

  /** @param megapixelsMax the queue's bound */
  constructor({ jobs, accounts }: ReadQueueDependencies, megapixelsMax: number) {
    this.#jobs = jobs;
    this.#accounts = accounts;
    this.#megapixelsMax = megapixelsMax;
  }

  async read(): Promise<QueueView> {
    const { jobs, megapixels, oldestAgeMs, byAccount } = await this.#jobs.queued();
    const largest = [...byAccount]
      .sort(([, a], [, b]) => b.megapixels - a.megapixels)
      .slice(0, QUEUED_ACCOUNTS_MAX);
    const names = await this.#accounts.namesOf(largest.map(([id]) => id));
    return {
      jobs,
      megapixels,
      megapixelsMax: this.#megapixelsMax,
      oldestAgeMs,
      accountCount: byAccount.size,
      accounts: largest.map(([accountId, queue]) => ({
        accountId,
        name: names.get(accountId) ?? accountId,
        jobs: queue.jobs,
        megapixels: queue.megapixels,
      })),
    };
  }
}
