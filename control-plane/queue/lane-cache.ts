import type { Shares } from './fair-order.ts';
import { type JobStatus, needsDownload } from './job.ts';
import {
  type JobLane,
  type LanedJob,
  type LaneRead,
  laneKey,
  laneOf,
  queuePositionMs,
} from './lanes.ts';

const LANES_MAX = 32;

/**
 * Chooses at most LANES_MAX lanes to read now. Lanes of synchronous and aged jobs come first. Among
 * equals the first lane of each account precedes the second of any; an account's running jobs count
 * like chosen lanes. Within an account, stuck lanes come last, then the key with the fewest running
 * jobs is first, then the oldest lane.
 * @param stuck keys of lanes with jobs that found no room in the last round
 */
export function chooseLanes<L extends JobLane>(
  lanes: readonly L[],
  shares: Shares,
  stuck: ReadonlySet<string>,
): L[] {
  if (lanes.length <= LANES_MAX) return [...lanes];
  const ranked = lanes.map(lane => {
    const isUrgent = lane.class === 'sync' || lane.readAtMs >= lane.firstQueueAtMs;
    const group = isUrgent ? 0 : 1;
    const stuckLast = stuck.has(laneKey(lane)) ? 1 : 0;
    const ofKey = shares.apiKeys.get(lane.apiKeyId) ?? 0;
    const rank: Rank = [group, stuckLast, ofKey, lane.firstQueueAtMs];
    return { lane, rank };
  });
  ranked.sort((a, b) => compareRanks(a.rank, b.rank));
  const laneCounts = new Map(shares.accounts);
  return ranked
    .map(({ lane, rank: [group, stuckLast, , firstQueueAtMs] }) => {
      const before = laneCounts.get(lane.accountId) ?? 0;
      laneCounts.set(lane.accountId, before + 1);
      return { lane, rank: [group, before, stuckLast, firstQueueAtMs] as const };
    })
    .sort((a, b) => compareRanks(a.rank, b.rank))
    .slice(0, LANES_MAX)
    .map(({ lane }) => lane);
}

type Rank = readonly [number, number, number, number];

function compareRanks(a: Rank, b: Rank): number {
  return a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || a[3] - b[3];
}

type LaneJob = LanedJob & Pick<JobStatus, 'createdAtMs' | 'readAtMs'>;
const laneKeyOf = (job: LaneJob) => laneKey(laneOf(job));

/**
 * A replica's cache of the queue's lanes. If it evicts a lane too early, the next poll finds it.
 */
export class LaneCache {
  readonly #lanes = new Map<string, JobLane>();
  #stuck = new Set<string>();
  /** Lanes added since `choose`. `listed` keeps them, as the listing may be older. */
  readonly #addedSince = new Set<string>();
  #outdated = true;

  get outdated(): boolean {
    return this.#outdated;
  }

  outdate(): void {
    this.#outdated = true;
  }

  /** Keeps lanes that the table no longer has; `listed` evicts them. */
  update(lanes: readonly JobLane[]): void {
    this.#outdated = false;
    for (const lane of lanes) this.#lanes.set(laneKey(lane), lane);
  }

  /** @param toDownload adds the lane of jobs that need a download; false: the other lane */
  add(job: LaneJob, toDownload = needsDownload(job)): void {
    const { createdAtMs, readAtMs } = job;
    const firstQueueAtMs = queuePositionMs(job.class, createdAtMs);
    const lane = { ...laneOf(job), needsDownload: toDownload, firstQueueAtMs, readAtMs };
    const key = laneKey(lane);
    this.#addedSince.add(key);
    if (!this.#lanes.has(key)) this.#lanes.set(key, lane);
  }

  /** Call `listed` after it. `all`: the choice left out no open lane. */
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
   * Evicts a lane without a waiting job, unless the read skipped jobs. Lanes with jobs that found
   * no room come last in the next choice.
   * @returns whether it evicted a lane
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
    for (const { exceptHosts = [], unboundOnly = false, ...lane } of lanes) {
      const key = laneKey(lane);
      if (withJobs.has(key) || exceptHosts.length > 0 || unboundOnly) {
        if (!moved.has(key)) stuck.add(key);
      } else if (!this.#addedSince.has(key)) this.#lanes.delete(key);
    }
    this.#stuck = stuck;
    return this.#lanes.size < before;
  }
}
