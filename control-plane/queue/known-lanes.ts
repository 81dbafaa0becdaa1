/** The lanes that a replica knows, and which of them a round reads. */

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
 * The lanes to read now, LANES_MAX at most: of synchronous and aged jobs first; of them the first
 * of each account before the second of any, an account with running jobs as many turns later.
 * Within an account lanes whose jobs found no room come last, then its key with the fewest running
 * jobs is first, then the lane that has waited longest.
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
    const group = isUrgent ? 0 : 1;
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
      return { lane, rank: [group, turn, stuckLast, firstQueueAtMs] as const };
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

/** A replica knows these lanes of the queue; the next poll finds any lane that it forgets. */
export class KnownLanes {
  readonly #lanes = new Map<string, JobLane>();
  #stuck = new Set<string>();
  /** Added during a round, which may have read the table before. */
  readonly #addedSince = new Set<string>();
  #outdated = true;

  get outdated(): boolean {
    return this.#outdated;
  }

  outdate(): void {
    this.#outdated = true;
  }

  /** Takes the lanes of the table; a lane that is gone is forgotten when it is read next. */
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

  /** The lanes of one round, which then calls `listed`. `all`: none that is open was left out. */
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
   * Notes what was listed of the lanes. A lane without a waiting job is forgotten, unless some were
   * passed over; if there are too many lanes, those in which no job found room go behind the
   * others.
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
    for (const { exceptHosts = [], namesNone = false, ...lane } of lanes) {
      const key = laneKey(lane);
      if (withJobs.has(key) || exceptHosts.length > 0 || namesNone) {
        if (!moved.has(key)) stuck.add(key);
      } else if (!this.#addedSince.has(key)) this.#lanes.delete(key);
    }
    this.#stuck = stuck;
    return this.#lanes.size < before;
  }
}
