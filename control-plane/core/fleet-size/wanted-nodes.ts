/**
 * How many nodes a fleet that sleeps should have: for an autoscaler to follow, in the number of
 * nodes itself and not in a change of it. Pure; bench/dispatch-simulator runs it in simulated time.
 *
 * Enough to do what comes and, within the target wait, what has come; one at least while anything
 * waits or runs. By the pace of nodes that were busy, as measured (work-meter.ts): until it was,
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
  /** Without a routable node; 0: there is one. */
  readonly unroutableMs: number;
  readonly routableNodes: number;
  /** Part of the routable nodes' places in use, lately, 0 to 1; undefined: there was none. */
  readonly utilisation: number | undefined;
}

export interface FleetSizePolicy {
  /** What waits is to be begun within this. */
  readonly waitTargetMs: number;
  readonly nodesMin: number;
  readonly nodesMax: number;
}

/**
 * Part of a node's time that what comes may take: the rest is for what comes in lumps. Chosen in
 * simulated time (docs/performance.md).
 */
export const BUSY_SHARE = 0.8;
/** A need below this part of a node, with nothing that waits, is none. */
const NEGLIGIBLE = 0.05;
/** A node that has not come by then, from an image to fetch and a model to load, never will. */
const COMING_MS_MAX = 300_000;
/** Used less than this, nodes are not what is missing. */
const USED_SHARE_MIN = 0.5;
/** So that a need of exactly three nodes is three, whatever the last digit is. */
const ROUNDING = 1e-6;

/** Within the policy's bounds, whole. */
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

  /** @param nowMs of a clock that never goes back @returns the highest lately, this one included */
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
