/** What waits for a node, and whose it is, for the operator. */
import type { StoresWithoutEnds } from '../stores.ts';

/** Accounts that are shown: those that have most megapixels queued. */
export const QUEUED_ACCOUNTS_MAX = 50;

export type QueueView = Awaited<ReturnType<ReadQueue['read']>>;

export class ReadQueue {
  readonly #stores: Pick<StoresWithoutEnds, 'jobs' | 'accounts'>;
  readonly #megapixelsMax: number;

  /** @param megapixelsMax the queue's bound, MATTING_QUEUE_MEGAPIXELS_MAX */
  constructor(stores: Pick<StoresWithoutEnds, 'jobs' | 'accounts'>, megapixelsMax: number) {
    this.#stores = stores;
    this.#megapixelsMax = megapixelsMax;
  }

  /** `oldestAgeMs` is 0 where nothing waits; `accountCount` counts those not shown, too. */
  async read() {
    const { jobs, megapixels, oldestAgeMs, byAccount } = await this.#stores.jobs.queued();
    const largest = [...byAccount]
      .sort(([, a], [, b]) => b.megapixels - a.megapixels)
      .slice(0, QUEUED_ACCOUNTS_MAX);
    const names = await this.#stores.accounts.namesOf(largest.map(([id]) => id));
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
