/** The nodes that were lately routable. A request that none of them can do is refused at once. */

import type { NodeAbility } from '@matting/nodes/node-view.ts';
import type { Selectables } from '@matting/nodes/selectable.ts';

const REFRESHES_PER_GRACE = 60;

interface AdvertisedNodesOptions {
  readonly routable: () => readonly NodeAbility[];
  readonly graceMs: number;
  readonly now: () => number;
}

/** An absent node counts for a grace period, because the only node with a codec may restart. */
export class AdvertisedNodes {
  readonly #options: AdvertisedNodesOptions;
  readonly #startedAtMs: number;
  /** By the node's boot, then by its models, which may change while the node serves. */
  readonly #byBoot = new Map<
    string,
    Map<Selectables | undefined, { readonly node: NodeAbility; readonly atMs: number }>
  >();
  #refreshedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: AdvertisedNodesOptions) {
    this.#options = options;
    this.#startedAtMs = options.now();
  }

  changed(): void {
    const { graceMs, now } = this.#options;
    if (now() - this.#refreshedAtMs >= graceMs / REFRESHES_PER_GRACE) this.#refresh();
  }

  /** Undefined in the first grace period: the replica may not know all nodes yet. */
  nodes(): readonly NodeAbility[] | undefined {
    const { graceMs, now } = this.#options;
    if (now() - this.#startedAtMs <= graceMs) return undefined;
    this.#refresh();
    const entries = [...this.#byBoot.values()].flatMap(byModels => [...byModels.values()]);
    return entries.map(({ node }) => node);
  }

  #refresh(): void {
    const { routable, graceMs, now } = this.#options;
    const nowMs = now();
    this.#refreshedAtMs = nowMs;
    for (const node of routable()) {
      const byModels = this.#byBoot.get(node.bootId) ?? new Map();
      this.#byBoot.set(node.bootId, byModels.set(node.models, { node, atMs: nowMs }));
    }
    for (const [bootId, byModels] of this.#byBoot) {
      for (const [models, { atMs }] of byModels) {
        if (nowMs - atMs > graceMs) byModels.delete(models);
      }
      if (byModels.size === 0) this.#byBoot.delete(bootId);
    }
  }
}
