/**
 * The lanes of the queue as this replica knows them between its rounds: which to read, and when the
 * table must be asked again for what other replicas submitted. Nothing is lost with it:
 * whatever it forgets is found again with the next poll.
 */
import { type Job, needsDownload } from '../job.ts';
import {
  chooseLanes,
  type JobLane,
  type LanedJob,
  type LaneRead,
  laneKey,
  laneOf,
  queuePositionMs,
  type Shares,
} from './job-turns.ts';

/** A job as far as its lane depends on it. */
export type LaneJob = LanedJob & Pick<Job, 'createdAtMs' | 'readAtMs'>;

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
