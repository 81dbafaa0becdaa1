/**
 * Computes what KEDA and a HorizontalPodAutoscaler make of the chart's triggers
 * (deploy/chart/templates/nodes/scaled-object.yaml), in steps of 15 s: the megapixels a second that
 * come and wait, divided by those of one node. It grows at once and holds the highest number of the
 * last while, and the last node goes when nothing has come or waited for as long.
 */

export interface ScalingRule {
  /** `keda.nodeMegapixelsPerS`. */
  readonly nodeMegapixelsPerS: number;
  /** `keda.queueWaitTargetS`. */
  readonly queueWaitTargetS: number;
  /** `keda.holdS`. */
  readonly holdS: number;
  readonly nodesMax: number;
}

/** A scrape shows these. */
export interface Scraped {
  readonly atMs: number;
  /** A counter of all that was submitted. */
  readonly submittedMegapixels: number;
  readonly waitingMegapixels: number;
  readonly oldestAgeS: number;
}

/** Prometheus scrapes, KEDA asks and the autoscaler looks as often as this. */
export const STEP_MS = 15_000;
/** The window of the query's rate. */
const RATE_MS = 120_000;
/** The part of a node's time that arrivals may take: the rest is for lumps. */
const BUSY_SHARE = 0.8;
/** One node at least for each so many seconds of the oldest job's age. */
const QUEUE_AGE_S = 300;
/** The autoscaler leaves a number alone that is nearer than this to what it has. */
const TOLERANCE = 0.1;
/** Nodes added in a step: four, or as many as there are. */
const ADDED_MAX = 4;

export class Autoscaler {
  readonly #rule: ScalingRule;
  readonly #scraped: Scraped[] = [];
  readonly #recommended: { readonly atMs: number; readonly nodes: number }[] = [];
  #activeAtMs = Number.NEGATIVE_INFINITY;
  #nodes = 0;

  constructor(rule: ScalingRule) {
    this.#rule = rule;
  }

  /** The number of nodes by the scrape before this one. */
  step(scraped: Scraped): number {
    const seen = this.#scraped.at(-1);
    if (seen !== undefined) this.#nodes = this.#follow(seen, scraped.atMs);
    this.#scraped.push(scraped);
    if (this.#scraped.length > RATE_MS / STEP_MS + 1) this.#scraped.shift();
    return this.#nodes;
  }

  #follow(seen: Scraped, nowMs: number): number {
    const { holdS, nodesMax } = this.#rule;
    const wanted = this.#wanted(seen);
    if (wanted > 0) this.#activeAtMs = nowMs;
    if (this.#nodes === 0) return wanted > 0 ? 1 : 0;
    if (nowMs - this.#activeAtMs > holdS * 1000) return 0;
    const isNear = Math.abs(wanted / this.#nodes - 1) <= TOLERANCE;
    const most = Math.min(nodesMax, Math.max(2 * this.#nodes, this.#nodes + ADDED_MAX));
    const nodes = isNear ? this.#nodes : Math.min(most, Math.max(1, Math.ceil(wanted)));
    this.#recommended.push({ atMs: nowMs, nodes });
    while ((this.#recommended[0]?.atMs ?? nowMs) < nowMs - holdS * 1000) this.#recommended.shift();
    if (nodes >= this.#nodes) return nodes;
    return Math.min(this.#nodes, Math.max(...this.#recommended.map(each => each.nodes)));
  }

  /** Nodes, as parts of one. */
  #wanted({ atMs, submittedMegapixels, waitingMegapixels, oldestAgeS }: Scraped): number {
    const { nodeMegapixelsPerS, queueWaitTargetS } = this.#rule;
    const [first] = this.#scraped;
    const sinceS = (atMs - (first?.atMs ?? atMs)) / 1000;
    const came = submittedMegapixels - (first?.submittedMegapixels ?? 0);
    const inflowPerS = sinceS > 0 ? came / sinceS : 0;
    const demandPerS = inflowPerS / BUSY_SHARE + waitingMegapixels / queueWaitTargetS;
    const byAge = oldestAgeS > QUEUE_AGE_S ? oldestAgeS / QUEUE_AGE_S : 0;
    return Math.max(demandPerS / nodeMegapixelsPerS, byAge);
  }
}
