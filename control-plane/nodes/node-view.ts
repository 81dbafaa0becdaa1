/**
 * A node as one replica sees it: its last report, corrected by what the replica has started or
 * ended since. The clock is handed in.
 */
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import { isProven, judged, NEW_NODE, type NodeTrust } from './node-trust.ts';
import type { Selectable, Selectables } from './selectable.ts';

export interface NodeAbility {
  /** The id is of that start of the node's process. */
  readonly bootId: string;
  readonly inputFormats: ReadonlySet<InputFormat>;
  readonly outputFormats: ReadonlySet<OutputFormat>;
  readonly imagePixelsMax: number;
  /** For a JPEG XL input or output; 0: it takes none. */
  readonly jxlPixelsMax: number;
  /** The largest that it admits while nothing else is there, as `admittedMegapixels` counts. */
  readonly megapixelsAloneMax: number;
  /**
   * A job may name these here: the node has the sums that their names stand for; absent: nothing.
   */
  readonly models?: Selectables;
  /** It serves another plan than jobs without a name get; absent: false. */
  readonly onlyByName?: boolean;
  /** Capabilities that it follows; absent: none. */
  readonly capabilities?: ReadonlySet<string>;
}

export interface NodeAbilities extends NodeAbility {
  readonly nodeId: string;
  /** If it is absent, it is not known. */
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
  /** An image that is admitted now waits so long until an engine takes it. */
  readonly estimatedWaitMs: number;
  /** Running mean of a run; 0: none yet. */
  readonly inferMs: number;
  /** Running means over all formats; 0: none yet. */
  readonly decodeMsPerMegapixel: number;
  readonly encodeMsPerMegapixel: number;
  readonly decodeRates: ReadonlyMap<InputFormat, number>;
  readonly encodeRates: ReadonlyMap<OutputFormat, number>;
}

/** offered: header sent. admitted: not in a report yet. shown: in the node's own numbers. */
type Phase = 'offered' | 'admitted' | 'shown' | 'ended';

/** A node that refused an image is full for every image, or for those that are as large. */
export type Fullness = 'for-all' | 'for-its-size';

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
  #models: Selectables | undefined;
  #snapshot: NodeSnapshot | undefined;

  constructor(abilities: NodeAbilities) {
    this.abilities = abilities;
    this.#models = abilities.models;
  }

  /** Sets what a job may name there from now on. */
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
    for (const held of this.#reservations) if (held.phase === 'admitted') held.phase = 'shown';
    this.#snapshot = undefined;
  }

  /** The node's stream has ended: it gets nothing until it reports again. */
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
      proven: isProven(this.#trust),
      ejectedUntilMs: this.#trust.ejectedUntilMs,
    };
  }
}

export interface NodeSnapshot extends NodeAbility, NodeReport {
  readonly nodeId: string;
  readonly registeredAtMs?: number;
  readonly engines: number;
  /** Megapixels that it refused for want of memory since its last report; undefined: none. */
  readonly megapixelsRefused: number | undefined;
  readonly ownImages: number;
  readonly reportedAtMs: number;
  /** Started here, and not in its report yet. */
  readonly unreportedImages: number;
  /** False: slow start, it gets one image an engine at a time of us. */
  readonly proven: boolean;
  readonly ejectedUntilMs: number;
}
