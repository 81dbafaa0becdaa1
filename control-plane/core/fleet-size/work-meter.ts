/**
 * What one replica measures of the work and of the nodes: what comes, what nodes do of it, and how
 * much of a node's time that takes. Pure but for what it counts; the clock is handed in.
 *
 * The pace of a node is the megapixels it finished for this replica by the node time they took. Of
 * a node that takes nothing more now, the time belongs to whose images it has, image by image.
 * Of one with places left an image takes its place's part: an image alone would otherwise count as
 * a whole node, and a fleet that is too large would measure itself as slow, and stay too large.
 */
import { expectedWaitMs, LEAD_MS, type NodeSnapshot } from '../dispatch/dispatch-policy.ts';

/** Node time that the pace is measured over: new images, models or nodes show within it. */
const PACE_NODE_MS = 600_000;
/** What comes is smoothed over this: lumps are for the backlog's part of the need. */
const INFLOW_MS = 60_000;

/** What a pace is made of. */
export interface MeasuredWork {
  readonly megapixels: number;
  readonly nodeMs: number;
}

export const NOTHING_MEASURED: MeasuredWork = Object.freeze({ megapixels: 0, nodeMs: 0 });

/** Megapixels a second of one busy node; undefined: nothing was measured. */
export function pacePerS({ megapixels, nodeMs }: MeasuredWork): number | undefined {
  return megapixels > 0 && nodeMs > 0 ? (megapixels * 1000) / nodeMs : undefined;
}

export function workOf(measured: readonly MeasuredWork[]): MeasuredWork {
  return measured.reduce(
    (sum, { megapixels, nodeMs }) => ({
      megapixels: sum.megapixels + megapixels,
      nodeMs: sum.nodeMs + nodeMs,
    }),
    NOTHING_MEASURED,
  );
}

/** Parts of one node in use, 0 to 1: by all its images, and by this replica's. */
export function usedShares(
  node: NodeSnapshot,
  nowMs: number,
): { readonly all: number; readonly own: number } {
  const { imagesFree, imagesInFlight, ownImages } = node;
  const isFull = imagesFree < 1 || expectedWaitMs(node, nowMs) > LEAD_MS;
  if (imagesInFlight <= 0) return { all: isFull ? 1 : 0, own: 0 };
  const all = isFull ? 1 : imagesInFlight / (imagesInFlight + imagesFree);
  return { all, own: (all * Math.min(ownImages, imagesInFlight)) / imagesInFlight };
}

/** What was measured since the last `take`, and over all. */
export interface MeterReading {
  readonly work: MeasuredWork;
  readonly inflowPerS: number;
  readonly routableNodes: number;
  /** Undefined: no node was routable. */
  readonly utilisation: number | undefined;
}

export class WorkMeter {
  #work: MeasuredWork;
  #arrived = 0;
  #inflowPerS = 0;
  #sampledAtMs: number | undefined;
  #takenAtMs: number | undefined;
  #routable = 0;
  #usedSum = 0;
  #nodesSum = 0;

  /** @param known what was measured before this process */
  constructor(known: MeasuredWork = NOTHING_MEASURED) {
    this.#work = recent(known);
  }

  /** A job that is paid for was submitted here. */
  submitted(megapixels: number): void {
    this.#arrived += megapixels;
  }

  /** A node finished an image for this replica. */
  finished(megapixels: number): void {
    this.#work = { ...this.#work, megapixels: this.#work.megapixels + megapixels };
  }

  /** Looks at the routable nodes; the shorter between two calls, the better. */
  sample(nodes: readonly NodeSnapshot[], nowMs: number): void {
    const sinceMs = nowMs - (this.#sampledAtMs ?? nowMs);
    this.#sampledAtMs = nowMs;
    this.#routable = nodes.length;
    let own = 0;
    for (const node of nodes) {
      const shares = usedShares(node, nowMs);
      own += shares.own;
      this.#usedSum += shares.all;
      this.#nodesSum += 1;
    }
    this.#work = recent({ ...this.#work, nodeMs: this.#work.nodeMs + own * sinceMs });
  }

  take(nowMs: number): MeterReading {
    const sinceMs = nowMs - (this.#takenAtMs ?? nowMs);
    this.#takenAtMs = nowMs;
    if (sinceMs > 0) {
      const kept = Math.exp(-sinceMs / INFLOW_MS);
      const latelyPerS = (this.#arrived * 1000) / sinceMs;
      this.#inflowPerS = kept * this.#inflowPerS + (1 - kept) * latelyPerS;
      this.#arrived = 0;
    }
    const utilisation = this.#nodesSum > 0 ? this.#usedSum / this.#nodesSum : undefined;
    this.#usedSum = 0;
    this.#nodesSum = 0;
    return {
      work: this.#work,
      inflowPerS: this.#inflowPerS,
      routableNodes: this.#routable,
      utilisation,
    };
  }
}

/** As much of it as counts: the same pace by less time. */
function recent(work: MeasuredWork): MeasuredWork {
  if (work.nodeMs <= PACE_NODE_MS) return work;
  const megapixels = (work.megapixels * PACE_NODE_MS) / work.nodeMs;
  return { megapixels, nodeMs: PACE_NODE_MS };
}
