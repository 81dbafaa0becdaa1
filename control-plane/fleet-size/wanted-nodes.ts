import { expectedWaitMs, LEAD_MS } from '@matting/core/dispatch/pick-node.ts';
import type { NodeSnapshot } from '@matting/core/nodes/node-view.ts';

/**
 * How many nodes a fleet that sleeps should have: for an autoscaler to follow, in the number of
 * nodes itself and not in a change of it. Pure; bench/dispatch-simulator runs it in simulated time.
 *
 * Enough to do what comes and, within the target wait, what has come; one at least while anything
 * waits or runs. By the pace of nodes that were busy, as measured (wanted-nodes.ts): until it was,
 * one, whose first images measure it.
 *
 * More nodes help only what waits for room. A download that hangs, or an image that no node alive
 * can do, waits beside idle nodes: where the fleet is less than half used, no more is wanted than
 * would bring it to half, and one. And a node that was asked for may never come: while jobs wait
 * and no node is there, one more is wanted each time that COMING_MS_MAX has passed.
 */

export interface FleetNeeds {
  /** Jobs that wait, downloads included, and their megapixels. */
  readonly waitingJobs: number;
  readonly waitingMegapixels: number;
  /** Open jobs of playgrounds. They keep a node awake and call no second one. */
  readonly playgroundJobs: number;
  /** Under way on nodes, or being claimed. */
  readonly runningJobs: number;
  /** Megapixels that were submitted a second, lately. */
  readonly inflowPerS: number;
  /** Megapixels a second of one busy node; undefined: not measured yet. */
  readonly pacePerS: number | undefined;
  /** Age of the oldest job that waits; 0: none does. */
  readonly oldestAgeMs: number;
  readonly unroutableMs: number;
  readonly routableNodes: number;
  /** Part of the routable nodes' places in use, lately, 0 to 1; undefined: there was none. */
  readonly utilisation: number | undefined;
}

export interface FleetSizePolicy {
  readonly waitTargetMs: number;
  readonly nodesMin: number;
  readonly nodesMax: number;
}

/** Part of a node's time that what comes may take (bench/MEASUREMENTS.md): the rest is for lumps. */
export const BUSY_SHARE = 0.8;
/** A need below this part of a node, with nothing that waits, is none. */
const NEGLIGIBLE = 0.05;
/** A node that has not come by then, from an image to fetch and a model to load, never will. */
const COMING_MS_MAX = 300_000;
/** Used less than this, nodes are not what is missing. */
const USED_SHARE_MIN = 0.5;
/** So that a need of exactly three nodes is three, whatever the last digit is. */
const ROUNDING = 1e-6;

export function wantedNodes(needs: FleetNeeds, policy: FleetSizePolicy): number {
  const { nodesMin, nodesMax } = policy;
  return Math.min(nodesMax, Math.max(nodesMin, unbounded(needs, policy)));
}

function unbounded(needs: FleetNeeds, { waitTargetMs }: FleetSizePolicy): number {
  const { waitingJobs, waitingMegapixels, playgroundJobs, runningJobs } = needs;
  const { inflowPerS, pacePerS, routableNodes, utilisation } = needs;
  const missed = Math.floor(Math.min(needs.oldestAgeMs, needs.unroutableMs) / COMING_MS_MAX);
  const least = (waitingJobs + playgroundJobs + runningJobs > 0 ? 1 : 0) + missed;
  if (pacePerS === undefined || pacePerS <= 0) return least;
  const demandPerS = inflowPerS / BUSY_SHARE + waitingMegapixels / (waitTargetMs / 1000);
  const need = demandPerS / pacePerS;
  if (least === 0 && need < NEGLIGIBLE) return 0;
  const wanted = Math.max(least, Math.ceil(need - ROUNDING) + missed);
  if (utilisation === undefined || utilisation >= USED_SHARE_MIN) return wanted;
  const useful = Math.ceil((utilisation / USED_SHARE_MIN) * routableNodes) + 1;
  return Math.min(wanted, useful);
}

/**
 * The highest value of the last while: a fleet grows at once and shrinks late, so that a lull
 * between two lumps ends no node that the second one needs. A value is held for at least `holdMs`
 * and at most twice that.
 */
export class HeldPeak {
  readonly #holdMs: number;
  #current = 0;
  #previous = 0;
  #sinceMs: number | undefined;

  constructor(holdMs: number) {
    this.#holdMs = holdMs;
  }

  hold(value: number, nowMs: number): number {
    this.#sinceMs ??= nowMs;
    const passedMs = nowMs - this.#sinceMs;
    if (passedMs >= this.#holdMs) {
      this.#previous = passedMs < 2 * this.#holdMs ? this.#current : 0;
      this.#current = 0;
      this.#sinceMs = nowMs;
    }
    this.#current = Math.max(this.#current, value);
    return Math.max(this.#current, this.#previous);
  }
}

/*
 * What one replica measures of the work and of the nodes: what comes, what nodes do of it, and how
 * much of a node's time that takes. Pure but for what it counts; the clock is handed in.
 *
 * The pace of a node is the megapixels it finished for this replica by the node time they took. Of
 * a node that takes nothing more now, the time belongs to whose images it has, image by image.
 * Of one with places left an image takes its place's part: an image alone would otherwise count as
 * a whole node, and a fleet that is too large would measure itself as slow, and stay too large.
 */

/** Node time that the pace is measured over: new images, models or nodes show within it. */
const PACE_NODE_MS = 600_000;
/** What comes is smoothed over this: lumps are for the backlog's part of the need. */
const INFLOW_MS = 60_000;

export interface MeasuredWork {
  readonly megapixels: number;
  readonly nodeMs: number;
}

const NOTHING_MEASURED: MeasuredWork = Object.freeze({ megapixels: 0, nodeMs: 0 });

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

  constructor(known: MeasuredWork = NOTHING_MEASURED) {
    this.#work = recent(known);
  }

  /** A job that is paid for was submitted here. */
  submitted(megapixels: number): void {
    this.#arrived += megapixels;
  }

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
