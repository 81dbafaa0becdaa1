import { randomUUID } from 'node:crypto';
import { publicState } from '@matting/queue/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { FIRST_RESULT, type Loss, type LostResultStore } from './lost-result-store.ts';

const PAGE = 200;
const HANDS = 4;

interface RepayDependencies {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly lostResults: LostResultStore;
  readonly hasFile: (blob: string) => Promise<boolean>;
}

interface RepayOptions {
  /** Undefined: all live results. */
  readonly jobId: string | undefined;
  readonly dryRun: boolean;
  readonly evenMost: boolean;
}

type Result = Loss & { readonly blob: string };

/** The storage may be the wrong one: nothing was paid. */
export class NewestMissingError extends Error {}
export class NoLiveResultError extends Error {}

/**
 * `found`: results without a file. `unpaid`: nothing was charged, or a correction has the result.
 * `correcting`: a correction is open.
 * @throws ContractError SERVICE_UNAVAILABLE: earlier repayments stay, so run it again.
 *   NewestMissingError, NoLiveResultError: nothing was done
 */
export async function repayLost(dependencies: RepayDependencies, options: RepayOptions) {
  const { lostResults, hasFile } = dependencies;
  const newest = options.evenMost ? undefined : await lostResults.newest(options.jobId);
  if (newest !== undefined && !(await hasFile(newest.blob))) throw new NewestMissingError();
  const counts = { looked: 0, found: 0, repaid: 0, unpaid: 0, correcting: 0 };
  for await (const page of pagesOf(dependencies, options.jobId)) {
    const left = page.values();
    const checkSome = async () => {
      for (const result of left) {
        counts.looked += 1;
        if (await hasFile(result.blob)) continue;
        counts.found += 1;
        const outcome = await repay(dependencies, result, options.dryRun);
        if (outcome !== 'settled') counts[outcome === 'paid' ? 'repaid' : outcome] += 1;
      }
    };
    await Promise.all(Array.from({ length: HANDS }, checkSome));
  }
  return counts;
}

async function* pagesOf(
  { jobs, lostResults }: RepayDependencies,
  jobId: string | undefined,
): AsyncGenerator<readonly Result[]> {
  if (jobId !== undefined) {
    const job = await jobs.find(jobId);
    const blob = job?.result?.blob;
    if (job === undefined || blob === undefined || publicState(job) !== 'succeeded') {
      throw new NoLiveResultError();
    }
    yield [{ jobId, accountId: job.accountId, blob }];
    return;
  }
  for (let after = FIRST_RESULT; ; ) {
    const page = await lostResults.live(after, PAGE);
    yield page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    after = { atMs: last.expiresAtMs, id: last.jobId };
  }
}

async function repay({ lostResults, hasFile }: RepayDependencies, loss: Loss, dryRun: boolean) {
  const missing = new Set<string>();
  for (const { jobId, blob } of await lostResults.corrections(loss.jobId)) {
    if (!(await hasFile(blob))) missing.add(jobId);
  }
  return await lostResults.repay(loss, { missing, auditId: dryRun ? undefined : randomUUID() });
}
