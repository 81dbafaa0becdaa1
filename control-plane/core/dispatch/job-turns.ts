/**
 * Which job goes next. Pure: the waiting jobs in, their order out. Which node it goes to is
 * dispatch-policy.ts's.
 *
 * The queue is read by lanes, a lane being the open jobs of one API key and class that have their
 * image, or those whose image is to be downloaded: the first few of each, so that ten thousand jobs
 * of one key never hide another key's first, nor its own asynchronous jobs a synchronous one, nor
 * those that wait for a download one that waits for a node.
 */
import { type Job, type JobClass, needsDownload } from '../jobs/job.ts';

/** Lanes read in one round. */
export const LANES_MAX = 32;

/**
 * How much older an asynchronous job must be to go before a synchronous one: a caller waits 120 s
 * for the latter, and without a bound the former might never run.
 */
export const ASYNC_HEAD_START_MS = 60_000;

/** Where an open job stands in the queue, behind which all of the playground stand: smaller first. */
export function queuePositionMs(jobClass: JobClass, createdAtMs: number): number {
  return jobClass === 'sync' ? createdAtMs : createdAtMs + ASYNC_HEAD_START_MS;
}

/** Open jobs of one API key and class, with or without their image. */
export interface JobLane {
  /** Their images are to be downloaded. */
  readonly needsDownload: boolean;
  readonly class: JobClass;
  readonly accountId: string;
  readonly apiKeyId: string;
  /** Where the first of them stands in the queue, running ones included. */
  readonly firstQueueAtMs: number;
  /** The clock it was read by. */
  readonly readAtMs: number;
}

type LaneIdentity = Pick<JobLane, 'needsDownload' | 'class' | 'accountId' | 'apiKeyId'>;

/** A lane whose jobs are to be listed, and which of them to pass over. */
export interface LaneRead extends LaneIdentity {
  /** In a lane of downloads: source hosts whose jobs are passed over. */
  readonly exceptHosts?: readonly string[];
}

/** Tells lanes apart. */
export function laneKey(lane: LaneIdentity): string {
  const step = lane.needsDownload ? 'download' : 'stored';
  return `${step} ${lane.class} ${lane.accountId} ${lane.apiKeyId}`;
}

/** What a job's lane follows from. */
type LanedJob = Pick<Job, 'state' | 'class' | 'accountId' | 'apiKeyId'>;

export function laneOf(job: LanedJob): LaneIdentity {
  const { accountId, apiKeyId } = job;
  return { needsDownload: needsDownload(job), class: job.class, accountId, apiKeyId };
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
    const isUrgent = lane.class === 'sync' || lane.readAtMs >= lane.firstQueueAtMs;
    const group = lane.class === 'playground' ? 2 : isUrgent ? 0 : 1;
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
export type WaitingJob = Pick<Job, 'class' | 'accountId' | 'apiKeyId' | 'createdAtMs' | 'readAtMs'>;

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
    const paid = job.class === 'sync' || aged ? urgent : patient;
    (job.class === 'playground' ? unpaid : paid).push(job);
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
  return queuePositionMs(job.class, job.createdAtMs);
}

/** A job as far as its lane depends on it. */
type LaneJob = LanedJob & Pick<Job, 'createdAtMs' | 'readAtMs'>;

/**
 * The lanes of the queue as this replica knows them between its rounds: which to read, and when the
 * table must be asked again for what other replicas submitted. Nothing is lost with it: whatever it
 * forgets is found again with the next poll.
 */
export class KnownLanes {
  readonly #lanes = new Map<string, JobLane>();
  #stuck = new Set<string>();
  /** Added during a round, which may have read the table before. */
  readonly #addedSince = new Set<string>();
  #outdated = true;

  /** The table must be asked which lanes there are. */
  get outdated(): boolean {
    return this.#outdated;
  }

  outdate(): void {
    this.#outdated = true;
  }

  /** The lanes of the table; one that is gone is forgotten when it is read next. */
  update(lanes: readonly JobLane[]): void {
    this.#outdated = false;
    for (const lane of lanes) this.#lanes.set(laneKey(lane), lane);
  }

  /** A job of this lane waits, or of the other one of its key and class. */
  add(job: LaneJob, toDownload = needsDownload(job)): void {
    const { createdAtMs, readAtMs } = job;
    const firstQueueAtMs = queuePositionMs(job.class, createdAtMs);
    const lane = { ...laneOf(job), needsDownload: toDownload, firstQueueAtMs, readAtMs };
    const key = laneKey(lane);
    this.#addedSince.add(key);
    if (!this.#lanes.has(key)) this.#lanes.set(key, lane);
  }

  /**
   * The lanes of one round, which then calls `listed`. `all`: no open lane was left out.
   * @param isOpen false for a lane of which no job could begin now
   */
  choose(
    shares: Shares,
    isOpen: (lane: JobLane) => boolean = () => true,
  ): { readonly lanes: readonly JobLane[]; readonly all: boolean } {
    this.#addedSince.clear();
    const open = [...this.#lanes.values()].filter(isOpen);
    const lanes = chooseLanes(open, shares, this.#stuck);
    return { lanes, all: lanes.length === open.length };
  }

  /**
   * What was listed of them: a lane without a waiting job is forgotten, unless some were passed
   * over; one whose jobs all found no room goes behind the others where there are too many.
   * @returns whether one was forgotten
   */
  listed(
    lanes: readonly LaneRead[],
    waiting: readonly LaneJob[],
    placed: readonly LaneJob[],
  ): boolean {
    const withJobs = new Set(waiting.map(laneKeyOf));
    const moved = new Set(placed.map(laneKeyOf));
    const stuck = new Set<string>();
    const before = this.#lanes.size;
    for (const { exceptHosts = [], ...lane } of lanes) {
      const key = laneKey(lane);
      if (withJobs.has(key) || exceptHosts.length > 0) {
        if (!moved.has(key)) stuck.add(key);
      } else if (!this.#addedSince.has(key)) this.#lanes.delete(key);
    }
    this.#stuck = stuck;
    return this.#lanes.size < before;
  }
}

function laneKeyOf(job: LaneJob): string {
  return laneKey(laneOf(job));
}
