/**
 * The number of something that a GPU gains from, by trying: one after the other is kept full for
 * some seconds, and the last that was worth it is taken. Remembered beside the prepared file for
 * each kind of GPU.
 */
import { readFile } from 'node:fs/promises';
import pino from 'pino';
import { GpuDevice } from '../engine/devices/gpu-device.ts';
import type { EnginePool } from '../engine/pool/engine-pool.ts';
import { openEnginePool } from '../engine/pool/open-engine-pool.ts';
import { isMissing, writeRecord } from '../models/cache-files.ts';
import { imagesARun, type PreparedModel } from '../models/prepared-model.ts';
import { drawCheckPicture } from '../models/preparing/check-picture.ts';

/** Images a second over those of the number before: with less it is not worth its memory. */
const GAIN_MIN = 1.1;
const MEASURE_MS = 3000;
/** For all engines of one number to be ready. */
const READY_MAX_MS = 600_000;
const KINDS_MAX = 32;

export interface Measured {
  readonly best: number;
  /** 0: not even the first runs. */
  readonly imagesPerS: number;
}

export interface BestOptions {
  /** Least first. */
  readonly numbers: readonly [number, ...number[]];
  /** Images a second with it; undefined: it does not run. */
  readonly rateOf: (number: number) => Promise<number | undefined>;
  /** Whose prepared file it is measured with. */
  readonly model: PreparedModel;
  readonly recordPath: string;
  /** What it was measured on, in words. */
  readonly kind: string;
  readonly ending: AbortSignal;
}

interface MeasuredRecord {
  /** The prepared file's. */
  readonly sha256: string;
  readonly kinds: Readonly<Record<string, Measured>>;
}

/** The first number at least, whatever the measurement says. @throws the reason of `ending`. */
export async function measureBest(options: BestOptions): Promise<Measured> {
  const { numbers, rateOf, kind, ending, recordPath, model } = options;
  const record = await readRecord(options);
  const known = record.kinds[kind];
  if (known !== undefined) return known;
  const [first] = numbers;
  let best: Measured = { best: first, imagesPerS: 0 };
  for (const number of numbers) {
    ending.throwIfAborted();
    const imagesPerS = await rateOf(number);
    if (imagesPerS === undefined) break;
    if (number !== first && imagesPerS < GAIN_MIN * best.imagesPerS) break;
    best = { best: number, imagesPerS };
  }
  // What a node that ends cut off is no measurement.
  ending.throwIfAborted();
  if (best.imagesPerS === 0) return best;
  const others = Object.entries(record.kinds).slice(1 - KINDS_MAX);
  const kinds = Object.fromEntries([...others, [kind, best]]);
  await writeRecord(recordPath, { sha256: model.sha256, kinds });
  return best;
}

async function readRecord(options: BestOptions): Promise<MeasuredRecord> {
  const { recordPath, model, numbers } = options;
  const none = { sha256: model.sha256, kinds: {} };
  try {
    const json = JSON.parse(await readFile(recordPath, 'utf8')) as MeasuredRecord | null;
    if (json?.sha256 !== model.sha256 || typeof json.kinds !== 'object') return none;
    const known = json.kinds?.[options.kind];
    return known === undefined || numbers.includes(known?.best) ? json : none;
  } catch (error) {
    // Damaged or missing: it is measured again.
    if (error instanceof SyntaxError || isMissing(error)) return none;
    throw error;
  }
}

export interface RateOptions {
  readonly model: PreparedModel;
  readonly engines: number;
  readonly device: GpuDevice;
  readonly childEnv: Readonly<Record<string, string>>;
  readonly ending: AbortSignal;
}

/** Images a second of engines on one GPU that always find work; undefined: they do not all run. */
export async function measureRate(options: RateOptions): Promise<number | undefined> {
  const { model, engines, childEnv, ending } = options;
  // A GPU of its own name: what this does to it says nothing about what is measured next.
  const device = new GpuDevice(options.device.facts);
  const devices = Array.from({ length: engines }, () => device);
  const log = pino({ level: 'silent' });
  const pool = openEnginePool({ model, engines, threadsPerEngine: 1, devices, childEnv, log });
  try {
    if (!(await allReady(pool, engines, ending))) return undefined;
    const rate = await keepFull(pool, options);
    // A run of several that is lost is run again image by image, and ends well.
    return hasLost(pool) ? undefined : rate;
  } finally {
    await pool.close(0);
  }
}

function hasLost(pool: EnginePool): boolean {
  return Object.values(pool.metrics().deaths).some(deaths => deaths > 0);
}

/** False where one was lost, or they take too long. */
async function allReady(pool: EnginePool, engines: number, ending: AbortSignal): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const look = () => {
    const { state, enginesReady } = pool.snapshot();
    if (ending.aborted || hasLost(pool) || state === 'failed') resolve(false);
    else if (enginesReady === engines) resolve(true);
  };
  const unsubscribe = pool.onChange(look);
  ending.addEventListener('abort', look);
  const timer = setTimeout(() => resolve(false), READY_MAX_MS);
  look();
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    unsubscribe();
    ending.removeEventListener('abort', look);
  }
}

async function keepFull(pool: EnginePool, { model, engines }: RateOptions) {
  const rgb = drawCheckPicture(model.inputWidth, model.inputHeight);
  const { signal } = new AbortController();
  const startedMs = performance.now();
  let images = 0;
  const caller = async () => {
    while (performance.now() - startedMs < MEASURE_MS) {
      await pool.run({ rgb, priority: 'sync', signal });
      images++;
    }
  };
  try {
    // As many wait as an engine takes when it is free.
    const callers = (engines + 1) * imagesARun(model);
    await Promise.all(Array.from({ length: callers }, caller));
  } catch {
    // The pool has counted it: so many engines do not run.
    return undefined;
  }
  return (1000 * images) / (performance.now() - startedMs);
}
