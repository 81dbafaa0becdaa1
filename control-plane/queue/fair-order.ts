/** Orders waiting jobs fairly among accounts and among the keys of each. */
import type { JobStatus, QueueJob } from './job.ts';
import { ASYNC_HEAD_START_MS, queuePositionMs } from './lanes.ts';

export interface WaitingJob
  extends Pick<JobStatus, 'class' | 'accountId' | 'apiKeyId' | 'createdAtMs' | 'readAtMs'> {
  readonly group?: QueueJob['group'];
}

/** A package's rule for jobs of its groups. */
export interface GroupPlacement {
  /** While synchronous requests arrive, group jobs leave them this share of the slots. */
  readonly syncSlotsShare: number;
  /** A job that waited this long leaves no slots and is as urgent as synchronous jobs. */
  readonly headStartMs: number;
}

export const AS_OTHERS: GroupPlacement = { syncSlotsShare: 0, headStartMs: ASYNC_HEAD_START_MS };

/** Running jobs of this replica by account and key. Absent: 0. */
export interface Shares {
  readonly accounts: ReadonlyMap<string, number>;
  readonly apiKeys: ReadonlyMap<string, number>;
}

interface KeyQueue<T> {
  readonly jobs: T[];
  running: number;
}

interface AccountQueue<T> {
  readonly keys: Map<string, KeyQueue<T>>;
  running: number;
}

/**
 * Puts synchronous and aged jobs before the others. Within each part, the account with the fewest
 * running jobs comes first, then its key with the fewest, then the oldest position. An ordered job
 * counts as running for the next choice.
 */
export function orderJobs<T extends WaitingJob>(
  jobs: readonly T[],
  shares: Shares,
  groups: GroupPlacement = AS_OTHERS,
): T[] {
  const urgent: T[] = [];
  const patient: T[] = [];
  for (const job of jobs) {
    (job.class === 'sync' || isAged(job, groups) ? urgent : patient).push(job);
  }
  const accounts = new Map(shares.accounts);
  const apiKeys = new Map(shares.apiKeys);
  return [urgent, patient].flatMap(group => inFairOrder(group, accounts, apiKeys));
}

function inFairOrder<T extends WaitingJob>(
  jobs: readonly T[],
  accounts: Map<string, number>,
  apiKeys: Map<string, number>,
): T[] {
  const queues = new Map<string, AccountQueue<T>>();
  for (const job of jobs.toSorted((a, b) => positionOf(a) - positionOf(b))) {
    let account = queues.get(job.accountId);
    if (account === undefined) {
      account = { keys: new Map(), running: accounts.get(job.accountId) ?? 0 };
      queues.set(job.accountId, account);
    }
    let key = account.keys.get(job.apiKeyId);
    if (key === undefined) {
      key = { jobs: [], running: apiKeys.get(job.apiKeyId) ?? 0 };
      account.keys.set(job.apiKeyId, key);
    }
    key.jobs.push(job);
  }
  for (const { keys } of queues.values()) for (const key of keys.values()) key.jobs.reverse();
  const ordered: T[] = [];
  for (;;) {
    const [accountId, account] = least(queues, firstOfAccount) ?? [];
    if (accountId === undefined || account === undefined) return ordered;
    const [apiKeyId, key] = least(account.keys, firstOfKey) ?? [];
    const job = key?.jobs.pop();
    if (apiKeyId === undefined || key === undefined || job === undefined) {
      throw new Error('a queue of an account without a job');
    }
    ordered.push(job);
    key.running += 1;
    account.running += 1;
    accounts.set(accountId, account.running);
    apiKeys.set(apiKeyId, key.running);
    if (key.jobs.length === 0) account.keys.delete(apiKeyId);
    if (account.keys.size === 0) queues.delete(accountId);
  }
}

function least<Q extends { readonly running: number }>(
  queues: ReadonlyMap<string, Q>,
  first: (queue: Q) => number,
): readonly [string, Q] | undefined {
  let best: readonly [string, Q] | undefined;
  for (const entry of queues) {
    best ??= entry;
    if ((entry[1].running - best[1].running || first(entry[1]) - first(best[1])) < 0) best = entry;
  }
  return best;
}

function firstOfKey<T extends WaitingJob>(key: KeyQueue<T>): number {
  const next = key.jobs.at(-1);
  return next === undefined ? Number.POSITIVE_INFINITY : positionOf(next);
}

function firstOfAccount<T extends WaitingJob>(account: AccountQueue<T>): number {
  let first = Number.POSITIVE_INFINITY;
  for (const key of account.keys.values()) first = Math.min(first, firstOfKey(key));
  return first;
}

function positionOf(job: WaitingJob): number {
  return queuePositionMs(job.class, job.createdAtMs);
}

export function isAged(
  { group, createdAtMs, readAtMs }: Omit<WaitingJob, 'class'>,
  { headStartMs }: GroupPlacement,
): boolean {
  return readAtMs - createdAtMs >= (group ? headStartMs : ASYNC_HEAD_START_MS);
}
