/**
 * Engine-bound lanes: each listed job that waits needs particular engines. Such jobs may wait while
 * nodes have room for others, which the listing does not reach. So the round after one that leaves
 * such jobs may skip them.
 */
import { type LanedJob, type LaneIdentity, type LaneRead, laneKey, laneOf } from './lanes.ts';

export class EngineBoundLanes<J extends LanedJob> {
  readonly #isEngineBound: (job: J) => boolean;
  /** all: the listing had every job of the lane. some: the lane may have more. */
  readonly #lanes = new Map<string, 'all' | 'some'>();
  #skip: 'none' | 'due' | 'now' = 'none';

  constructor(isEngineBound: (job: J) => boolean) {
    this.#isEngineBound = isEngineBound;
  }

  add(job: J): void {
    if (!this.#isEngineBound(job)) this.#lanes.delete(laneKey(laneOf(job)));
  }

  beginRound(): boolean {
    this.#skip = this.#skip === 'due' ? 'now' : 'none';
    return this.#skip === 'now';
  }

  skips(lane: LaneIdentity): boolean {
    return this.#skippedPart(lane) === 'all';
  }

  readOf(lane: LaneIdentity): LaneRead {
    return this.#skippedPart(lane) === undefined ? lane : { ...lane, unboundOnly: true };
  }

  #skippedPart(lane: LaneIdentity): 'all' | 'some' | undefined {
    return this.#skip === 'now' ? this.#lanes.get(laneKey(lane)) : undefined;
  }

  /**
   * Two rounds in a row never skip.
   * @param eachMax a lane with this many listed jobs may have more
   * @param lanesLeft engine-bound jobs wait, and the round left out lanes
   * @returns whether the next round skips
   */
  listed(
    lanes: readonly LaneRead[],
    jobs: readonly J[],
    { begun, eachMax, lanesLeft }: { begun: ReadonlySet<J>; eachMax: number; lanesLeft: boolean },
  ): boolean {
    const byLane = Map.groupBy(jobs, job => laneKey(laneOf(job)));
    let hidesMore = false;
    for (const { unboundOnly, ...lane } of lanes) {
      if (unboundOnly) continue;
      const key = laneKey(lane);
      const listed = byLane.get(key) ?? [];
      const waiting = listed.filter(job => !begun.has(job));
      if (waiting.length === 0 || !waiting.every(this.#isEngineBound)) {
        this.#lanes.delete(key);
        continue;
      }
      const hasAll = listed.length < eachMax;
      this.#lanes.set(key, hasAll ? 'all' : 'some');
      hidesMore ||= !hasAll;
    }
    this.#skip = this.#skip === 'none' && (hidesMore || lanesLeft) ? 'due' : 'none';
    return this.#skip === 'due';
  }
}
