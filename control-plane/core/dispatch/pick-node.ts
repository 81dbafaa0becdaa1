/**
 * Picks the node of a job. Pure: the clock and the random numbers are parameters.
 *
 * - Late binding: a node gets a job only when an engine can soon take it. Until then the job waits
 *   in the fair queue, where any node may take it.
 * - Earliest finish: of those nodes the one that will finish first, by its measured rates.
 * - Power of two choices: a fleet above FULL_SCAN_NODES_MAX is sampled, or all replicas would pick
 *   the same node by their stale views (Mitzenmacher, "The Power of Two Choices in Randomized Load
 *   Balancing", 2001). Idle nodes come first (Lu et al., "Join-Idle-Queue", 2011).
 * - Check on arrival: the header has the longest wait, and the node refuses if its queue has grown
 *   (after the probes of Ousterhout et al., "Sparrow", 2013).
 */

import type { NodeSnapshot } from '@matting/nodes/node-view.ts';
import { IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { admittedMegapixels, canDo, canWriteAnyFrame, type JobNeeds } from './job-needs.ts';

/** Up to this number of nodes, comparing all of them gains more than it costs. */
const FULL_SCAN_NODES_MAX = 15;
const CHOICES = 2;
/** Random draws without a node that has room. After them every node is compared. */
const DRAWS_MAX = 64;

/** A job may be sent this long before an engine is free: its first bytes take as long. */
const LEAD_MS = 50;
/** A job may wait on a node for this share of the time that it has waited. */
const WAITED_SHARE = 0.1;
/** Once a reported wait has passed, the estimate is this share of the time since the report. */
const OVERRUN_SHARE = 0.2;

/** Used until the node measures a format. Taken from one core of an AMD EPYC. */
const DECODE_MS_PER_MEGAPIXEL = {
  jpeg: 20,
  png: 30,
  webp: 30,
  avif: 40,
  jxl: 70,
  heic: 200,
} as const;
const ENCODE_MS_PER_MEGAPIXEL = {
  png: 80,
  webp: 120,
  avif: 150,
  jxl: 150,
  jpeg: 60,
  zip: 90,
} as const;

type NodeChoice =
  /** The node refuses if an engine would not take the job within `waitMsMax`. */
  | { readonly kind: 'picked'; readonly node: NodeSnapshot; readonly waitMsMax: number }
  /** `retryInMs`: a node may have room then, though no event says so. */
  | { readonly kind: 'busy'; readonly retryInMs: number | undefined }
  | { readonly kind: 'incapable' }
  | { readonly kind: 'no-nodes' };

interface NodeChoiceOptions {
  readonly nowMs: number;
  readonly waitedMs: number;
  /** Nodes that refused this job as incapable. */
  readonly excludedBoots?: ReadonlySet<string> | undefined;
  /** An attempt failed there, so they are picked only if no other capable node is routable. */
  readonly avoidedNodes?: ReadonlySet<string> | undefined;
  readonly random: () => number;
}

interface SettledNeeds {
  readonly needs: JobNeeds;
  readonly excludedBoots: ReadonlySet<string> | undefined;
}

/** `extraFailed`: boots on which this job's crop run failed. */
type FailedBoots = Partial<Record<'excludedBoots' | 'extraFailed', ReadonlySet<string>>>;

/**
 * A correction may ask for a model run on a crop. If a routable node can do it, the run becomes a
 * need, and the job waits for such a node. Otherwise any node that follows the hints will do.
 */
export function settleCropRun(
  nodes: readonly NodeSnapshot[],
  jobNeeds: JobNeeds,
  nowMs: number,
  { excludedBoots, extraFailed = new Set() }: FailedBoots = {},
): SettledNeeds {
  const { cropRun, ...needs } = jobNeeds;
  if (cropRun === undefined) return { needs: jobNeeds, excludedBoots };
  const withRun: SettledNeeds = {
    needs: { ...needs, ...cropRun, capabilities: [...(needs.capabilities ?? []), 'crop_run'] },
    excludedBoots: new Set([...(excludedBoots ?? []), ...extraFailed]),
  };
  const ejected = ejectedNodes(nodes, nowMs);
  const serving = nodes.filter(node => !ejected.has(node));
  const isAble = serving.length > 0 && !isIncapable(serving, withRun.needs, withRun.excludedBoots);
  return isAble ? withRun : { needs, excludedBoots };
}

export function isIncapable(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  excludedBoots?: ReadonlySet<string>,
): boolean {
  if (nodes.length === 0) return false;
  return !nodes.some(node => !excludedBoots?.has(node.bootId) && canDo(node, needs));
}

/** Whether the node has room for the job, however long it would wait there. */
export function hasRoomFor(node: NodeSnapshot, needs: JobNeeds): boolean {
  // While engines restart, the job can go elsewhere.
  if (node.enginesReady < 1 || node.imagesFree < 1) return false;
  if (!node.proven && node.ownImages >= node.enginesReady) return false;
  const megapixels = admittedMegapixels(needs);
  if (node.megapixelsRefused !== undefined && megapixels >= node.megapixelsRefused) return false;
  // An idle node admits any image that it can ever hold, whatever it reports as free.
  return node.imagesInFlight <= 0 || megapixels <= node.megapixelsFree;
}

/**
 * Of the nodes that lack only memory for the job, the first by id: every replica finds the same
 * one. Undefined also if a node has room.
 */
export function nodeShortOfMemory(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  excludedBoots?: ReadonlySet<string>,
): NodeSnapshot | undefined {
  const able = nodes.filter(node => !excludedBoots?.has(node.bootId) && canDo(node, needs));
  if (able.some(node => hasRoomFor(node, needs))) return undefined;
  const megapixels = admittedMegapixels(needs);
  const isShort = ({ enginesReady, imagesInFlight, megapixelsFree, ...node }: NodeSnapshot) =>
    enginesReady > 0 &&
    imagesInFlight > 0 &&
    megapixels > Math.min(megapixelsFree, node.megapixelsRefused ?? Number.POSITIVE_INFINITY);
  return able.filter(isShort).toSorted((a, b) => (a.nodeId < b.nodeId ? -1 : 1))[0];
}

/** Counts images that this replica sent since the report. */
export function expectedWaitMs(node: NodeSnapshot, nowMs: number): number {
  const { enginesReady, estimatedWaitMs, inferMs, unreportedImages } = node;
  const engines = Math.max(1, enginesReady);
  const sinceMs = nowMs - node.reportedAtMs;
  const leftMs = estimatedWaitMs - sinceMs;
  // An image past its estimate is taken to need OVERRUN_SHARE of the time so far.
  const overrunMs = estimatedWaitMs > 0 ? OVERRUN_SHARE * sinceMs : 0;
  const reported = leftMs > 0 ? leftMs : overrunMs;
  // An idle node takes one image for each engine at once.
  const idle = node.imagesInFlight - node.unreportedImages <= 0 ? engines : 0;
  const ahead = Math.max(0, unreportedImages - Math.max(0, idle - 1));
  return reported + (ahead * inferMs) / engines;
}

export function workMs(node: NodeSnapshot, needs: JobNeeds): number {
  const { inputFormat, outputFormat, finishing } = needs;
  const pixels = needs.pixels ?? IMAGE_PIXELS_MAX;
  // As nodes measure encoding.
  const encoded = Math.max(pixels, finishing?.frame.whole ?? 0);
  const decode =
    node.decodeRates.get(inputFormat) ??
    (node.decodeMsPerMegapixel || DECODE_MS_PER_MEGAPIXEL[inputFormat]);
  const encode =
    node.encodeRates.get(outputFormat) ??
    (node.encodeMsPerMegapixel || ENCODE_MS_PER_MEGAPIXEL[outputFormat]);
  return node.inferMs + (decode * pixels + encode * encoded) / 1e6;
}

export function waitMsMax(waitedMs: number): number {
  return LEAD_MS + WAITED_SHARE * Math.max(0, waitedMs);
}

export function pickNode(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  options: NodeChoiceOptions,
): NodeChoice {
  if (nodes.length === 0) return { kind: 'no-nodes' };
  const { excludedBoots, avoidedNodes, nowMs, waitedMs } = options;
  if (isIncapable(nodes, needs, excludedBoots)) return { kind: 'incapable' };
  const waitMax = waitMsMax(waitedMs);
  const ejected = ejectedNodes(nodes, nowMs);
  const isCapable = (node: NodeSnapshot) => !excludedBoots?.has(node.bootId) && canDo(node, needs);
  const isGood = (node: NodeSnapshot) =>
    !(ejected.has(node) || avoidedNodes?.has(node.nodeId)) &&
    isCapable(node) &&
    canWriteAnyFrame(node, needs);
  // If no node is good, any capable one will do.
  const isWanted = nodes.some(isGood) ? isGood : isCapable;
  const excessMs = (node: NodeSnapshot) => expectedWaitMs(node, nowMs) - waitMax;
  const mayTake = (node: NodeSnapshot) =>
    hasRoomFor(node, needs) && isWanted(node) && excessMs(node) <= 0;
  const compared = candidates(nodes, mayTake, options);
  if (compared.length > 0) {
    const node = firstToFinish(compared, needs, options);
    return { kind: 'picked', node, waitMsMax: isLoadedAt(node, needs) ? waitMax : 0 };
  }
  let retryInMs: number | undefined;
  for (const node of nodes) {
    if (!hasRoomFor(node, needs) || !isWanted(node)) continue;
    retryInMs = Math.min(retryInMs ?? Number.POSITIVE_INFINITY, excessMs(node));
  }
  return { kind: 'busy', retryInMs };
}

/** A node of 0.3.0 serves several models, of which only the default is surely loaded. */
function isLoadedAt({ models }: NodeSnapshot, { model }: JobNeeds): boolean {
  return model === undefined || models?.get(model)?.isDefault === true;
}

/** Counts images instead of time, because a slow image outlasts the estimate. */
function isIdle(node: NodeSnapshot): boolean {
  return node.imagesInFlight < node.enginesReady;
}

/** Ejects half of the fleet at most: if more fail, the nodes are hardly the cause. */
function ejectedNodes(nodes: readonly NodeSnapshot[], nowMs: number): ReadonlySet<NodeSnapshot> {
  const ejected = nodes.filter(node => node.ejectedUntilMs > nowMs);
  const most = Math.floor(nodes.length / 2);
  if (ejected.length <= most) return new Set(ejected);
  return new Set(ejected.sort((a, b) => b.ejectedUntilMs - a.ejectedUntilMs).slice(0, most));
}

function candidates(
  nodes: readonly NodeSnapshot[],
  mayTake: (node: NodeSnapshot) => boolean,
  { random }: NodeChoiceOptions,
): readonly NodeSnapshot[] {
  if (nodes.length <= FULL_SCAN_NODES_MAX) {
    const free = nodes.filter(mayTake);
    return free.some(isIdle) ? free.filter(isIdle) : free;
  }
  const compared = new Set<NodeSnapshot>();
  for (let draw = 0; draw < DRAWS_MAX && compared.size < CHOICES; draw += 1) {
    const node = drawn(nodes, random);
    if (mayTake(node) && isIdle(node)) compared.add(node);
  }
  if (compared.size === CHOICES) return [...compared];
  const free = nodes.filter(mayTake);
  const idle = free.filter(isIdle);
  return sample(idle.length > 0 ? idle : free, random);
}

function sample(nodes: NodeSnapshot[], random: () => number): readonly NodeSnapshot[] {
  const count = Math.min(CHOICES, nodes.length);
  return Array.from({ length: count }).flatMap(() =>
    nodes.splice(Math.floor(random() * nodes.length), 1),
  );
}

function drawn(nodes: readonly NodeSnapshot[], random: () => number): NodeSnapshot {
  const node = nodes[Math.floor(random() * nodes.length)];
  if (node === undefined) throw new Error('no node to draw, or a draw outside [0, 1)');
  return node;
}

function firstToFinish(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  { nowMs, random }: NodeChoiceOptions,
): NodeSnapshot {
  let best: NodeSnapshot[] = [];
  let bestOrder: readonly [number, number] = [Number.POSITIVE_INFINITY, 0];
  for (const node of nodes) {
    const finishMs = expectedWaitMs(node, nowMs) + workMs(node, needs);
    const order = [finishMs, node.unreportedImages - node.imagesFree] as const;
    const difference = order[0] - bestOrder[0] || order[1] - bestOrder[1];
    if (best.length > 0 && difference > 0) continue;
    best = best.length > 0 && difference === 0 ? [...best, node] : [node];
    bestOrder = order;
  }
  return drawn(best, random);
}
