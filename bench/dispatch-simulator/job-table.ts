/**
 * The jobs table of a simulation: what is open, lane by lane in the queue's order, and who may
 * claim it.
 */
import type { QueuedJob } from '../../control-plane/core/dispatch/dispatch-core.ts';
import {
  type JobLane,
  type LaneRead,
  laneKey,
  laneOf,
  queuePositionMs,
} from '../../control-plane/core/jobs/lanes.ts';
import type { SimulatedJob } from './workload.ts';

/** A job as the table lists it. */
export interface ListedJob extends QueuedJob {
  readonly simulated: SimulatedJob;
}

/** Both in the order the jobs came in, which within a lane is the queue's. */
interface Lane {
  readonly open: SimulatedJob[];
  /** Jobs without a lease. */
  readonly free: SimulatedJob[];
}

export class JobTable {
  readonly #lanes = new Map<string, Lane>();

  /** Takes in a submitted job. */
  insert(job: SimulatedJob): void {
    const lane = this.#laneOf(job);
    insertInOrder(lane.open, job);
    insertInOrder(lane.free, job);
  }

  /** Compare-and-set: false where another replica was faster. */
  claim(job: SimulatedJob): boolean {
    return remove(this.#laneOf(job).free, job);
  }

  /** Gives the job back. */
  release(job: SimulatedJob): void {
    insertInOrder(this.#laneOf(job).free, job);
  }

  /** Takes out a job that is done. */
  finish(job: SimulatedJob): void {
    remove(this.#laneOf(job).open, job);
  }

  listLanes(nowMs: number): JobLane[] {
    return [...this.#lanes.values()].flatMap(({ open: [first] }) => {
      if (first === undefined) return [];
      const firstQueueAtMs = queuePositionMs(first.class, first.arrivesMs);
      return [{ ...laneOf({ ...first, state: 'ready' }), firstQueueAtMs, readAtMs: nowMs }];
    });
  }

  /** The first ones of each lane, `limit` at most together. */
  listClaimable(limit: number, lanes: readonly LaneRead[], nowMs: number): ListedJob[] {
    const eachMax = Math.max(1, Math.floor(limit / lanes.length));
    return lanes
      .flatMap(lane => {
        const { free = [] } = this.#lanes.get(laneKey(lane)) ?? {};
        const some = lane.namesNone ? free.filter(({ model }) => model === undefined) : free;
        return some.slice(0, eachMax);
      })
      .slice(0, limit)
      .map(job => listed(job, nowMs));
  }

  #laneOf(job: SimulatedJob): Lane {
    const key = laneKey(laneOf({ ...job, state: 'ready' }));
    const known = this.#lanes.get(key);
    if (known !== undefined) return known;
    const lane: Lane = { open: [], free: [] };
    this.#lanes.set(key, lane);
    return lane;
  }
}

export function listed(simulated: SimulatedJob, nowMs: number): ListedJob {
  const { index, accountId, apiKeyId, arrivesMs } = simulated;
  const { pixels, inputFormat, outputFormat, model } = simulated;
  return {
    simulated,
    id: String(index),
    state: 'ready',
    class: simulated.class,
    accountId,
    apiKeyId,
    createdAtMs: arrivesMs,
    readAtMs: nowMs,
    startedAtMs: null,
    takeovers: 0,
    input: { format: inputFormat, width: pixels, height: 1 },
    sourceHost: null,
    outputFormat,
    model,
  };
}

function insertInOrder(jobs: SimulatedJob[], job: SimulatedJob): void {
  jobs.splice(placeOf(jobs, job), 0, job);
}

/** False: it was not there. */
function remove(jobs: SimulatedJob[], job: SimulatedJob): boolean {
  const place = placeOf(jobs, job);
  if (jobs[place] !== job) return false;
  jobs.splice(place, 1);
  return true;
}

function placeOf(jobs: readonly SimulatedJob[], { index }: SimulatedJob): number {
  let low = 0;
  let high = jobs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    // The loop's bounds keep it within the list.
    if (jobs[middle]!.index < index) low = middle + 1;
    else high = middle;
  }
  return low;
}
