/** What an account's first page shows: its credits, a month of usage, what runs, what failed. */

import { DAY_MS } from '../../domain/account/usage.ts';
import { type JobState, publicState } from '../../domain/job.ts';
import type { JobStore, OpenJob } from '../../store/jobs/job-store.ts';
import type { LedgerStore } from '../../store/ledger/ledger-store.ts';
import type { ReadUsage, UsageView } from './read-usage.ts';

/** Jobs of each list. */
const LISTED_MAX = 5;
/** Failures that are older are on the page of jobs. */
const FAILED_WITHIN_MS = 7 * DAY_MS;

export interface RunningJob {
  readonly id: string;
  readonly state: 'queued' | 'processing';
  readonly createdAtMs: number;
}

export interface LastFailure {
  readonly id: string;
  readonly code: string;
  readonly endedAtMs: number;
}

export interface OverviewView {
  readonly available: number;
  readonly reserved: number;
  readonly chargedThisMonth: number;
  /** The last thirty days. */
  readonly usage: UsageView;
  /** The oldest first. */
  readonly running: readonly RunningJob[];
  /** The latest first. */
  readonly failures: readonly LastFailure[];
}

export interface OverviewDependencies {
  readonly ledger: Pick<LedgerStore, 'balances'>;
  readonly readUsage: Pick<ReadUsage, 'view' | 'chargedThisMonth'>;
  readonly jobs: Pick<JobStore, 'list' | 'openOf'>;
}

export class Overview {
  readonly #dependencies: OverviewDependencies;

  constructor(dependencies: OverviewDependencies) {
    this.#dependencies = dependencies;
  }

  async read(accountId: string): Promise<OverviewView> {
    const { ledger, readUsage, jobs } = this.#dependencies;
    const chargedThisMonth = await readUsage.chargedThisMonth(accountId);
    const usage = await readUsage.view(accountId, {});
    const balances = await ledger.balances(accountId);
    const running = (await jobs.openOf(accountId, LISTED_MAX)).map(runningOf);
    const failures = await this.#failures(accountId);
    if (balances === undefined) throw new Error(`the page of an unknown account: ${accountId}`);
    const { available, reserved } = balances;
    return { available, reserved, chargedThisMonth, usage, running, failures };
  }

  async #failures(accountId: string): Promise<LastFailure[]> {
    const failed: readonly JobState[] = ['failed'];
    const filter = { states: failed, accountId, endedWithinMs: FAILED_WITHIN_MS };
    const jobs = await this.#dependencies.jobs.list({ ...filter, limit: LISTED_MAX });
    return jobs.map(({ id, failure, finishedAtMs, createdAtMs }) => ({
      id,
      code: failure?.code ?? '',
      endedAtMs: finishedAtMs ?? createdAtMs,
    }));
  }
}

function runningOf({ id, state, createdAtMs }: OpenJob): RunningJob {
  const seen = publicState({ state, expiresAtMs: null, readAtMs: 0 });
  return { id, state: seen === 'processing' ? 'processing' : 'queued', createdAtMs };
}
