/**
 * The lanes in which every waiting job names a model, or wishes for a run on crops. Such jobs may
 * wait for their engines while nodes have room for others, and hide the others behind them. So a
 * round that left some may be followed by one that passes over all of them.
 */
import {
  type LanedJob,
  type LaneIdentity,
  type LaneRead,
  laneKey,
  laneOf,
} from '@matting/queue/lanes.ts';
import type { AskedOfNode } from './job-needs.ts';

export type NamingJob = Pick<AskedOfNode, 'model' | 'correction'>;
type LaneJob = LanedJob & NamingJob;

export class NamedLanes {
  /** The listing had all jobs of the lane (whole), or more may stand behind it. */
  readonly #lanes = new Map<string, 'whole' | 'more'>();
  #pass: 'none' | 'due' | 'under way' = 'none';

  add(job: LaneJob): void {
    if (!isNamed(job)) this.#lanes.delete(laneKey(laneOf(job)));
  }

  /** @returns whether this round passes over jobs that name a model */
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
   * Notes what a round listed of each of its lanes, and whether the next one is a pass: never two
   * in a row.
   * @param eachMax a lane of which so many were listed may have more
   * @param lanesLeft jobs that name a model wait, and the round left out lanes
   * @returns whether it is
   */
  listed<J extends LaneJob>(
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
      if (left.length === 0 || !left.every(isNamed)) {
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

export function isNamed({ model, correction }: NamingJob): boolean {
  return (model !== undefined && model !== null) || correction?.cropRun !== undefined;
}
