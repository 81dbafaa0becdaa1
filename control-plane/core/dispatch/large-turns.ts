/**
 * Turns of images that find no memory on a node beside others. A node with little memory is never
 * idle while small images keep coming, so a large one would wait for as long as they do.
 *
 *   none   ──a job, the first such in the fair order, has waited TURN_AFTER_MS for memory──►
 *   turn   its node gets no other job  ──it begins, or is gone, or TURN_MS_MAX──►
 *   none   for TURN_PAUSE_MS at least
 *
 * A replica keeps one node at a time. Between two turns small images have the node, so that large
 * ones cannot keep them out either.
 */

import type { NodeSnapshot } from '@matting/nodes/node-view.ts';
import { canDo, type JobNeeds } from './job-needs.ts';
import { hasRoomFor, nodeShortOfMemory } from './pick-node.ts';

/** A node works through what it has in less, so that only a lack of memory lasts so long. */
const TURN_AFTER_MS = 10_000;
/** The images that the node has when the turn begins end within this time, or it hangs. */
const TURN_MS_MAX = 30_000;
const TURN_PAUSE_MS = 10_000;

/** A job that waits for a node. */
interface WaitingForNode {
  readonly jobId: string;
  readonly waitedMs: number;
  readonly needs: JobNeeds;
  readonly excludedBoots: ReadonlySet<string> | undefined;
}

interface Turn {
  readonly jobId: string;
  readonly nodeId: string;
  readonly endsAtMs: number;
}

export class LargeTurns {
  #turn: Turn | undefined;
  #nextAtMs = Number.NEGATIVE_INFINITY;

  /** Returns the nodes that jobs may be placed on: the kept node is for its job alone. */
  openTo(jobId: string, nodes: readonly NodeSnapshot[]): readonly NodeSnapshot[] {
    const turn = this.#turn;
    if (turn === undefined || turn.jobId === jobId) return nodes;
    return nodes.filter(({ nodeId }) => nodeId !== turn.nodeId);
  }

  began(jobId: string, nowMs: number): void {
    if (this.#turn?.jobId === jobId) this.#end(nowMs);
  }

  /** @param waiting the jobs of a round, in their fair order */
  chooseNext(
    waiting: readonly WaitingForNode[],
    nodes: readonly NodeSnapshot[],
    nowMs: number,
  ): void {
    const turn = this.#turn;
    if (turn !== undefined) {
      const isThere = waiting.some(({ jobId }) => jobId === turn.jobId);
      if (isThere && nowMs < turn.endsAtMs) return;
      this.#end(nowMs);
    }
    if (nowMs < this.#nextAtMs) return;
    for (const { jobId, waitedMs, needs, excludedBoots } of waiting) {
      if (waitedMs < TURN_AFTER_MS) continue;
      const kept = nodeShortOfMemory(nodes, needs, excludedBoots);
      // If no other job would come before it, there is nothing to keep from the node.
      const fits = (other: WaitingForNode) =>
        kept && canDo(kept, other.needs) && hasRoomFor(kept, other.needs);
      if (kept === undefined || !waiting.some(fits)) continue;
      this.#turn = { jobId, nodeId: kept.nodeId, endsAtMs: nowMs + TURN_MS_MAX };
      return;
    }
  }

  #end(nowMs: number): void {
    this.#turn = undefined;
    this.#nextAtMs = nowMs + TURN_PAUSE_MS;
  }
}
