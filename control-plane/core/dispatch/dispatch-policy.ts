/**
 * Which node a job goes to. Pure: snapshots in, a choice out; chance and the clock are handed in.
 * The dispatcher runs it, and so does the simulator (bench/dispatch-simulator), unchanged.
 *
 * - Late: a node gets a job only when an engine there would take it about when it arrives. What has
 *   longer to wait waits in the queue, where any node that is free first can take it, and where
 *   turns are still fair.
 * - Early: among the nodes that would take it now, the one that finishes it first by its own
 *   measurements (milliseconds a megapixel and format), so that large images go to fast nodes and
 *   slow nodes still work.
 * - Apart: every node is compared in a small fleet. In a large one CHOICES of them at random, since
 *   replicas with stale views would all pick the same best one (Mitzenmacher, "The Power of Two
 *   Choices in Randomized Load Balancing", 2001); those without a wait go first (Lu et al.,
 *   "Join-Idle-Queue", 2011).
 * - Checked: the header carries the longest wait, and the node refuses at once where its queue has
 *   grown since its last report (after the probes of Ousterhout et al., "Sparrow", 2013).
 */
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import { IMAGE_PIXELS_MAX } from '#contract/limits.ts';
import {
  admittedMegapixels,
  canDo,
  canSurelyDo,
  type JobNeeds,
  type NodeAbility,
} from './job-needs.ts';

/** Up to this size comparing every node costs less than it gains. */
export const FULL_SCAN_NODES_MAX = 15;
/** Nodes compared in a larger fleet. */
export const CHOICES = 2;
/** Draws for them; after as many the fleet counts as nearly full, and every node is compared. */
const DRAWS_MAX = 64;

/**
 * A job may be on its way this long before an engine is free: the claim, the header, the first
 * bytes.
 */
export const LEAD_MS = 50;
/**
 * Share of the time a job has waited that it may wait again on a node: so it gets in even where
 * estimates are wrong or others keep the nodes busy.
 */
const WAITED_SHARE = 0.1;

/** Share of the time since a report that an overdue wait is expected to last on. */
const OVERRUN_SHARE = 0.2;

/** Until a node has measured a format: about a core of a server (AMD EPYC). */
const DECODE_MS_PER_MEGAPIXEL = { jpeg: 20, png: 30, webp: 30, avif: 40, jxl: 70 } as const;
const ENCODE_MS_PER_MEGAPIXEL = {
  png: 80,
  webp: 120,
  avif: 150,
  jxl: 150,
  jpeg: 60,
  zip: 90,
} as const;

/** One node as one replica knows it now, its own attempts included. */
export interface NodeSnapshot extends NodeAbility {
  readonly nodeId: string;
  /** Further images it would admit: its own report less what we have started since. */
  readonly imagesFree: number;
  readonly megapixelsFree: number;
  /** It has refused as many for want of memory since its last report; undefined: it has not. */
  readonly megapixelsRefused: number | undefined;
  /** Admitted there or on their way from here. */
  readonly imagesInFlight: number;
  /** Images in flight that this replica sent. */
  readonly ownImages: number;
  readonly engines: number;
  readonly enginesReady: number;
  /** By its own report: until an engine takes an image admitted at `reportedAtMs`. */
  readonly estimatedWaitMs: number;
  readonly reportedAtMs: number;
  /** Running mean of a run; 0: none yet. */
  readonly inferMs: number;
  /** Running means of the formats measured, then of all. */
  readonly decodeRates: ReadonlyMap<InputFormat, number>;
  readonly encodeRates: ReadonlyMap<OutputFormat, number>;
  readonly decodeMsPerMegapixel: number;
  readonly encodeMsPerMegapixel: number;
  /** Images we have started that its report does not show yet. */
  readonly unreportedImages: number;
  /** False: slow start, it gets one image an engine at a time of us. */
  readonly proven: boolean;
  /** Faults have put it out until then (node-view.ts). */
  readonly ejectedUntilMs: number;
}

export type NodeChoice =
  /** It is to refuse where an engine would not take the job within `waitMsMax`. */
  | { readonly kind: 'picked'; readonly node: NodeSnapshot; readonly waitMsMax: number }
  /** A node that can do it has no room now; `retryInMs` where time alone may change that. */
  | { readonly kind: 'busy'; readonly retryInMs: number | undefined }
  /** Nodes are routable and none of them can ever do it. */
  | { readonly kind: 'incapable' }
  | { readonly kind: 'no-nodes' };

export interface NodeChoiceOptions {
  /** By the clock that snapshots are stamped with. */
  readonly nowMs: number;
  /** Since the job's submission. */
  readonly waitedMs: number;
  /** Boot ids of nodes that said they cannot do this job. */
  readonly excludedBoots?: ReadonlySet<string> | undefined;
  /** Node ids taken only where no other capable node is routable: an attempt failed there. */
  readonly avoidedNodes?: ReadonlySet<string> | undefined;
  /** In [0, 1). */
  readonly random: () => number;
}

/** Whether nodes are routable and none of them can ever do it. */
export function isIncapable(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  excludedBoots?: ReadonlySet<string>,
): boolean {
  if (nodes.length === 0) return false;
  return !nodes.some(node => !excludedBoots?.has(node.bootId) && canDo(node, needs));
}

