/**
 * An inference node as its peers see it: it admits within its places and the header's bound, works
 * through its images in order, and reports when something changes, at most every 20 ms, and every
 * second, with an estimate made of what it has measured, not of what will be.
 */

import type {
  NodeAbilities,
  NodeReport,
} from '../../control-plane/core/dispatch/dispatch-policy.ts';
import type { InputFormat, OutputFormat } from '../../proto/contract/formats.ts';
import type { EventQueue } from './event-queue.ts';
import {
  DECODE_MS_PER_MEGAPIXEL,
  ENCODE_MS_PER_MEGAPIXEL,
  inferMs,
  type NodeKind,
  type SimulatedJob,
  serviceMs,
} from './workload.ts';

const CHANGE_INTERVAL_MS = 20;
const REPEAT_INTERVAL_MS = 1000;
/** Images admitted beyond those in work, as a node with engines + 2 picture workers has. */
const PLACES_BESIDE_ENGINES = 3;
const MEGAPIXELS_MAX = 400;
/** For an image that outlasts its mean (inference-node/serving/picture/pool/picture-pool.ts). */
const OVERRUN_SHARE = 0.2;
/** More than a node ever holds. */
const VANISH_LISTENERS_MAX = 16;

interface Running {
  readonly job: SimulatedJob;
  readonly startedMs: number;
}

export class SimulatedNode {
  readonly abilities: NodeAbilities;
  readonly slowness: number;
  readonly #events: EventQueue;
  readonly #engines: number;
  readonly #onAdmitted: (job: SimulatedJob) => void;
  readonly #running = new Set<Running>();
  readonly #waiting: { readonly job: SimulatedJob; readonly begin: () => void }[] = [];
  readonly #rates: Pick<NodeReport, 'decodeRates' | 'encodeRates'>;
  /** Receives every report; set before anything happens. */
  onReport: (report: NodeReport) => void = () => undefined;
  readonly #vanishListeners: (() => void)[] = [];
  #drained: (() => void) | undefined;
  #gone = false;
  #reportedAtMs = Number.NEGATIVE_INFINITY;
  #reportDue = false;

