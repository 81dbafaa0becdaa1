/**
 * MATTING_ENGINES=auto on a GPU: how many engines of a model it gains from, by trying. Engines are
 * added one by one on the GPU alone, each number is kept full for some seconds, and the last that
 * was worth it is taken. Remembered beside the prepared file for each kind of GPU.
 */
import { readFile } from 'node:fs/promises';
import pino from 'pino';
import { GpuDevice } from './engine/devices/gpu-device.ts';
import type { EnginePool } from './engine/pool/engine-pool.ts';
import { openEnginePool } from './engine/pool/open-engine-pool.ts';
import { isMissing, writeRecord } from './models/cache-files.ts';
import type { PreparedModel } from './models/prepared-model.ts';
import { drawCheckPicture } from './models/preparing/check-picture.ts';
import { measuredEnginesPath } from './models/preparing/prepared-cache.ts';

/** More never helped where it was tried: copies and conversion of one hide behind runs of others. */
const ENGINES_A_GPU_MAX = 4;
/** Images a second over those of one engine less: below it an engine is not worth its memory. */
const GAIN_MIN = 1.1;
const MEASURE_MS = 3000;
/** For all engines of one number to be ready. */
const READY_MAX_MS = 600_000;
/**
 * Memory of a GPU that an engine takes: CUDA's context, and for each pixel of the input what a run
 * holds (placements counted without a card) with as much again for cuDNN's workspace. An estimate,
 * not measured on a card.
 */
const CONTEXT_BYTES = 500_000_000;
const BYTES_PER_INPUT_PIXEL = { fp16: 1030, int8: 1030, fp32: 2060 } as const;
const MEMORY_SHARE_MAX = 0.9;
const KINDS_MAX = 32;

export interface MeasuredEngines {
  readonly engines: number;
  readonly imagesPerS: number;
}

export interface MeasureOptions {
  readonly model: PreparedModel;
  /** Every model of the plan gets as many engines. */
  readonly models: readonly PreparedModel[];
  readonly device: GpuDevice;
  /** The GPU, its driver, the runtime and this machine's cores, in words. */
  readonly kind: string;
  /** On this GPU, by the memory of the host. */
  readonly enginesMax: number;
  readonly childEnv: Readonly<Record<string, string>>;
  readonly ending: AbortSignal;
}

interface EnginesRecord {
  /** The prepared file's. */
  readonly sha256: string;
  readonly kinds: Readonly<Record<string, MeasuredEngines>>;
}

/** At least one engine, whatever the measurement says. @throws the reason of `ending`. */
export async function measureEngines(options: MeasureOptions): Promise<MeasuredEngines> {
  const { model, ending } = options;
  const most = Math.min(enginesInGpu(options), options.enginesMax);
  // With more memory, or beside fewer models, another number may be best.
  const kind = `${options.kind}, at most ${most} engines`;
  const record = await readRecord(model);
  const known = record.kinds[kind];
  if (known !== undefined) return known;
  let best: MeasuredEngines = { engines: 1, imagesPerS: 0 };
  for (let engines = 1; engines <= most; engines++) {
    ending.throwIfAborted();
    const imagesPerS = await rateOf(engines, options);
    if (imagesPerS === undefined) break;
    if (engines > 1 && imagesPerS < GAIN_MIN * best.imagesPerS) break;
    best = { engines, imagesPerS };
  }
  // What a node that ends cut off is no measurement.
  ending.throwIfAborted();
  if (best.imagesPerS === 0) return best;
  const others = Object.entries(record.kinds).slice(1 - KINDS_MAX);
  const kinds = Object.fromEntries([...others, [kind, best]]);
  await writeRecord(measuredEnginesPath(model.path), { sha256: model.sha256, kinds });
  return best;
}

/** As many of every model of the plan as its memory holds, by the estimate; at least one. */
export function enginesInGpu({
  models,
  device,
}: Pick<MeasureOptions, 'models' | 'device'>): number {
  const each = models.reduce((sum, { inputWidth, inputHeight, precision }) => {
    return sum + CONTEXT_BYTES + inputWidth * inputHeight * BYTES_PER_INPUT_PIXEL[precision];
  }, 0);
  const { memoryBytes } = device.facts;
  if (memoryBytes === 0) return ENGINES_A_GPU_MAX;
  const held = Math.floor((memoryBytes * MEMORY_SHARE_MAX) / each);
  return Math.max(1, Math.min(ENGINES_A_GPU_MAX, held));
}

/** Images a second of so many engines; undefined: they do not all run. */
async function rateOf(engines: number, options: MeasureOptions): Promise<number | undefined> {
  const { model, childEnv, ending } = options;
  // A GPU of its own name: what this many engines do to it says nothing about fewer.
  const device = new GpuDevice(options.device.facts);
  const devices = Array.from({ length: engines }, () => device);
  const log = pino({ level: 'silent' });
  const pool = openEnginePool({ model, engines, threadsPerEngine: 1, devices, childEnv, log });
  try {
    if (!(await allReady(pool, engines, ending))) return undefined;
    return await keepFull(pool, engines, model);
  } finally {
    await pool.close(0);
  }
}

/** False where one was lost, or they take too long. */
async function allReady(pool: EnginePool, engines: number, ending: AbortSignal): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const look = () => {
    const { state, enginesReady } = pool.snapshot();
    const lost = Object.values(pool.metrics().deaths).some(deaths => deaths > 0);
    if (ending.aborted || lost || state === 'failed') resolve(false);
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

async function keepFull(pool: EnginePool, engines: number, model: PreparedModel) {
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
    await Promise.all(Array.from({ length: engines + 1 }, caller));
  } catch {
    // The pool has counted it: so many engines do not run.
    return undefined;
  }
  return (1000 * images) / (performance.now() - startedMs);
}

async function readRecord({ path, sha256 }: PreparedModel): Promise<EnginesRecord> {
  const none = { sha256, kinds: {} };
  try {
    const json = JSON.parse(
      await readFile(measuredEnginesPath(path), 'utf8'),
    ) as EnginesRecord | null;
    if (json?.sha256 !== sha256 || typeof json.kinds !== 'object') return none;
    const sound = Object.values(json.kinds ?? {}).every(
      each =>
        Number.isInteger(each?.engines) && each.engines >= 1 && each.engines <= ENGINES_A_GPU_MAX,
    );
    return sound ? json : none;
  } catch (error) {
    // Damaged or missing: it is measured again.
    if (error instanceof SyntaxError || isMissing(error)) return none;
    throw error;
  }
}
