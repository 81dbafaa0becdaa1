/**
 * One node as one replica sees it: the node's last report, corrected by what the replica itself has
 * started or ended since. Pure but for what it counts; the clock is handed in. nodes/node-link.ts
 * feeds it from the capacity stream, a simulated fleet from its model.
 */
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import type { NodeSnapshot } from './dispatch-policy.ts';
import { isProven, judged, NEW_NODE, type NodeTrust } from './node-trust.ts';

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
