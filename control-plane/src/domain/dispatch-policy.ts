/**
 * Which node a job goes to. Pure: snapshots in, a choice out; chance is handed in.
 * The dispatcher runs it, and so does anything that simulates a fleet.
 *
 * Nodes are compared by estimated wait (Mitzenmacher, "The Power of Two Choices in Randomized Load
 * Balancing", 2001): all of them in a small fleet, two at random in a large one, so that replicas
 * with stale views do not all pick the same best node.
 */
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import { IMAGE_PIXELS_MAX } from '#contract/limits.ts';

/** Up to here a look at every node costs less than it gains. */
export const FULL_SCAN_NODES_MAX = 15;

/** What one replica knows of one node now, its own attempts included. */
export interface NodeSnapshot {
  readonly nodeId: string;
  /** A UUID of that start of the node's process. */
  readonly bootId: string;
  readonly inputFormats: ReadonlySet<InputFormat>;
  readonly outputFormats: ReadonlySet<OutputFormat>;
  readonly imagePixelsMax: number;
  /** Of a JPEG XL input or output; 0: none. */
  readonly jxlPixelsMax: number;
  /** Further images it would admit: its own report less what we have started since. */
  readonly imagesFree: number;
  readonly megapixelsFree: number;
  /** Nothing is admitted there and nothing of ours is on its way. */
  readonly idle: boolean;
  readonly engines: number;
  readonly enginesReady: number;
  /** By its own report: until an engine takes an image admitted now. */
  readonly estimatedWaitMs: number;
  /** Running mean of a run. */
  readonly inferMs: number;
  /** Images we have started that its report does not show yet. */
  readonly unreportedImages: number;
}

export interface JobNeeds {
  readonly inputFormat: InputFormat;
  /** As stored in the file; null where the header does not show it. */
  readonly pixels: number | null;
  readonly outputFormat: OutputFormat;
}

export type NodeChoice =
  | { readonly kind: 'picked'; readonly node: NodeSnapshot }
  /** A node that can do it has no room now. */
  | { readonly kind: 'busy' }
  /** Nodes are routable and none of them can ever do it. */
  | { readonly kind: 'incapable' }
  | { readonly kind: 'no-nodes' };

export interface NodeChoiceOptions {
  /** Boot ids of nodes that said they cannot do this job. */
  readonly excludedBoots?: ReadonlySet<string>;
  /** Node ids taken only where no other capable node is routable: an attempt failed there. */
  readonly avoidedNodes?: ReadonlySet<string>;
  /** In [0, 1). */
  readonly random: () => number;
}

/** Megapixels an image is admitted at: an unknown size counts as the largest. */
export function megapixelsOf(pixels: number | null): number {
  return (pixels ?? IMAGE_PIXELS_MAX) / 1e6;
}

/** Whether the node can do the job at all, however long it waits. */
export function canDo(node: NodeSnapshot, needs: JobNeeds): boolean {
  if (!node.inputFormats.has(needs.inputFormat)) return false;
  if (!node.outputFormats.has(needs.outputFormat)) return false;
  const jxl = needs.inputFormat === 'jxl' || needs.outputFormat === 'jxl';
  // A size the header does not show is given a chance: the node knows it once it has the bytes.
  if (jxl && node.jxlPixelsMax <= 0) return false;
  if (needs.pixels === null) return true;
  if (jxl && needs.pixels > node.jxlPixelsMax) return false;
  return needs.pixels <= node.imagePixelsMax;
}

/** Whether the node would admit the job now. */
export function hasRoom(node: NodeSnapshot, needs: JobNeeds): boolean {
  // No engine ready: they are restarting, and the job is better kept where it can still go
  // elsewhere.
  if (node.enginesReady < 1 || node.imagesFree < 1) return false;
  // What an idle node refuses it can never hold, and its refusal says so.
  return node.idle || megapixelsOf(needs.pixels) <= node.megapixelsFree;
}

/** Milliseconds until an engine would take one more image, our unreported ones before it. */
export function expectedWaitMs(node: NodeSnapshot): number {
  const engines = Math.max(1, node.enginesReady);
  return node.estimatedWaitMs + (node.unreportedImages * node.inferMs) / engines;
}

/** @param nodes the routable ones. */
export function pickNode(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  options: NodeChoiceOptions,
): NodeChoice {
  if (nodes.length === 0) return { kind: 'no-nodes' };
  const { excludedBoots, avoidedNodes, random } = options;
  const capable = nodes.filter(node => !excludedBoots?.has(node.bootId) && canDo(node, needs));
  if (capable.length === 0) return { kind: 'incapable' };
  const others = capable.filter(node => !avoidedNodes?.has(node.nodeId));
  const preferred = others.length > 0 ? others : capable;
  const free = preferred.filter(node => hasRoom(node, needs));
  if (free.length === 0) return { kind: 'busy' };
  return { kind: 'picked', node: leastLoaded(sample(free, random), random) };
}

function sample(nodes: readonly NodeSnapshot[], random: () => number): readonly NodeSnapshot[] {
  if (nodes.length <= FULL_SCAN_NODES_MAX) return nodes;
  const first = Math.floor(random() * nodes.length);
  // Another one: an offset of 1 to length - 1.
  const offset = 1 + Math.floor(random() * (nodes.length - 1));
  return [nodes[first], nodes[(first + offset) % nodes.length]];
}

function leastLoaded(nodes: readonly NodeSnapshot[], random: () => number): NodeSnapshot {
  let best: NodeSnapshot[] = [];
  let bestOrder: readonly [number, number] = [Number.POSITIVE_INFINITY, 0];
  for (const node of nodes) {
    const order = [expectedWaitMs(node), node.unreportedImages - node.imagesFree] as const;
    const difference = order[0] - bestOrder[0] || order[1] - bestOrder[1];
    if (best.length > 0 && difference > 0) continue;
    best = best.length > 0 && difference === 0 ? [...best, node] : [node];
    bestOrder = order;
  }
  return best[Math.floor(random() * best.length)];
}
