/** The nodes that were routable lately, by which a request is refused before it is a job. */

import type { NodeAbility } from '@matting/nodes/node-view.ts';
import type { Selectables } from '@matting/nodes/selectable.ts';

const LOOKS_IN_GRACE = 60;

interface AdvertisedNodesOptions {
  readonly routable: () => readonly NodeAbility[];
  readonly graceMs: number;
  readonly now: () => number;
}

/** The nodes routable within the grace: a restart of the only one with a codec refuses nothing. */
export class AdvertisedNodes {
  readonly #options: AdvertisedNodesOptions;
  readonly #startedAtMs: number;
  /** The keys are the boot and what may be named there, which may change while a node serves. */
  readonly #seen = new Map<
    string,
    Map<Selectables | undefined, { readonly node: NodeAbility; readonly atMs: number }>
  >();
  #lookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: AdvertisedNodesOptions) {
    this.#options = options;
    this.#startedAtMs = options.now();
  }

  changed(): void {
    const { graceMs, now } = this.#options;
    if (now() - this.#lookedAtMs >= graceMs / LOOKS_IN_GRACE) this.#look();
  }

  /** Undefined within the first grace of this replica: it cannot know yet who was there. */
  nodes(): readonly NodeAbility[] | undefined {
    const { graceMs, now } = this.#options;
    if (now() - this.#startedAtMs <= graceMs) return undefined;
    this.#look();
    return [...this.#seen.values()].flatMap(seen => [...seen.values()].map(({ node }) => node));
  }

  #look(): void {
    const { routable, graceMs, now } = this.#options;
    const nowMs = now();
    this.#lookedAtMs = nowMs;
    for (const node of routable()) {
      const seen = this.#seen.get(node.bootId) ?? new Map();
      this.#seen.set(node.bootId, seen.set(node.models, { node, atMs: nowMs }));
    }
    for (const [bootId, seen] of this.#seen) {
      for (const [models, { atMs }] of seen) if (nowMs - atMs > graceMs) seen.delete(models);
      if (seen.size === 0) this.#seen.delete(bootId);
    }
  }
}
