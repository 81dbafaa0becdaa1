/**
 * An inference node as its peers see it: it admits within its places and the header's bound, works
 * through its images in order, and reports when something changes, at most every 20 ms, and every
 * second, with an estimate made of what it has measured, not of what will be.
 */

import { admittedMegapixels } from '../../control-plane/core/dispatch/job-needs.ts';
import type { NodeAbilities, NodeReport } from '../../control-plane/nodes/node-view.ts';
import type { Selectable, Selectables } from '../../control-plane/nodes/selectable.ts';
import { workerWaitMs } from '../../inference-node/serving/picture/pool/picture-pool.ts';
import type { InputFormat, OutputFormat } from '../../proto/contract/formats.ts';
import type { EventQueue } from './event-queue.ts';
import {
  DECODE_MS_PER_MEGAPIXEL,
  ENCODE_MS_PER_MEGAPIXEL,
  HEAVY,
  inferMs,
  type NodeKind,
  type SimulatedJob,
  serviceMs,
} from './workload.ts';

const CHANGE_INTERVAL_MS = 20;
const REPEAT_INTERVAL_MS = 1000;
/** Images admitted beyond those in work, as a node with engines + 1 picture workers has. */
const PLACES_BESIDE_ENGINES = 2;
const PLENTY = { megapixelsMax: 400, megapixelsAloneMax: 400 } as const;
/** More than a node ever holds. */
const VANISH_LISTENERS_MAX = 16;

/** The engines of one model, and what waits for them. */
interface Line {
  readonly engines: number;
  readonly readyAtMs: number;
  readonly running: Set<Running>;
  readonly waiting: { readonly job: SimulatedJob; readonly begin: () => void }[];
}

const TERMS = { commercialUse: 'yes', reason: '', source: '' };
const SAID: Selectable = {
  ...{ name: HEAVY.name, kind: 'model', isDefault: false, sha256: 'a', loadMs: HEAVY.loadMs },
  ...{ memoryBytes: 0, goodFor: '', weights: TERMS, trainingData: TERMS },
};
const MODELS: Selectables = new Map([[HEAVY.name, SAID]]);

interface Running {
  readonly job: SimulatedJob;
  readonly startedMs: number;
}

export class SimulatedNode {
  readonly abilities: NodeAbilities;
  readonly slowness: number;
  readonly #events: EventQueue;
  readonly #own: Line;
  readonly #others = new Map<string, Line>();
  readonly #rates: Pick<NodeReport, 'decodeRates' | 'encodeRates'>;
  /** Receives every report; set before anything happens. */
  onReport: (report: NodeReport) => void = () => undefined;
  readonly #vanishListeners: (() => void)[] = [];
  #gone = false;
  #reportedAtMs = Number.NEGATIVE_INFINITY;
  #reportDue = false;

