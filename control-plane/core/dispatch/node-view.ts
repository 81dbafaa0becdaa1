/**
 * One node as one replica sees it: the node's last report, corrected by what the replica itself has
 * started or ended since. Pure but for what it counts; the clock is handed in. core/nodes/node-link.ts
 * feeds it from the capacity stream, a simulated fleet from its model.
 */
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import type { NodeSnapshot } from './dispatch-policy.ts';

/** What a node is, from its start to its end. */
export interface NodeAbilities
  extends Pick<
    NodeSnapshot,
    | 'nodeId'
    | 'bootId'
    | 'inputFormats'
    | 'outputFormats'
    | 'imagePixelsMax'
    | 'jxlPixelsMax'
    | 'megapixelsAloneMax'
    | 'engines'
  > {
  /** Admitted at once. */
  readonly imagesMax: number;
  /** The sum admitted at once; a single larger image may be admitted alone. */
  readonly megapixelsMax: number;
}

/** A node's report of its load. */
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
  /** The same by format, for those measured. */
  readonly decodeRates: ReadonlyMap<InputFormat, number>;
  readonly encodeRates: ReadonlyMap<OutputFormat, number>;
}

/** offered: header sent. admitted: not in a report yet. shown: in the node's own numbers. */
type Phase = 'offered' | 'admitted' | 'shown' | 'ended';

/** Of a node that refused an image: for every image, or for those that are as large. */
export type Fullness = 'for-all' | 'for-its-size';

/** Room taken on a node for one attempt. */
export interface Reservation {
  readonly megapixels: number;
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
  #trust: NodeTrust = NEW_NODE;
  #snapshot: NodeSnapshot | undefined;

  constructor(abilities: NodeAbilities) {
    this.abilities = abilities;
  }

  take(report: NodeReport, nowMs: number): void {
    this.#report = report;
    this.#reportedAtMs = nowMs;
    this.#freedImages = 0;
    this.#freedMegapixels = 0;
    this.#fullUntilReport = false;
    this.#megapixelsRefused = undefined;
    for (const held of this.#reservations) if (held.phase === 'admitted') held.phase = 'shown';
    this.#snapshot = undefined;
  }

  /** Its stream has ended: it is not to be had until it reports again. */
  lost(): void {
    this.#report = undefined;
    this.#snapshot = undefined;
  }

  reserve(megapixels: number): Reservation {
    const held: Reservation = { megapixels, phase: 'offered' };
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
    if (full === 'for-all') this.#fullUntilReport = true;
    if (full === 'for-its-size') {
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
    // A report that crossed an attempt's end counts it as freed already; ours are never more than
    // this.
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
    const { decodeRates, encodeRates, decodeMsPerMegapixel, encodeMsPerMegapixel } = report;
    return {
      ...abilities,
      imagesFree: this.#fullUntilReport ? 0 : imagesFree,
      megapixelsRefused: this.#megapixelsRefused,
      megapixelsFree:
        imagesInFlight > 0
          ? Math.min(reportedFree, megapixelsMax) - unreportedMegapixels
          : reportedFree,
      imagesInFlight,
      ownImages: this.#reservations.size,
      enginesReady: report.enginesReady,
      estimatedWaitMs: report.estimatedWaitMs,
      reportedAtMs: this.#reportedAtMs,
      inferMs: report.inferMs,
      decodeRates,
      encodeRates,
      decodeMsPerMegapixel,
      encodeMsPerMegapixel,
      unreportedImages: unreported.length,
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
 * How far a node is trusted by what became of its attempts: a record and an outcome in, the next
 * record out. Whether an ejection is obeyed is dispatch-policy.ts's, which never leaves out more
 * than half of a fleet.
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
  /** Not long ago. */
  readonly ejections: number;
  /** 0: never. */
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

/**
 * @param outcome well: the node did its part, an image at fault included. fault: it lost the
 *   attempt, broke the protocol, did not answer. Refusals for want of room are neither.
 */
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

/** With one more outcome, in a window that is not over. */
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
