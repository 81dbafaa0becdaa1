/**
 * Reserves a node for a large image, for which small ones would never leave enough memory:
 *
 *   none      ──the first job in fair order that has waited RESERVE_AFTER_MS for memory──►
 *   reserved  the node gets no other job  ──the job begins or is gone, or RESERVED_MS_MAX──►
 *   none      for PAUSE_MS at least, so that small images get the node
 *
 * A replica reserves one node at a time.
 */

import type { NodeSnapshot } from '@matting/nodes/node-view.ts';
import { canDo, type JobNeeds } from './job-needs.ts';
import { hasRoomFor, nodeShortOfMemory } from './pick-node.ts';

/** A job that still waits after this time lacks memory. */
const RESERVE_AFTER_MS = 10_000;
/** A node ends its images within this time, unless it hangs. */
const RESERVED_MS_MAX = 30_000;
const PAUSE_MS = 10_000;

interface WaitingForNode {
  readonly jobId: string;
  readonly waitedMs: number;
  readonly needs: JobNeeds;
  readonly excludedBoots: ReadonlySet<string> | undefined;
}

interface Reservation {
  readonly jobId: string;
  readonly nodeId: string;
  readonly endsAtMs: number;
}

export class NodeReservation {
  #reserved: Reservation | undefined;
  #nextAtMs = Number.NEGATIVE_INFINITY;

  nodesFor(jobId: string, nodes: readonly NodeSnapshot[]): readonly NodeSnapshot[] {
    const reserved = this.#reserved;
    if (reserved === undefined || reserved.jobId === jobId) return nodes;
    return nodes.filter(({ nodeId }) => nodeId !== reserved.nodeId);
  }

  began(jobId: string, nowMs: number): void {
    if (this.#reserved?.jobId === jobId) this.#end(nowMs);
  }

  /** @param waiting a round's jobs that wait for a node, in fair order */
  reserve(waiting: readonly WaitingForNode[], nodes: readonly NodeSnapshot[], nowMs: number): void {
    const reserved = this.#reserved;
    if (reserved !== undefined) {
      const stillWaits = waiting.some(({ jobId }) => jobId === reserved.jobId);
      if (stillWaits && nowMs < reserved.endsAtMs) return;
      this.#end(nowMs);
    }
    if (nowMs < this.#nextAtMs) return;
    for (const { jobId, waitedMs, needs, excludedBoots } of waiting) {
      if (waitedMs < RESERVE_AFTER_MS) continue;
      const short = nodeShortOfMemory(nodes, needs, excludedBoots);
      // Without another job that fits the node, a reservation changes nothing.
      const fits = (other: WaitingForNode) =>
        short && canDo(short, other.needs) && hasRoomFor(short, other.needs);
      if (short === undefined || !waiting.some(fits)) continue;
      this.#reserved = { jobId, nodeId: short.nodeId, endsAtMs: nowMs + RESERVED_MS_MAX };
      return;
    }
  }

  #end(nowMs: number): void {
    this.#reserved = undefined;
    this.#nextAtMs = nowMs + PAUSE_MS;
  }
}
