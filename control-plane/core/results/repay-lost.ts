/**
 * The operator's use case on results that are lost: gives the credit of each back, once. A row that
 * was found is asked about again first, while its link is good: a file that came back with a backup
 * is no loss any more. What was found stays due when its link has ended, until it is settled.
 */
import { randomUUID } from 'node:crypto';
import { publicState } from '../jobs/job.ts';
import type { StoresWithoutEnds } from '../stores.ts';
import { FIRST_RESULT, type FoundLoss } from './lost-result-store.ts';

/** Rows of a statement. */
const PAGE = 200;
/** Questions to the storage at once. */
const HANDS = 4;

interface Dependencies extends Pick<StoresWithoutEnds, 'jobs' | 'lostResults'> {
  /** Whether the storage has a file; rejects where it does not say. */
  readonly hasFile: (blob: string) => Promise<boolean>;
}

export interface RepayOptions {
  /** Says what would be done, and does nothing. */
  readonly dryRun: boolean;
  /**
   * Looks at every live result first, and takes what is gone for lost, however many that are: the
   * operator says that the storage is the right one and that nothing comes back.
   */
  readonly all: boolean;
}

export class RepayLost {
  readonly #dependencies: Dependencies;

  constructor(dependencies: Dependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * `repaid`: jobs whose credit was granted again; with a dry run those whose would be. `returned`:
   * their file is there again. `unpaid`: nothing was charged for them; 0 with a dry run. `looked`
   * and `found`: 0 unless all results were to be looked at.
   * @throws ContractError SERVICE_UNAVAILABLE: what was done until then stays; say it again
   */
  async run(options: RepayOptions) {
    const look = options.all ? await this.#lookAtAll(options) : { looked: 0, found: 0, due: 0 };
    const settled = { repaid: look.due, returned: 0, unpaid: 0 };
    const { lostResults } = this.#dependencies;
    let after = FIRST_RESULT;
    for (;;) {
      const page = await lostResults.open(after, PAGE);
      for (const loss of page) {
        const outcome = await this.#settle(loss, options);
        if (outcome !== 'settled') settled[outcome] += 1;
      }
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE) break;
      after = { atMs: last.foundAtMs, id: last.jobId };
    }
    return { ...settled, looked: look.looked, found: look.found };
  }

  async #settle(
    { jobId }: FoundLoss,
    { dryRun }: RepayOptions,
  ): Promise<'repaid' | 'returned' | 'unpaid' | 'settled'> {
    const { lostResults } = this.#dependencies;
    if (await this.#isThere(jobId)) {
      if (!dryRun && !(await lostResults.returned(jobId))) return 'settled';
      return 'returned';
    }
    if (dryRun) return 'repaid';
    const repayment = await lostResults.repay(jobId, randomUUID());
    return repayment === 'paid' ? 'repaid' : repayment;
  }

  async #isThere(jobId: string): Promise<boolean> {
    const { jobs, hasFile } = this.#dependencies;
    const job = await jobs.find(jobId);
    if (job === undefined || job.result === null || publicState(job) !== 'succeeded') return false;
    return await hasFile(job.result.blob);
  }

  /** `due`: would be on record but for the dry run. */
  async #lookAtAll({ dryRun }: RepayOptions) {
    const { lostResults, hasFile } = this.#dependencies;
    const counts = { looked: 0, found: 0, due: 0 };
    let after = FIRST_RESULT;
    for (;;) {
      const page = await lostResults.live(after, 0, PAGE);
      const known = await lostResults.known(page.map(({ jobId }) => jobId));
      const left = page.values();
      const lookAtSome = async () => {
        for (const { jobId, accountId, blob } of left) {
          counts.looked += 1;
          if (known.has(jobId) || (await hasFile(blob))) continue;
          counts.found += 1;
          if (dryRun) counts.due += 1;
          else await lostResults.record({ jobId, accountId }, 'operator', randomUUID());
        }
      };
      await Promise.all(Array.from({ length: HANDS }, lookAtSome));
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE) return counts;
      after = { atMs: last.expiresAtMs, id: last.jobId };
    }
  }
}
