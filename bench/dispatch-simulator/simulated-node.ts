/**
 * An inference node as its peers see it: it admits within its slots and the header's bound, runs its
 * images in order, and reports changes and every second, with estimates by its measured means.
 */

import { admittedMegapixels } from '../../control-plane/core/dispatch/job-needs.ts';
import type { NodeAbilities, NodeReport } from '../../control-plane/nodes/node-view.ts';
import type { Selectable } from '../../control-plane/nodes/selectable.ts';
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
const VANISH_LISTENERS_MAX = 16;

const TERMS = { commercialUse: 'yes', reason: '', source: '' };
const SAID: Selectable = {
  ...{ name: HEAVY.name, kind: 'model', isDefault: true, sha256: 'a' },
  ...{ goodFor: '', weights: TERMS, trainingData: TERMS },
};
const HEAVY_ONLY = { models: new Map([[HEAVY.name, SAID]]), onlyByName: true };

interface Running {
  readonly job: SimulatedJob;
  readonly startedMs: number;
}

export class SimulatedNode {
  readonly abilities: NodeAbilities;
  readonly slowness: number;
  readonly #events: EventQueue;
  readonly #inferMs: number;
  readonly #running = new Set<Running>();
  readonly #waiting: { readonly job: SimulatedJob; readonly begin: () => void }[] = [];
  readonly #rates: Pick<NodeReport, 'decodeRates' | 'encodeRates'>;
  onReport: (report: NodeReport) => void = () => undefined;
  readonly #vanishListeners: (() => void)[] = [];
  #gone = false;
  #reportedAtMs = Number.NEGATIVE_INFINITY;
  #reportDue = false;

  constructor(index: number, kind: NodeKind, events: EventQueue) {
    const { slowness, engines, memory = PLENTY, model } = kind;
    this.slowness = slowness;
    this.#events = events;
    this.#inferMs = inferMs(slowness, model);
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
      ...(model === HEAVY.name && HEAVY_ONLY),
    };
    this.#rates = {
      decodeRates: scaled(DECODE_MS_PER_MEGAPIXEL, slowness),
      encodeRates: scaled(ENCODE_MS_PER_MEGAPIXEL, slowness),
    };
  }

  start(): void {
    this.#report();
    // The reports do not all come in one instant.
    const phaseMs = REPEAT_INTERVAL_MS * ((Number(this.abilities.nodeId.slice(5)) % 97) / 97);
    this.#events.in(phaseMs, () => this.#repeat());
  }

  vanish(): void {
    this.#gone = true;
    for (const listener of this.#vanishListeners) listener();
  }

  onVanish(listener: () => void): void {
    this.#vanishListeners.push(listener);
    if (this.#vanishListeners.length > VANISH_LISTENERS_MAX) this.#vanishListeners.shift();
  }

  get gone(): boolean {
    return this.#gone;
  }

  /** False: refused. `ended` is called with the instant an engine took it. 0: any wait. */
  admit(job: SimulatedJob, waitMsMax: number, ended: (startedMs: number) => void): boolean {
    if (this.#inFlight >= this.abilities.imagesMax) return false;
    if (admittedMegapixels(job) > this.#megapixelsFree) return false;
    if (waitMsMax > 0 && this.#estimatedWaitMs() > waitMsMax) return false;
    this.#waiting.push({ job, begin: () => this.#run(job, ended) });
    this.#next();
    this.#changed();
    return true;
  }

  get #inFlight(): number {
    return this.#running.size + this.#waiting.length;
  }

  get #megapixelsFree(): number {
    const { megapixelsMax, megapixelsAloneMax } = this.abilities;
    if (this.#inFlight === 0) return Math.max(megapixelsMax, megapixelsAloneMax);
    let megapixels = 0;
    for (const { job } of [...this.#running, ...this.#waiting]) {
      megapixels += admittedMegapixels(job);
    }
    return Math.max(0, megapixelsMax - megapixels);
  }

  #next(): void {
    while (this.#running.size < this.abilities.engines) {
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
    });
  }

  /** Estimates as a node does: each engine's rest by the means, then the line in its order. */
  #estimatedWaitMs(): number {
    const { nowMs } = this.#events;
    const held = [...this.#running].map(({ job, startedMs }) => {
      return { elapsedMs: nowMs - startedMs, expectedMs: this.#expectedMs(job) };
    });
    const waitingMs = this.#waiting.map(({ job }) => this.#expectedMs(job));
    return workerWaitMs(this.abilities.engines, held, waitingMs);
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
      enginesReady: this.abilities.engines,
      estimatedWaitMs: this.#estimatedWaitMs(),
      inferMs: this.#inferMs,
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
