/** `credits repay-lost`: what the command does with results whose files are gone. */

import { randomUUID } from 'node:crypto';
import { publicState } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { FIRST_RESULT, type LostResultStore } from './lost-result-store.ts';

const PAGE = 200;
const HANDS = 4;

interface RepayDependencies {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly lostResults: LostResultStore;
  readonly hasFile: (blob: string) => Promise<boolean>;
}

interface RepayOptions {
  readonly dryRun: boolean;
  /** Looks at every live result first, and takes what is gone for lost. */
  readonly all: boolean;
  /** The repayment continues even if the newest result is missing. */
  readonly evenMost: boolean;
}

/** The newest live result is not in the storage that was looked at: nothing was put on record. */
export class NewestMissingError extends Error {}

/**
 * Gives the credit of each lost result back, once, unless its file is there again. `repaid`: jobs whose credit was granted again; with a dry run those whose would be.
 * `unpaid`: nothing was charged for them, or a correction made them again. `correcting`: a correction
 * is open; a later call settles them. Both are 0 with a dry run. `looked` and `found`: 0 without `all`.
 * @throws ContractError SERVICE_UNAVAILABLE: what was done until then stays; say it again.
 *   NewestMissingError, before anything is done
 */
export async function repayLost(dependencies: RepayDependencies, options: RepayOptions) {
  if (options.all && !options.evenMost) await requireNewest(dependencies);
  const look = options.all
    ? await lookAtAll(dependencies, options)
    : { looked: 0, found: 0, due: 0 };
  const settled = { repaid: look.due, returned: 0, unpaid: 0, correcting: 0 };
  const { lostResults } = dependencies;
  let after = FIRST_RESULT;
  for (;;) {
    const page = await lostResults.open(after, PAGE);
    for (const { jobId } of page) {
      const outcome = await settleLoss(dependencies, jobId, options);
      if (outcome !== 'settled') settled[outcome] += 1;
    }
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) break;
    after = { atMs: last.foundAtMs, id: last.jobId };
  }
  return { ...settled, looked: look.looked, found: look.found };
}

async function settleLoss(
  dependencies: RepayDependencies,
  jobId: string,
  { dryRun }: RepayOptions,
): Promise<'repaid' | 'returned' | 'unpaid' | 'correcting' | 'settled'> {
  const { lostResults } = dependencies;
  if (await isThere(dependencies, jobId)) {
    if (!dryRun && !(await lostResults.returned(jobId))) return 'settled';
    return 'returned';
  }
  if (dryRun) return 'repaid';
  const repayment = await lostResults.repay(jobId, randomUUID());
  return repayment === 'paid' ? 'repaid' : repayment;
}

async function isThere({ jobs, hasFile }: RepayDependencies, jobId: string): Promise<boolean> {
  const job = await jobs.find(jobId);
  if (job === undefined || job.result === null || publicState(job) !== 'succeeded') return false;
  return await hasFile(job.result.blob);
}

/** Another storage than the service's does not have the newest result. */
async function requireNewest({ lostResults, hasFile }: RepayDependencies): Promise<void> {
  const newest = await lostResults.newest();
  if (newest !== undefined && !(await hasFile(newest))) throw new NewestMissingError();
}

/** `due`: would be on record but for the dry run. */
async function lookAtAll(
  { lostResults, hasFile }: RepayDependencies,
  { dryRun }: Pick<RepayOptions, 'dryRun'>,
) {
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
