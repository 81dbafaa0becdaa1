/**
 * One node as one replica sees it (its last report, corrected by what the replica has started or
 * ended since), how far it is trusted, and which node a job goes to. The clock is handed in.
 */
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import { IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import type { Selectable, Selectables } from '../models/selectable.ts';
import {
  admittedMegapixels,
  canDo,
  canSurelyDo,
  type JobNeeds,
  type NodeAbility,
} from './job-needs.ts';
import { costsAt, hasPlaceForOthers, isOther, loadWait, type ModelLoad } from './model-costs.ts';

export interface NodeAbilities extends NodeAbility {
  readonly nodeId: string;
  /** Absent: not known. */
  readonly registeredAtMs?: number;
  readonly engines: number;
  readonly imagesMax: number;
  /** The sum admitted at once; a single larger image may be admitted alone. */
  readonly megapixelsMax: number;
}

export interface NodeReport {
  readonly imagesInFlight: number;
  readonly imagesFree: number;
  readonly megapixelsFree: number;
  readonly enginesReady: number;
  /** For an image admitted now, until an engine takes it. */
  readonly estimatedWaitMs: number;
  /** Running mean of a run; 0: none yet. */
  readonly inferMs: number;
  /** Running means over all formats; 0: none yet. */
  readonly decodeMsPerMegapixel: number;
  readonly encodeMsPerMegapixel: number;
  readonly decodeRates: ReadonlyMap<InputFormat, number>;
  readonly encodeRates: ReadonlyMap<OutputFormat, number>;
  /** Of models beside the node's own plan that are loaded or loading; absent: none is. */
  readonly loads?: ReadonlyMap<string, ModelLoad>;
}

/** offered: header sent. admitted: not in a report yet. shown: in the node's own numbers. */
type Phase = 'offered' | 'admitted' | 'shown' | 'ended';

/** Of a node that refused an image: for every image, or for those that are as large. */
export type Fullness = 'for-all' | 'for-its-size';

export interface Reservation {
  readonly megapixels: number;
  /** What its job names; undefined: the node's own plan. */
  readonly other: string | undefined;
  phase: Phase;
}

export class NodeView {
  readonly abilities: NodeAbilities;
  readonly #reservations = new Set<Reservation>();
  #report: NodeReport | undefined;
  #reportedAtMs = 0;
  /** Ended since the last report, which still counts them. */
  #freedImages = 0;
  #freedMegapixels = 0;
  #fullUntilReport = false;
  /** The least that it has refused for its size since its last report. */
  #megapixelsRefused: number | undefined;
  /** Models beside its own plan that it has refused since its last report. */
  #othersRefused = new Set<string>();
  #trust: NodeTrust = NEW_NODE;
  #models: Selectables | undefined;
  #snapshot: NodeSnapshot | undefined;

  constructor(abilities: NodeAbilities) {
    this.abilities = abilities;
    this.#models = abilities.models;
  }

  /** What a job may name there from now on. */
  offerModels(models: Selectables): void {
    this.#models = models;
    this.#snapshot = undefined;
  }

  model(name: string): Selectable | undefined {
    return this.#models?.get(name);
  }

  take(report: NodeReport, nowMs: number): void {
    this.#report = report;
    this.#reportedAtMs = nowMs;
    this.#freedImages = 0;
    this.#freedMegapixels = 0;
    this.#fullUntilReport = false;
    this.#megapixelsRefused = undefined;
    this.#othersRefused = new Set();
    for (const held of this.#reservations) if (held.phase === 'admitted') held.phase = 'shown';
    this.#snapshot = undefined;
  }

  /** Its stream has ended: it is not to be had until it reports again. */
  lost(): void {
    this.#report = undefined;
    this.#snapshot = undefined;
  }

  reserve(megapixels: number, model?: string): Reservation {
    const isOwn = model === undefined || this.#models?.get(model)?.isDefault === true;
    const other = isOwn ? undefined : model;
    const held: Reservation = { megapixels, other, phase: 'offered' };
    this.#reservations.add(held);
    this.#snapshot = undefined;
    return held;
  }

  admitted(held: Reservation): void {
    if (held.phase === 'offered') held.phase = 'admitted';
  }

  /** @param full it refused for now, until its next report; undefined: it did not. */
  end(held: Reservation, full: Fullness | undefined): void {
    if (held.phase === 'shown') {
      this.#freedImages += 1;
      this.#freedMegapixels += held.megapixels;
    }
    held.phase = 'ended';
    this.#reservations.delete(held);
    // It may be their engines that had no room: its own plan's have theirs.
    if (held.other !== undefined) {
      if (full !== undefined) this.#othersRefused.add(held.other);
    } else if (full === 'for-all') this.#fullUntilReport = true;
    else if (full === 'for-its-size') {
      this.#megapixelsRefused = Math.min(held.megapixels, this.#megapixelsRefused ?? Infinity);
    }
    this.#snapshot = undefined;
  }

  judge(outcome: 'well' | 'fault', nowMs: number): void {
    this.#trust = judged(this.#trust, outcome, nowMs);
    this.#snapshot = undefined;
  }

  /** Undefined until it has reported. The same object until something changes. */
  snapshot(): NodeSnapshot | undefined {
    this.#snapshot ??= this.#report && this.#compute(this.#report);
    return this.#snapshot;
  }

  #compute(report: NodeReport): NodeSnapshot {
    const { imagesMax, megapixelsMax, ...abilities } = this.abilities;
    const unreported = [...this.#reservations].filter(held => held.phase !== 'shown');
    // A report that crossed an attempt's end counts it as freed; ours are never more than this.
    const imagesFree = Math.min(
      report.imagesFree + this.#freedImages - unreported.length,
      imagesMax - this.#reservations.size,
    );
    const imagesInFlight = Math.max(
      report.imagesInFlight - this.#freedImages + unreported.length,
      this.#reservations.size,
    );
    // An empty node reports room for the one large image it would take alone.
    const reportedFree = report.megapixelsFree + this.#freedMegapixels;
    const unreportedMegapixels = unreported.reduce((sum, held) => sum + held.megapixels, 0);
    return {
      ...abilities,
      ...report,
      ...(this.#models && { models: this.#models }),
      imagesFree: this.#fullUntilReport ? 0 : imagesFree,
      megapixelsRefused: this.#megapixelsRefused,
      megapixelsFree:
        imagesInFlight > 0
          ? Math.min(reportedFree, megapixelsMax) - unreportedMegapixels
          : reportedFree,
      imagesInFlight,
      ownImages: this.#reservations.size,
      reportedAtMs: this.#reportedAtMs,
      unreportedImages: unreported.length,
      unreportedOthers: unreported.flatMap(({ other = [] }) => other),
      othersRefused: this.#othersRefused,
      ownOthers: [...this.#reservations].filter(({ other }) => other !== undefined).length,
      proven: isProven(this.#trust),
      ejectedUntilMs: this.#trust.ejectedUntilMs,
    };
  }
}

/** Images a node must finish before it gets more than its engines work on. */
export const PROVEN_SUCCESSES = 5;
export const FAULTS_IN_A_ROW_MAX = 5;
/** Outcomes are judged by halves over this long, once there are as many as the minimum. */
export const WINDOW_MS = 30_000;
export const WINDOW_OUTCOMES_MIN = 10;
const WINDOW_FAULTS_SHARE = 0.5;
export const EJECTION_MS = 30_000;
export const EJECTION_MS_MAX = 300_000;
/** Ejections before this long a good time are forgotten. */
const EJECTIONS_FORGOTTEN_MS = 600_000;

/**
 * How far a node is trusted by what became of its attempts.
 *
 * | state   | entered                         | does                       | left                  |
 * |---------|---------------------------------|----------------------------|-----------------------|
 * | new     | a boot; an ejection's end       | one image an engine at     | PROVEN_SUCCESSES      |
 * |         |                                 | once (slow start)          | images done: proven   |
 * | proven  | PROVEN_SUCCESSES images done    | all that it admits         | ejected               |
 * | ejected | FAULTS_IN_A_ROW_MAX faults, or  | nothing                    | after EJECTION_MS     |
 * |         | half of a window's outcomes     |                            | times its ejections,  |
 * |         |                                 |                            | EJECTION_MS_MAX: new  |
 *
 * After the outlier detection of Envoy and gRPC (gRFC A50), without its floor of five hosts.
 */
export interface NodeTrust {
  /** Since the boot or the last ejection; PROVEN_SUCCESSES at most. */
  readonly successes: number;
  readonly faultsInARow: number;
  readonly windowStartMs: number;
  readonly windowOutcomes: number;
  readonly windowFaults: number;
  readonly ejections: number;
  readonly ejectedUntilMs: number;
}

export const NEW_NODE: NodeTrust = Object.freeze({
  successes: 0,
  faultsInARow: 0,
  windowStartMs: 0,
  windowOutcomes: 0,
  windowFaults: 0,
  ejections: 0,
  ejectedUntilMs: 0,
});

/** well: the node did its part. fault: it lost the attempt, broke the protocol, did not answer. */
export function judged(trust: NodeTrust, outcome: 'well' | 'fault', nowMs: number): NodeTrust {
  // What was begun before an ejection ends under it, and is part of what it was ejected for.
  if (nowMs < trust.ejectedUntilMs) return trust;
  const counted = inWindow(trust, nowMs);
  if (outcome === 'well') {
    return {
      ...counted,
      successes: Math.min(PROVEN_SUCCESSES, trust.successes + 1),
      faultsInARow: 0,
    };
  }
  const faultsInARow = trust.faultsInARow + 1;
  const windowFaults = counted.windowFaults + 1;
  const halfFailed =
    counted.windowOutcomes >= WINDOW_OUTCOMES_MIN &&
    windowFaults >= WINDOW_FAULTS_SHARE * counted.windowOutcomes;
  if (faultsInARow >= FAULTS_IN_A_ROW_MAX || halfFailed) return ejected(trust, nowMs);
  return { ...counted, faultsInARow, windowFaults };
}

export function isProven(trust: NodeTrust): boolean {
  return trust.successes >= PROVEN_SUCCESSES;
}

function inWindow(trust: NodeTrust, nowMs: number): NodeTrust {
  if (trust.windowOutcomes > 0 && nowMs - trust.windowStartMs < WINDOW_MS) {
    return { ...trust, windowOutcomes: trust.windowOutcomes + 1 };
  }
  return { ...trust, windowStartMs: nowMs, windowOutcomes: 1, windowFaults: 0 };
}

function ejected(trust: NodeTrust, nowMs: number): NodeTrust {
  const longAgo = nowMs - trust.ejectedUntilMs > EJECTIONS_FORGOTTEN_MS;
  const ejections = (longAgo ? 0 : trust.ejections) + 1;
  const lengthMs = Math.min(EJECTION_MS_MAX, EJECTION_MS * ejections);
  return { ...NEW_NODE, ejections, ejectedUntilMs: nowMs + lengthMs };
}

/*
 * Which node a job goes to.
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

/** Up to this size comparing every node costs less than it gains. */
export const FULL_SCAN_NODES_MAX = 15;
const CHOICES = 2;
/** After as many draws the fleet counts as nearly full, and every node is compared. */
const DRAWS_MAX = 64;

/** How long before an engine is free a job may be sent: claim, header, first bytes take as long. */
export const LEAD_MS = 50;
/** Share of the time a job has waited that it may wait again on a node. */
const WAITED_SHARE = 0.1;
/** Share of the time since a report that an overdue wait is expected to last on. */
const OVERRUN_SHARE = 0.2;

/** Until a node has measured a format: about a core of a server (AMD EPYC). */
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

export interface NodeSnapshot extends NodeAbility, NodeReport {
  readonly nodeId: string;
  readonly registeredAtMs?: number;
  readonly engines: number;
  /** It has refused as many for want of memory since its last report; undefined: it has not. */
  readonly megapixelsRefused: number | undefined;
  readonly ownImages: number;
  readonly reportedAtMs: number;
  /** Started here, and not in its report yet. */
  readonly unreportedImages: number;
  /** What those of them name that name another than its own plan; absent: none. */
  readonly unreportedOthers?: readonly string[];
  /** How many of `ownImages` do; absent: none. */
  readonly ownOthers?: number;
  readonly othersRefused?: ReadonlySet<string>;
  /** False: slow start, it gets one image an engine at a time of us. */
  readonly proven: boolean;
  readonly ejectedUntilMs: number;
}

type NodeChoice =
  /** It is to refuse where an engine would not take the job within `waitMsMax`. */
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

export function isIncapable(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  excludedBoots?: ReadonlySet<string>,
): boolean {
  if (nodes.length === 0) return false;
  return !nodes.some(node => !excludedBoots?.has(node.bootId) && canDo(node, needs));
}

/** Whether it has room for the job, whatever the wait there. */
export function hasRoomFor(node: NodeSnapshot, needs: JobNeeds): boolean {
  // Engines that restart: the job can still go elsewhere.
  if (node.enginesReady < 1 || node.imagesFree < 1) return false;
  if (!node.proven && node.ownImages >= node.enginesReady) return false;
  if (isOther(node, needs) && !hasPlaceForOthers(node, needs)) return false;
  const megapixels = admittedMegapixels(needs);
  if (node.megapixelsRefused !== undefined && megapixels >= node.megapixelsRefused) return false;
  // What an idle node refuses it can never hold, and its refusal says so.
  return node.imagesInFlight <= 0 || megapixels <= node.megapixelsFree;
}

/**
 * Of the nodes that lack memory for the job, and nothing else, the first by its id: every replica
 * finds the same one. Undefined: one of the nodes has room for it, or none would have.
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

/** Milliseconds until an engine would take one more image, our unreported ones before it. */
export function expectedWaitMs(
  node: NodeSnapshot,
  nowMs: number,
  needs: Pick<JobNeeds, 'model'> = {},
): number {
  const { enginesReady, estimatedWaitMs, inferMs, unreportedImages } = costsAt(node, needs);
  const engines = Math.max(1, enginesReady);
  const sinceMs = nowMs - node.reportedAtMs;
  const leftMs = estimatedWaitMs - sinceMs;
  // What should be over and has not reported its end takes longer than its like.
  const overrunMs = estimatedWaitMs > 0 ? OVERRUN_SHARE * sinceMs : 0;
  const reported = leftMs > 0 ? leftMs : overrunMs;
  // As many as there are engines are taken at once where nothing else waits.
  const idle = node.imagesInFlight - node.unreportedImages <= 0 ? engines : 0;
  const ahead = Math.max(0, unreportedImages - Math.max(0, idle - 1));
  return reported + (ahead * inferMs) / engines;
}

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
  return costsAt(node, needs).inferMs + (decode * pixels + encode * encoded) / 1e6;
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
  const waitMs = (node: NodeSnapshot) => expectedWaitMs(node, nowMs, needs);
  const out = ejectedNodes(nodes, nowMs);
  const isCapable = (node: NodeSnapshot) => !excludedBoots?.has(node.bootId) && canDo(node, needs);
  const isGood = (node: NodeSnapshot) =>
    !(out.has(node) || avoidedNodes?.has(node.nodeId)) &&
    isCapable(node) &&
    canSurelyDo(node, needs);
  // Where there are no good ones, better these than none.
  const isWanted = nodes.some(isGood) ? isGood : isCapable;
  const loadsInMs = loadWait(needs, { able: () => nodes.filter(isWanted), waitedMs, waitMs });
  const tooLongMs = (node: NodeSnapshot) => Math.max(waitMs(node) - waitMax, loadsInMs(node));
  const mayTake = (node: NodeSnapshot) =>
    hasRoomFor(node, needs) && isWanted(node) && tooLongMs(node) <= 0;
  // One that has the model counts for more than one that is idle.
  const isNamed = needs.model !== undefined;
  const compared = isNamed ? nodes.filter(mayTake) : candidates(nodes, mayTake, options);
  if (compared.length > 0) {
    const node = firstToFinish(compared, needs, options);
    // What is not loaded is loaded first, however long that takes.
    const loads = costsAt(node, needs).loadMs > 0;
    return { kind: 'picked', node, waitMsMax: loads ? 0 : waitMax };
  }
  let retryInMs: number | undefined;
  for (const node of nodes) {
    if (!hasRoomFor(node, needs) || !isWanted(node)) continue;
    retryInMs = Math.min(retryInMs ?? Number.POSITIVE_INFINITY, tooLongMs(node));
  }
  return { kind: 'busy', retryInMs };
}

/**
 * By what is there, not by an estimate, which a slow image outlasts. Images of other models have
 * engines of their own.
 */
function isIdle(node: NodeSnapshot): boolean {
  return node.imagesInFlight - (node.ownOthers ?? 0) < node.enginesReady;
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
    const { loadMs } = costsAt(node, needs);
    const finishMs = expectedWaitMs(node, nowMs, needs) + loadMs + workMs(node, needs);
    const order = [finishMs, node.unreportedImages - node.imagesFree] as const;
    const difference = order[0] - bestOrder[0] || order[1] - bestOrder[1];
    if (best.length > 0 && difference > 0) continue;
    best = best.length > 0 && difference === 0 ? [...best, node] : [node];
    bestOrder = order;
  }
  return drawn(best, random);
}
