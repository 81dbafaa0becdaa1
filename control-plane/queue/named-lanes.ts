/**
 * Lanes in which every waiting job asks for particular engines. Such jobs may wait while nodes have
 * room for others, and hide the jobs after them. If a round leaves such jobs, the next one may skip
 * all of them.
 */
import { type LanedJob, type LaneIdentity, type LaneRead, laneKey, laneOf } from './lanes.ts';

export class NamedLanes<J extends LanedJob> {
  readonly #isNamed: (job: J) => boolean;
  /** whole: the listing had all jobs of the lane. more: there may be others. */
  readonly #lanes = new Map<string, 'whole' | 'more'>();
  #pass: 'none' | 'due' | 'under way' = 'none';

  constructor(isNamed: (job: J) => boolean) {
    this.#isNamed = isNamed;
  }

  add(job: J): void {
    if (!this.#isNamed(job)) this.#lanes.delete(laneKey(laneOf(job)));
  }

  beginRound(): boolean {
    this.#pass = this.#pass === 'due' ? 'under way' : 'none';
    return this.#pass === 'under way';
  }

  passesOver(lane: LaneIdentity): boolean {
    return this.#underPass(lane) === 'whole';
  }

  readOf(lane: LaneIdentity): LaneRead {
    return this.#underPass(lane) === undefined ? lane : { ...lane, namesNone: true };
  }

  #underPass(lane: LaneIdentity): 'whole' | 'more' | undefined {
    return this.#pass === 'under way' ? this.#lanes.get(laneKey(lane)) : undefined;
  }

  /**
   * Notes what a round listed of its lanes. Two rounds in a row never skip.
   * @param eachMax a lane with this many listed jobs may have more
   * @param lanesLeft such jobs wait, and the round left out lanes
   * @returns whether the next round skips
   */
  listed(
    lanes: readonly LaneRead[],
    jobs: readonly J[],
    { begun, eachMax, lanesLeft }: { begun: ReadonlySet<J>; eachMax: number; lanesLeft: boolean },
  ): boolean {
    const byLane = Map.groupBy(jobs, job => laneKey(laneOf(job)));
    let hidesMore = false;
    for (const { namesNone, ...lane } of lanes) {
      if (namesNone) continue;
      const key = laneKey(lane);
      const listed = byLane.get(key) ?? [];
      const left = listed.filter(job => !begun.has(job));
      if (left.length === 0 || !left.every(this.#isNamed)) {
        this.#lanes.delete(key);
        continue;
      }
      const isWhole = listed.length < eachMax;
      this.#lanes.set(key, isWhole ? 'whole' : 'more');
      hidesMore ||= !isWhole;
    }
    this.#pass = this.#pass === 'none' && (hidesMore || lanesLeft) ? 'due' : 'none';
    return this.#pass === 'due';
  }
}
