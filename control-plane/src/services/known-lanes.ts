/**
 * The lanes of the queue as this replica knows them between its looks: which to look into, and when
 * the table must be asked again for what other replicas submitted. Nothing is lost with it:
 * whatever it forgets is found again with the next poll.
 */
import type { Job } from '../domain/job.ts';
import { chooseLanes, type JobLane, laneKey, type Shares } from '../domain/job-turns.ts';
import { queuePositionMs } from '../domain/lease.ts';

/** What tells a job's lane. */
export type LaneJob = Pick<Job, 'mode' | 'accountId' | 'apiKeyId' | 'createdAtMs' | 'readAtMs'>;

export class KnownLanes {
  readonly #lanes = new Map<string, JobLane>();
  #stuck = new Set<string>();
  /** Added while a look is under way, which may have read the table before. */
  readonly #addedSince = new Set<string>();
  #stale = true;

  /** The table must be asked which lanes there are. */
  get stale(): boolean {
    return this.#stale;
  }

  outdate(): void {
    this.#stale = true;
  }

  /** What the table says; a lane that is no more is forgotten by the next look into it. */
  found(lanes: readonly JobLane[]): void {
    this.#stale = false;
    for (const lane of lanes) this.#lanes.set(laneKey(lane), lane);
  }

  /** A job of this lane waits. */
  add(job: LaneJob): void {
    const key = laneKey(job);
    this.#addedSince.add(key);
    if (this.#lanes.has(key)) return;
    const { mode, accountId, apiKeyId, createdAtMs, readAtMs } = job;
    const firstQueueAtMs = queuePositionMs(mode, createdAtMs);
    this.#lanes.set(key, { mode, accountId, apiKeyId, firstQueueAtMs, readAtMs });
  }

  /** For one look, whose finds go to `looked`. `all`: no lane was left out. */
  choose(shares: Shares): { readonly lanes: readonly JobLane[]; readonly all: boolean } {
    this.#addedSince.clear();
    const lanes = chooseLanes([...this.#lanes.values()], shares, this.#stuck);
    return { lanes, all: lanes.length === this.#lanes.size };
  }

  /**
   * What a look found: a lane without a job that waits is forgotten, one whose jobs all found no
   * room goes behind the others where there are too many.
   */
  looked(lanes: readonly JobLane[], waiting: readonly LaneJob[], placed: readonly LaneJob[]): void {
    const withJobs = new Set(waiting.map(laneKey));
    const moved = new Set(placed.map(laneKey));
    const stuck = new Set<string>();
    for (const key of lanes.map(laneKey)) {
      if (withJobs.has(key)) {
        if (!moved.has(key)) stuck.add(key);
      } else if (!this.#addedSince.has(key)) this.#lanes.delete(key);
    }
    this.#stuck = stuck;
  }
}
