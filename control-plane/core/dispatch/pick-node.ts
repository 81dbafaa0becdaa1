/**
 * Which node a job goes to. Pure: the clock and the chance are handed in.
 *
 * - Late: a node gets a job only when an engine there would take it about when it arrives. What has
 *   longer to wait waits in the queue, where any node can take it and turns are fair.
 * - Early: among the nodes that would take it now, the one that finishes it first by its own
 *   measurements (milliseconds a megapixel and format).
 * - Apart: every node is compared in a small fleet. In a large one CHOICES of them at random, since
 *   replicas with stale views would all pick the same best one (Mitzenmacher, "The Power of Two
 *   Choices in Randomized Load Balancing", 2001); those without a wait go first (Lu et al.,
 *   "Join-Idle-Queue", 2011).
 * - Checked: the header carries the longest wait, and the node refuses at once where its queue has
 *   grown since (after the probes of Ousterhout et al., "Sparrow", 2013).
 */

import type { NodeSnapshot } from '@matting/nodes/node-view.ts';
import { IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { admittedMegapixels, canDo, canSurelyDo, type JobNeeds } from './job-needs.ts';

/** Up to this size comparing every node costs less than it gains. */
const FULL_SCAN_NODES_MAX = 15;
const CHOICES = 2;
/** After so many draws the fleet counts as nearly full, and every node is compared. */
const DRAWS_MAX = 64;

/** A job may be sent so long before an engine is free: claim, header, first bytes take as long. */
const LEAD_MS = 50;
/** Share of the time a job has waited that it may wait again on a node. */
const WAITED_SHARE = 0.1;
/** Share of the time since a report that an overdue wait is expected to last on. */
const OVERRUN_SHARE = 0.2;

/** Rates until a node has measured a format: about a core of a server (AMD EPYC). */
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
  /** A node that can do it has no room now; `retryInMs` where time alone may change that. */
  | { readonly kind: 'busy'; readonly retryInMs: number | undefined }
  | { readonly kind: 'incapable' }
  | { readonly kind: 'no-nodes' };

interface NodeChoiceOptions {
  readonly nowMs: number;
  readonly waitedMs: number;
  /** Boot ids of nodes that said they cannot do this job. */
  readonly excludedBoots?: ReadonlySet<string> | undefined;
  /** Node ids taken only where no other capable node is routable: an attempt failed there. */
  readonly avoidedNodes?: ReadonlySet<string> | undefined;
  readonly random: () => number;
}

interface Settled {
  readonly needs: JobNeeds;
  readonly excludedBoots: ReadonlySet<string> | undefined;
}

/** Boot ids of nodes: those that cannot do the job, and those whose run on crops failed under it. */
type FailedBoots = Partial<Record<'excludedBoots' | 'extraFailed', ReadonlySet<string>>>;

/**
 * Makes needs of a correction's wish while a routable node can do it: then the job waits for such
 * a node, as any job that only some nodes can do. Otherwise any node serves that follows the hints.
 */
export function settleCropRun(
  nodes: readonly NodeSnapshot[],
  asked: JobNeeds,
  nowMs: number,
  { excludedBoots, extraFailed = new Set() }: FailedBoots = {},
): Settled {
  const { cropRun, ...needs } = asked;
  if (cropRun === undefined) return { needs: asked, excludedBoots };
  const wished: Settled = {
    needs: { ...needs, ...cropRun, capabilities: [...(needs.capabilities ?? []), 'crop_run'] },
    excludedBoots: new Set([...(excludedBoots ?? []), ...extraFailed]),
  };
  const out = ejectedNodes(nodes, nowMs);
  const serving = nodes.filter(node => !out.has(node));
  const isAble = serving.length > 0 && !isIncapable(serving, wished.needs, wished.excludedBoots);
  return isAble ? wished : { needs, excludedBoots };
}

export function isIncapable(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  excludedBoots?: ReadonlySet<string>,
): boolean {
  if (nodes.length === 0) return false;
  return !nodes.some(node => !excludedBoots?.has(node.bootId) && canDo(node, needs));
}

/** Finds whether it has room for the job, whatever the wait there. */
export function hasRoomFor(node: NodeSnapshot, needs: JobNeeds): boolean {
  // Engines that restart: the job can still go elsewhere.
  if (node.enginesReady < 1 || node.imagesFree < 1) return false;
  if (!node.proven && node.ownImages >= node.enginesReady) return false;
  const megapixels = admittedMegapixels(needs);
  if (node.megapixelsRefused !== undefined && megapixels >= node.megapixelsRefused) return false;
  // If an idle node refuses an image, it can never hold it, and its refusal says so.
  return node.imagesInFlight <= 0 || megapixels <= node.megapixelsFree;
}

/**
 * Finds, among the nodes that lack nothing but memory for the job, the first by its id: every
 * replica finds the same one. Undefined: one of the nodes has room for it, or none would have.
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

/** Counts the milliseconds until an engine would take another image after our unreported ones. */
export function expectedWaitMs(node: NodeSnapshot, nowMs: number): number {
  const { enginesReady, estimatedWaitMs, inferMs, unreportedImages } = node;
  const engines = Math.max(1, enginesReady);
  const sinceMs = nowMs - node.reportedAtMs;
  const leftMs = estimatedWaitMs - sinceMs;
  // An image that should be over and has not reported its end takes longer than its like.
  const overrunMs = estimatedWaitMs > 0 ? OVERRUN_SHARE * sinceMs : 0;
  const reported = leftMs > 0 ? leftMs : overrunMs;
  // If nothing else waits, the node takes as many images at once as there are engines.
  const idle = node.imagesInFlight - node.unreportedImages <= 0 ? engines : 0;
  const ahead = Math.max(0, unreportedImages - Math.max(0, idle - 1));
  return reported + (ahead * inferMs) / engines;
}

export function workMs(node: NodeSnapshot, needs: JobNeeds): number {
  const { inputFormat, outputFormat, finishing } = needs;
  const pixels = needs.pixels ?? IMAGE_PIXELS_MAX;
  // Nodes measure encoding by the larger of picture and result.
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
  const out = ejectedNodes(nodes, nowMs);
  const isCapable = (node: NodeSnapshot) => !excludedBoots?.has(node.bootId) && canDo(node, needs);
  const isGood = (node: NodeSnapshot) =>
    !(out.has(node) || avoidedNodes?.has(node.nodeId)) &&
    isCapable(node) &&
    canSurelyDo(node, needs);
  // If there are no good nodes, these are better than none.
  const isWanted = nodes.some(isGood) ? isGood : isCapable;
  const tooLongMs = (node: NodeSnapshot) => expectedWaitMs(node, nowMs) - waitMax;
  const mayTake = (node: NodeSnapshot) =>
    hasRoomFor(node, needs) && isWanted(node) && tooLongMs(node) <= 0;
  const compared = candidates(nodes, mayTake, options);
  if (compared.length > 0) {
    const node = firstToFinish(compared, needs, options);
    return { kind: 'picked', node, waitMsMax: isLoadedAt(node, needs) ? waitMax : 0 };
  }
  let retryInMs: number | undefined;
  for (const node of nodes) {
    if (!hasRoomFor(node, needs) || !isWanted(node)) continue;
    retryInMs = Math.min(retryInMs ?? Number.POSITIVE_INFINITY, tooLongMs(node));
  }
  return { kind: 'busy', retryInMs };
}

/** A node of 0.3.0 may load the model first, however long that takes: it serves several. */
function isLoadedAt({ models }: NodeSnapshot, { model }: JobNeeds): boolean {
  return model === undefined || models?.get(model)?.isDefault === true;
}

/** The images that are there decide, not an estimate, which a slow image outlasts. */
function isIdle(node: NodeSnapshot): boolean {
  return node.imagesInFlight < node.enginesReady;
}

/**
 * Ejects half of the fleet at most: beyond that the nodes are hardly at fault, and some must work.
 */
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