  /** @param onAdmitted called with each image */
  constructor(
    index: number,
    { slowness, engines }: NodeKind,
    events: EventQueue,
    onAdmitted: (job: SimulatedJob) => void = () => undefined,
  ) {
    this.#onAdmitted = onAdmitted;
    this.slowness = slowness;
    this.#engines = engines;
    this.#events = events;
    this.abilities = {
      nodeId: `node-${index}`,
      bootId: `boot-${index}`,
      inputFormats: new Set<InputFormat>(['jpeg', 'png', 'webp']),
      outputFormats: new Set<OutputFormat>(['png', 'webp', 'avif']),
      imagePixelsMax: 100_000_000,
      jxlPixelsMax: 0,
      megapixelsAloneMax: MEGAPIXELS_MAX,
      engines,
      imagesMax: engines + PLACES_BESIDE_ENGINES,
      megapixelsMax: MEGAPIXELS_MAX,
    };
    this.#rates = {
      decodeRates: scaled(DECODE_MS_PER_MEGAPIXEL, slowness),
      encodeRates: scaled(ENCODE_MS_PER_MEGAPIXEL, slowness),
    };
  }

  /** Its report at once, then every second. */
  start(): void {
    this.#report();
    // Not all of them in one instant.
    const phaseMs = REPEAT_INTERVAL_MS * ((Number(this.abilities.nodeId.slice(5)) % 97) / 97);
    this.#events.in(phaseMs, () => this.#repeat());
  }

  /** Its machine is gone, with all that it held. */
  vanish(): void {
    this.#gone = true;
    for (const listener of this.#vanishListeners) listener();
  }

  /** It takes nothing more, finishes what it has, and is gone: `ended` is called then. */
  drain(ended: () => void): void {
    this.#drained = ended;
    this.#endIfDone();
  }

  get draining(): boolean {
    return this.#drained !== undefined;
  }

  #endIfDone(): void {
    if (this.#drained === undefined || this.#inFlight > 0 || this.#gone) return;
    this.#gone = true;
    this.#drained();
  }

  onVanish(listener: () => void): void {
    this.#vanishListeners.push(listener);
    // Listeners of images that are long done are of no use.
    if (this.#vanishListeners.length > VANISH_LISTENERS_MAX) this.#vanishListeners.shift();
  }

  get gone(): boolean {
    return this.#gone;
  }

  /** False: refused. `ended` is called with the instant an engine took it. */
  admit(job: SimulatedJob, waitMsMax: number, ended: (startedMs: number) => void): boolean {
    if (this.draining || this.#inFlight >= this.abilities.imagesMax) return false;
    if (this.#estimatedWaitMs() > waitMsMax) return false;
    this.#onAdmitted(job);
    this.#waiting.push({ job, begin: () => this.#run(job, ended) });
    this.#next();
    this.#changed();
    return true;
  }

  get #inFlight(): number {
    return this.#running.size + this.#waiting.length;
  }

  #next(): void {
    while (this.#running.size < this.#engines) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      next.begin();
    }
  }

  #run(job: SimulatedJob, ended: (startedMs: number) => void): void {
    const running = { job, startedMs: this.#events.nowMs };
    this.#running.add(running);
    this.#events.in(serviceMs(job, this.slowness), () => {
      if (this.#gone) return;
      this.#running.delete(running);
      ended(running.startedMs);
      this.#next();
      this.#changed();
      this.#endIfDone();
    });
  }

  /** As a node makes it: each engine's rest by the means, then the line in its order. */
  #estimatedWaitMs(): number {
    const { nowMs } = this.#events;
    const freeIn = Array.from({ length: this.#engines - this.#running.size }, () => 0);
    for (const { job, startedMs } of this.#running) {
      const elapsedMs = nowMs - startedMs;
      freeIn.push(Math.max(OVERRUN_SHARE * elapsedMs, this.#expectedMs(job) - elapsedMs));
    }
    for (const { job } of this.#waiting) {
      const firstMs = Math.min(...freeIn);
      freeIn[freeIn.indexOf(firstMs)] = firstMs + this.#expectedMs(job);
    }
    return Math.min(...freeIn);
  }

  #expectedMs(job: SimulatedJob): number {
    return serviceMs({ ...job, luck: 1 }, this.slowness);
  }

  #repeat(): void {
    if (this.#gone) return;
    this.#report();
    this.#events.in(REPEAT_INTERVAL_MS, () => this.#repeat());
  }

  #changed(): void {
    if (this.#reportDue) return;
    this.#reportDue = true;
    const sinceMs = this.#events.nowMs - this.#reportedAtMs;
    this.#events.in(Math.max(0, CHANGE_INTERVAL_MS - sinceMs), () => {
      this.#reportDue = false;
      if (!this.#gone) this.#report();
    });
  }

  #report(): void {
    this.#reportedAtMs = this.#events.nowMs;
    const inFlight = this.#inFlight;
    this.onReport({
      imagesInFlight: inFlight,
      imagesFree: this.abilities.imagesMax - inFlight,
      megapixelsFree: MEGAPIXELS_MAX,
      enginesReady: this.#engines,
      estimatedWaitMs: this.#estimatedWaitMs(),
      inferMs: inferMs(this.slowness),
      decodeMsPerMegapixel: 0,
      encodeMsPerMegapixel: 0,
      ...this.#rates,
    });
  }
}

function scaled<F extends string>(
  rates: Record<F, number>,
  factor: number,
): ReadonlyMap<F, number> {
  const entries = Object.entries(rates) as [F, number][];
  return new Map(entries.map(([format, rate]) => [format, rate * factor]));
}
