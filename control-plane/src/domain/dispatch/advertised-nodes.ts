/**
 * What nodes have said lately that they can do: those that are routable, and those that were within
 * the grace for missing nodes, so that a restart of the only one with a codec refuses nothing. Each
 * replica has its own view. Pure but for what it remembers; the clock is handed in.
 */
import type { NodeAbility } from './job-needs.ts';

/** Looks in a grace: nodes report more often than this needs to know. */
const LOOKS_IN_GRACE = 60;

export interface AdvertisedNodesOptions {
  /** Those that are routable now. */
  readonly routable: () => readonly NodeAbility[];
  readonly graceMs: number;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
}

export class AdvertisedNodes {
  readonly #options: AdvertisedNodesOptions;
  readonly #startedAtMs: number;
  /** By boot: as many as were routable within the grace. */
  readonly #seen = new Map<string, { readonly node: NodeAbility; readonly atMs: number }>();
  #lookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: AdvertisedNodesOptions) {
    this.#options = options;
    this.#startedAtMs = options.now();
  }

  /** Nodes came, went or reported. */
  changed(): void {
    const { graceMs, now } = this.#options;
    if (now() - this.#lookedAtMs >= graceMs / LOOKS_IN_GRACE) this.#look();
  }

  /** Undefined within the first grace of this replica: it cannot know yet who was there. */
  nodes(): readonly NodeAbility[] | undefined {
    const { graceMs, now } = this.#options;
    if (now() - this.#startedAtMs <= graceMs) return undefined;
    this.#look();
    return [...this.#seen.values()].map(({ node }) => node);
  }

  #look(): void {
    const { routable, graceMs, now } = this.#options;
    const nowMs = now();
    this.#lookedAtMs = nowMs;
    for (const node of routable()) this.#seen.set(node.bootId, { node, atMs: nowMs });
    for (const [bootId, { atMs }] of this.#seen) {
      if (nowMs - atMs > graceMs) this.#seen.delete(bootId);
    }
  }
}
