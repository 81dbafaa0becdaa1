/** A node's last report, corrected by the attempts that this replica has begun or ended since. */
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import { isProven, judged, NEW_NODE, type NodeTrust } from './node-trust.ts';
import type { Selectable, Selectables } from './selectable.ts';

export interface NodeAbility {
  readonly bootId: string;
  readonly inputFormats: ReadonlySet<InputFormat>;
  readonly outputFormats: ReadonlySet<OutputFormat>;
  readonly imagePixelsMax: number;
  /** For JPEG XL input or output. 0: not supported. */
  readonly jxlPixelsMax: number;
  /** The largest image that an empty node admits, as `admittedMegapixels` counts. */
  readonly megapixelsAloneMax: number;
  /** Plans and models that a job may name on this node. */
  readonly models?: Selectables;
  /** Its own plan is not the default, so it gets only jobs that name a plan or model. */
  readonly onlyByName?: boolean;
  readonly capabilities?: ReadonlySet<string>;
}

export interface NodeAbilities extends NodeAbility {
  readonly nodeId: string;
  /** Absent: unknown. */
  readonly registeredAtMs?: number;
  readonly engines: number;
  readonly imagesMax: number;
  /** A single larger image may be admitted alone. */
  readonly megapixelsMax: number;
}

export interface NodeReport {
  readonly imagesInFlight: number;
  readonly imagesFree: number;
  readonly megapixelsFree: number;
  readonly enginesReady: number;
  /** Wait of a newly admitted image for an engine. */
  readonly estimatedWaitMs: number;
  /** Running mean. 0: no run yet. */
  readonly inferMs: number;
  /** Running means over all formats. 0: none yet. */
  readonly decodeMsPerMegapixel: number;
  readonly encodeMsPerMegapixel: number;
  readonly decodeRates: ReadonlyMap<InputFormat, number>;
  readonly encodeRates: ReadonlyMap<OutputFormat, number>;
}

/** offered: header sent. admitted: not in a report yet. shown: in the node's own numbers. */
type Phase = 'offered' | 'admitted' | 'shown' | 'ended';

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
  #freedImages = 0;
  #freedMegapixels = 0;
  #fullUntilReport = false;
  #megapixelsRefused: number | undefined;
  #trust: NodeTrust = NEW_NODE;
  #models: Selectables | undefined;
  #snapshot: NodeSnapshot | undefined;

  constructor(abilities: NodeAbilities) {
    this.abilities = abilities;
    this.#models = abilities.models;
  }

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

  /** The stream has ended: the node gets nothing until it reports again. */
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

  /** undefined until the node has reported. Returns the same object until something changes. */
  snapshot(): NodeSnapshot | undefined {
    this.#snapshot ??= this.#report && this.#compute(this.#report);
    return this.#snapshot;
  }

  #compute(report: NodeReport): NodeSnapshot {
    const { imagesMax, megapixelsMax, ...abilities } = this.abilities;
    const unreported = [...this.#reservations].filter(held => held.phase !== 'shown');
    // A report that crossed the end of an attempt may count its slot as free twice. Our own
    // attempts bound the sum.
    const imagesFree = Math.min(
      report.imagesFree + this.#freedImages - unreported.length,
      imagesMax - this.#reservations.size,
    );
    const imagesInFlight = Math.max(
      report.imagesInFlight - this.#freedImages + unreported.length,
      this.#reservations.size,
    );
    // Only an empty node reports room for one image above `megapixelsMax`.
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
  /** Smallest image refused for lack of memory since the last report. undefined: none. */
  readonly megapixelsRefused: number | undefined;
  readonly ownImages: number;
  readonly reportedAtMs: number;
  /** Begun here and not yet in the node's report. */
  readonly unreportedImages: number;
  /** False: slow start, one image an engine at a time. */
  readonly proven: boolean;
  readonly ejectedUntilMs: number;
}