  constructor(index: number, { slowness, engines, memory = PLENTY }: NodeKind, events: EventQueue) {
    this.slowness = slowness;
    this.#own = lineOf(engines, 0);
    this.#events = events;
    this.abilities = {
      nodeId: `node-${index}`,
      bootId: `boot-${index}`,
      inputFormats: new Set<InputFormat>(['jpeg', 'png', 'webp']),
      outputFormats: new Set<OutputFormat>(['png', 'webp', 'avif']),
      imagePixelsMax: 100_000_000,
      jxlPixelsMax: 0,
      engines,
      imagesMax: engines + PLACES_BESIDE_ENGINES,
      ...memory,
      models: MODELS,
    };
    this.#rates = {
      decodeRates: scaled(DECODE_MS_PER_MEGAPIXEL, slowness),
      encodeRates: scaled(ENCODE_MS_PER_MEGAPIXEL, slowness),
    };
  }

  /** Reports at once, then every second. */
  start(): void {
    this.#report();
    // The reports do not all come in one instant.
    const phaseMs = REPEAT_INTERVAL_MS * ((Number(this.abilities.nodeId.slice(5)) % 97) / 97);
    this.#events.in(phaseMs, () => this.#repeat());
  }

  /** The machine is gone, with all that it held. */
  vanish(): void {
    this.#gone = true;
    for (const listener of this.#vanishListeners) listener();
  }

  onVanish(listener: () => void): void {
    this.#vanishListeners.push(listener);
    // Listeners of images that are long done are of no use.
    if (this.#vanishListeners.length > VANISH_LISTENERS_MAX) this.#vanishListeners.shift();
  }

  get gone(): boolean {
    return this.#gone;
  }

  /** False: refused. `ended` is called with the instant an engine took it. 0: any wait. */
  admit(job: SimulatedJob, waitMsMax: number, ended: (startedMs: number) => void): boolean {
    if (this.#inFlight >= this.abilities.imagesMax) return false;
    if (admittedMegapixels(job) > this.#megapixelsFree) return false;
    const line = this.#lineFor(job);
    if (waitMsMax > 0 && this.#estimatedWaitMs(line) > waitMsMax) return false;
    line.waiting.push({ job, begin: () => this.#run(line, job, ended) });
    this.#next(line);
    this.#changed();
    return true;
  }

  #lineFor({ model }: SimulatedJob): Line {
    if (model === undefined) return this.#own;
    const known = this.#others.get(model);
    if (known !== undefined) return known;
    const loadMs = this.slowness * HEAVY.loadMs;
    const line = lineOf(1, this.#events.nowMs + loadMs);
    this.#others.set(model, line);
    this.#events.in(loadMs, () => {
      this.#next(line);
      this.#changed();
    });
    return line;
  }

  get #inFlight(): number {
    let images = 0;
    for (const { running, waiting } of [this.#own, ...this.#others.values()]) {
      images += running.size + waiting.length;
    }
    return images;
  }

  get #megapixelsFree(): number {
    const { megapixelsMax, megapixelsAloneMax } = this.abilities;
    if (this.#inFlight === 0) return Math.max(megapixelsMax, megapixelsAloneMax);
    let megapixels = 0;
    for (const { running, waiting } of [this.#own, ...this.#others.values()]) {
      for (const { job } of [...running, ...waiting]) megapixels += admittedMegapixels(job);
    }
    return Math.max(0, megapixelsMax - megapixels);
  }

  #next(line: Line): void {
    while (line.readyAtMs <= this.#events.nowMs && line.running.size < line.engines) {
      const next = line.waiting.shift();
      if (next === undefined) return;
      next.begin();
    }
  }

  #run(line: Line, job: SimulatedJob, ended: (startedMs: number) => void): void {
    const running = { job, startedMs: this.#events.nowMs };
    line.running.add(running);
    this.#events.in(serviceMs(job, this.slowness), () => {
      if (this.#gone) return;
      line.running.delete(running);
      ended(running.startedMs);
      this.#next(line);
      this.#changed();
    });
  }

  /** Estimates as a node does: each engine's rest by the means, then the line in its order. */
  #estimatedWaitMs({ engines, readyAtMs, running, waiting }: Line): number {
    const { nowMs } = this.#events;
    const loadMs = Math.max(0, readyAtMs - nowMs);
    const held = [...running].map(({ job, startedMs }) => {
      return { elapsedMs: nowMs - startedMs, expectedMs: this.#expectedMs(job) };
    });
    const waitingMs = waiting.map(({ job }) => this.#expectedMs(job));
    // While a model loads nothing runs.
    return loadMs + workerWaitMs(engines, held, waitingMs);
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
      megapixelsFree: this.#megapixelsFree,
      enginesReady: this.#own.engines,
      estimatedWaitMs: this.#estimatedWaitMs(this.#own),
      inferMs: inferMs(this.slowness),
      decodeMsPerMegapixel: 0,
      encodeMsPerMegapixel: 0,
      ...this.#rates,
      loads: new Map([...this.#others].map(([name, line]) => [name, this.#loadOf(line)])),
    });
  }

  #loadOf(line: Line) {
    return {
      enginesReady: line.readyAtMs <= this.#events.nowMs ? line.engines : 0,
      estimatedWaitMs: this.#estimatedWaitMs(line),
      inferMs: this.slowness * HEAVY.inferMs,
    };
  }
}

function lineOf(engines: number, readyAtMs: number): Line {
  return { engines, readyAtMs, running: new Set(), waiting: [] };
}

function scaled<F extends string>(
  rates: Record<F, number>,
  factor: number,
): ReadonlyMap<F, number> {
  const entries = Object.entries(rates) as [F, number][];
  return new Map(entries.map(([format, rate]) => [format, rate * factor]));
}
