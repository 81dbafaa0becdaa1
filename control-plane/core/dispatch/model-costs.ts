/**
 * Counts what the model that a job names costs on a node. Its engines stand beside those of the
 * node's own plan, with a queue of their own, and may have to be loaded first. Pure.
 *
 * - A node that has it loaded, or is loading it, comes first. Another loads it if no node has
 *   it, or if the wait at those that have it is longer than a load: the node's own wait, or
 *   what the job has waited already, since jobs wait in the queue and not on nodes.
 * - Jobs that name another model than a node's own plan take at most OTHERS_SHARE of its places,
 *   one at least: images without a name find room however many of the others wait.
 */

import type { ModelLoad, NodeAbility } from '@matting/nodes/node-view.ts';
import type { JobNeeds } from './job-needs.ts';

const OTHERS_SHARE = 0.5;
/** For nodes that report no time: about a model of 200 MB from a disk. */
const LOAD_MS_DEFAULT = 5000;

type Needs = Pick<JobNeeds, 'model'>;

/** A node's report and what is ours of it. */
interface NodeSeen extends Pick<NodeAbility, 'models'> {
  readonly imagesInFlight: number;
  readonly imagesFree: number;
  readonly enginesReady: number;
  readonly estimatedWaitMs: number;
  readonly inferMs: number;
  readonly loads?: ReadonlyMap<string, ModelLoad>;
  readonly unreportedImages: number;
  /** The unreported images name these besides the node's own plan; absent: none. */
  readonly unreportedOthers?: readonly string[];
  /** Images of ours there that do; absent: none. */
  readonly ownOthers?: number;
  /** The node has refused these since its last report; absent: nothing. */
  readonly othersRefused?: ReadonlySet<string>;
}

interface ModelCosts {
  readonly estimatedWaitMs: number;
  readonly inferMs: number;
  readonly enginesReady: number;
  /** The load takes so long before a run; 0: it is loaded, or its load is in the wait. */
  readonly loadMs: number;
  /** Our images for the same engines that no report shows yet. */
  readonly unreportedImages: number;
}

export function isOther(node: NodeSeen, { model }: Needs): boolean {
  return model !== undefined && node.models?.get(model)?.isDefault !== true;
}

export function costsAt(node: NodeSeen, needs: Needs): ModelCosts {
  const { model } = needs;
  const { unreportedOthers = [] } = node;
  if (model === undefined || !isOther(node, needs)) {
    const { estimatedWaitMs, inferMs, enginesReady } = node;
    const unreportedImages = node.unreportedImages - unreportedOthers.length;
    return { estimatedWaitMs, inferMs, enginesReady, unreportedImages, loadMs: 0 };
  }
  const unreportedImages = unreportedOthers.filter(name => name === model).length;
  const load = node.loads?.get(model);
  const loadMs = node.models?.get(model)?.loadMs || LOAD_MS_DEFAULT;
  if (load === undefined && unreportedImages === 0) {
    return { estimatedWaitMs: 0, inferMs: 0, enginesReady: 1, loadMs, unreportedImages };
  }
  const { enginesReady = 0, inferMs = 0, estimatedWaitMs = 0 } = load ?? {};
  const isLoading = enginesReady === 0;
  return {
    estimatedWaitMs: isLoading ? estimatedWaitMs || loadMs : estimatedWaitMs,
    inferMs,
    enginesReady: Math.max(1, enginesReady),
    loadMs: 0,
    unreportedImages,
  };
}

/** Finds whether it has a free slot, as far as others may have it, and did not just refuse this. */
export function hasPlaceForOthers(node: NodeSeen, { model = '' }: Needs): boolean {
  if (node.othersRefused?.has(model)) return false;
  const places = Math.max(0, node.imagesFree) + node.imagesInFlight;
  return (node.ownOthers ?? 0) < Math.max(1, Math.floor(places * OTHERS_SHARE));
}

interface LoadWaitOptions<N> {
  /** Lists all nodes that can do the job, whether they have room or not. */
  readonly able: () => readonly N[];
  readonly waitedMs: number;
  readonly waitMs: (node: N) => number;
}

/**
 * Returns how long the job still waits until that node may load its model; 0: it may, or need not.
 */
export function loadWait<N extends NodeSeen>(
  needs: Needs,
  { able, waitedMs, waitMs }: LoadWaitOptions<N>,
): (node: N) => number {
  if (needs.model === undefined) return () => 0;
  let soonestMs = Number.POSITIVE_INFINITY;
  for (const node of able()) {
    if (costsAt(node, needs).loadMs === 0) soonestMs = Math.min(soonestMs, waitMs(node));
  }
  return node => {
    const { loadMs } = costsAt(node, needs);
    return soonestMs > loadMs ? 0 : Math.max(0, loadMs - waitedMs);
  };
}
