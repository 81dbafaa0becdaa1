/**
 * Which job goes next. Pure: the waiting jobs in, their order out. Which node it goes to is
 * dispatch-policy.ts's.
 *
 * The queue is read by lanes, a lane being the open jobs of one API key and mode that have their
 * image, or those whose image is to be downloaded, those with finishing and those of the playground
 * apart: the first few of each, so that ten
 * thousand jobs of one key never hide another key's first, nor its own asynchronous jobs a
 * synchronous one, nor those that wait for a download one that waits for a node.
 */
import { type Job, needsDownload } from '../job.ts';

/** Lanes read in one round. */
export const LANES_MAX = 32;

/**
 * How much older an asynchronous job must be to go before a synchronous one: a caller waits 120 s
 * for the latter, and without a bound the former might never run.
 */
export const ASYNC_HEAD_START_MS = 60_000;

/** Where an open job stands in the queue: smaller first. */
export function queuePositionMs(mode: Job['mode'], createdAtMs: number): number {
  return mode === 'sync' ? createdAtMs : createdAtMs + ASYNC_HEAD_START_MS;
}

/** Open jobs of one API key and mode, with or without their image. */
export interface JobLane {
  /** Their images are to be downloaded. */
  readonly needsDownload: boolean;
  /** Only nodes that finish can do its jobs; absent: every node can. */
  readonly finishing?: true;
  /** Its jobs are of the playground, whether they ask for finishing or not. */
  readonly playground?: true;
  readonly mode: 'sync' | 'async';
  readonly accountId: string;
  readonly apiKeyId: string;
  /** Where the first of them stands in the queue, running ones included. */
  readonly firstQueueAtMs: number;
  /** The clock it was read by. */
  readonly readAtMs: number;
}

export type LaneIdentity = Pick<
  JobLane,
  'needsDownload' | 'finishing' | 'playground' | 'mode' | 'accountId' | 'apiKeyId'
>;

/** A lane whose jobs are to be listed, and which of them to pass over. */
export interface LaneRead extends LaneIdentity {
  /** In a lane of downloads: source hosts whose jobs are passed over. */
  readonly exceptHosts?: readonly string[];
}

/** Tells lanes apart. */
export function laneKey(lane: LaneIdentity): string {
  const { mode, accountId, apiKeyId } = lane;
  const apart = lane.playground ? ' playground' : lane.finishing ? ' finishing' : '';
  const step = lane.needsDownload ? 'download' : 'stored';
  return `${step}${apart} ${mode} ${accountId} ${apiKeyId}`;
}

/** What a job's lane follows from. */
export interface LanedJob extends Pick<Job, 'state' | 'mode' | 'accountId' | 'apiKeyId'> {
  /** Absent, as null: every node can do it. */
  readonly finishing?: object | null | undefined;
  /** Absent: it is paid for. */
  readonly playground?: boolean;
}

export function laneOf(job: LanedJob): LaneIdentity {
  const { mode, accountId, apiKeyId } = job;
  const lane = { needsDownload: needsDownload(job), mode, accountId, apiKeyId };
  if (job.playground) return { ...lane, playground: true };
  return job.finishing ? { ...lane, finishing: true } : lane;
}

/**
 * The lanes to read now, LANES_MAX at most: those of synchronous and of aged jobs first; of
 * them the first of each account before the second of any, an account with running jobs as many
 * turns later. Within an account lanes whose jobs found no room in the last round come last, then
 * its key with the fewest running jobs is first, then the lane that has waited longest. So an
 * account with a thousand keys leaves the others their place in every round. Lanes of the
 * playground come behind all others.
 *
 * @param stuck keys of lanes whose jobs found no room in the last round
 */
export function chooseLanes<L extends JobLane>(
  lanes: readonly L[],
  shares: Shares,
  stuck: ReadonlySet<string>,
): L[] {
  if (lanes.length <= LANES_MAX) return [...lanes];
  const ranked = lanes.map(lane => {
    const isUrgent = lane.mode === 'sync' || lane.readAtMs >= lane.firstQueueAtMs;
    const group = lane.playground ? 2 : isUrgent ? 0 : 1;
    const stuckLast = stuck.has(laneKey(lane)) ? 1 : 0;
    const ofKey = shares.apiKeys.get(lane.apiKeyId) ?? 0;
    const rank: Rank = [group, stuckLast, ofKey, lane.firstQueueAtMs];
    return { lane, rank };
  });
  ranked.sort((a, b) => compareRanks(a.rank, b.rank));
  const turns = new Map(shares.accounts);
  return ranked
    .map(({ lane, rank: [group, stuckLast, , firstQueueAtMs] }) => {
      const turn = turns.get(lane.accountId) ?? 0;
      turns.set(lane.accountId, turn + 1);
      const rankInTurn: Rank = [group, turn, stuckLast, firstQueueAtMs];
      return { lane, rank: rankInTurn };
    })
    .sort((a, b) => compareRanks(a.rank, b.rank))
    .slice(0, LANES_MAX)
    .map(({ lane }) => lane);
}

type Rank = readonly [number, number, number, number];

/** The first number that differs decides. */
function compareRanks(a: Rank, b: Rank): number {
  return a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || a[3] - b[3];
}

/** A job that waits, as far as its turn depends on it. */
export interface WaitingJob {
  readonly mode: 'sync' | 'async';
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  /** The clock createdAtMs was taken from. */
  readonly readAtMs: number;
  /** It is of the playground; absent: it is paid for. */
  readonly playground?: boolean;
}

/** How many jobs of each account and key this replica works on; unknown ones count 0. */
export interface Shares {
  readonly accounts: ReadonlyMap<string, number>;
  readonly apiKeys: ReadonlyMap<string, number>;
}

interface KeyQueue<T> {
  /** The next one last. */
  readonly jobs: T[];
  running: number;
}

interface AccountQueue<T> {
  readonly keys: Map<string, KeyQueue<T>>;
  running: number;
}

/**
 * The order in which jobs get their turn: synchronous ones before the others, and before them only
 * what has waited out its head start; behind both, however old, those of the playground; within
 * each of the three the account with the fewest running
 * jobs first, then its key with the fewest, then the job first in the queue. Every job placed
 * counts for its account and key from then on, so that two accounts alternate however many jobs
 * each has waiting.
 */
export function orderJobs<T extends WaitingJob>(jobs: readonly T[], shares: Shares): T[] {
  const urgent: T[] = [];
  const patient: T[] = [];
  const unpaid: T[] = [];
  for (const job of jobs) {
    const aged = job.readAtMs - job.createdAtMs >= ASYNC_HEAD_START_MS;
    const paid = job.mode === 'sync' || aged ? urgent : patient;
    (job.playground ? unpaid : paid).push(job);
  }
  const accounts = new Map(shares.accounts);
  const apiKeys = new Map(shares.apiKeys);
  return [urgent, patient, unpaid].flatMap(group => inFairTurns(group, accounts, apiKeys));
}

/** Counts what it places into the two maps. */
function inFairTurns<T extends WaitingJob>(
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
    const difference =
      best === undefined
        ? -1
        : entry[1].running - best[1].running || first(entry[1]) - first(best[1]);
    if (difference < 0) best = entry;
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
  return queuePositionMs(job.mode, job.createdAtMs);
}