/** Whether the node has a place for the job, whatever it would wait there. */
export function hasPlace(node: NodeSnapshot, needs: JobNeeds): boolean {
  // No engine ready: they are restarting, and the job is better kept where it can still go
  // elsewhere.
  if (node.enginesReady < 1 || node.imagesFree < 1) return false;
  if (!node.proven && node.ownImages >= node.enginesReady) return false;
  const megapixels = admittedMegapixels(needs);
  if (node.megapixelsRefused !== undefined && megapixels >= node.megapixelsRefused) return false;
  // What an idle node refuses it can never hold, and its refusal says so.
  return node.imagesInFlight <= 0 || megapixels <= node.megapixelsFree;
}

/** Milliseconds until an engine would take one more image, our unreported ones before it. */
export function expectedWaitMs(node: NodeSnapshot, nowMs: number): number {
  const engines = Math.max(1, node.enginesReady);
  const sinceMs = nowMs - node.reportedAtMs;
  const leftMs = node.estimatedWaitMs - sinceMs;
  // What should be over and has not reported its end takes longer than its like.
  const overrunMs = node.estimatedWaitMs > 0 ? OVERRUN_SHARE * sinceMs : 0;
  const reported = leftMs > 0 ? leftMs : overrunMs;
  // As many as there are engines are taken at once where nothing else waits.
  const idle = node.imagesInFlight - node.unreportedImages <= 0 ? engines : 0;
  const ahead = Math.max(0, node.unreportedImages - Math.max(0, idle - 1));
  return reported + (ahead * node.inferMs) / engines;
}

/** Milliseconds of work that the job is for the node, by its own measurements. */
export function workMs(node: NodeSnapshot, needs: JobNeeds): number {
  const { inputFormat, outputFormat, finishing } = needs;
  const pixels = needs.pixels ?? IMAGE_PIXELS_MAX;
  // As nodes measure it: by the larger of picture and result.
  const encoded = Math.max(pixels, finishing?.frame.whole ?? 0);
  const decode =
    node.decodeRates.get(inputFormat) ??
    (node.decodeMsPerMegapixel || DECODE_MS_PER_MEGAPIXEL[inputFormat]);
  const encode =
    node.encodeRates.get(outputFormat) ??
    (node.encodeMsPerMegapixel || ENCODE_MS_PER_MEGAPIXEL[outputFormat]);
  return node.inferMs + (decode * pixels + encode * encoded) / 1e6;
}

/** The longest wait for an engine with which a node may be given the job. */
export function waitMsMax(waitedMs: number): number {
  return LEAD_MS + WAITED_SHARE * Math.max(0, waitedMs);
}

/** @param nodes the routable ones. */
export function pickNode(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  options: NodeChoiceOptions,
): NodeChoice {
  if (nodes.length === 0) return { kind: 'no-nodes' };
  const { excludedBoots, avoidedNodes, nowMs, waitedMs } = options;
  if (isIncapable(nodes, needs, excludedBoots)) return { kind: 'incapable' };
  const waitMax = waitMsMax(waitedMs);
  const tooLongMs = (node: NodeSnapshot) => expectedWaitMs(node, nowMs) - waitMax;
  const out = ejectedNodes(nodes, nowMs);
  const isCapable = (node: NodeSnapshot) => !excludedBoots?.has(node.bootId) && canDo(node, needs);
  const isGood = (node: NodeSnapshot) =>
    !(out.has(node) || avoidedNodes?.has(node.nodeId)) &&
    isCapable(node) &&
    canSurelyDo(node, needs);
  // Where there are no good ones, better these than none.
  const isWanted = nodes.some(isGood) ? isGood : isCapable;
  const mayTake = (node: NodeSnapshot) =>
    hasPlace(node, needs) && isWanted(node) && tooLongMs(node) <= 0;
  const compared = candidates(nodes, mayTake, options);
  if (compared.length > 0) {
    const node = firstToFinish(compared, needs, options);
    return { kind: 'picked', node, waitMsMax: waitMax };
  }
  let retryInMs: number | undefined;
  for (const node of nodes) {
    if (!hasPlace(node, needs) || !isWanted(node)) continue;
    retryInMs = Math.min(retryInMs ?? Number.POSITIVE_INFINITY, tooLongMs(node));
  }
  return { kind: 'busy', retryInMs };
}

/** An engine is free by what is there, not by an estimate, which a slow image outlasts. */
function isIdle(node: NodeSnapshot): boolean {
  return node.imagesInFlight < node.enginesReady;
}

/** Half of the fleet at most: beyond that the nodes are hardly at fault, and some must work. */
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

/** CHOICES of them, each as likely as any other; they are taken out of the list. */
function sample(nodes: NodeSnapshot[], random: () => number): readonly NodeSnapshot[] {
  const count = Math.min(CHOICES, nodes.length);
  return Array.from({ length: count }).flatMap(() =>
    nodes.splice(Math.floor(random() * nodes.length), 1),
  );
}

/** One of them, each as likely as any other. */
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
