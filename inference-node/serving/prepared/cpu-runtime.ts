/**
 * Chooses what runs a prepared graph on this processor: OpenVINO where it is installed, answers
 * like ONNX Runtime and is faster by enough; else ONNX Runtime. Preparing compares the two in turns
 * and records the choice beside the graph, with what OpenVINO compiled; a start only reads it.
 */
import { createHash } from 'node:crypto';
import { readFile, rm, statfs } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import {
  hashFile,
  hashOpenFile,
  isMissing,
  listDirectory,
  statOrNull,
  writeFileWhole,
  writeRecord,
} from '../models/cache-files.ts';
import { diskError, ModelError } from '../models/model-error.ts';
import type {
  CompiledGraph,
  CpuRuntimeChoice,
  OpenvinoHere,
  PreparedModel,
} from '../models/prepared-model.ts';
import { type Answering, identityOf, type RuntimeComparison } from './answer-check.ts';

/** OpenVINO must take at most this share of ONNX Runtime's processor time: 1.1 times as fast. */
const TIME_SHARE_MAX = 1 / 1.1;
/** Levels of 255: a mean difference of 0.0002. */
const MEAN_DIFFERENCE_MAX = 0.0002 * 255;
/** Levels of 255 from which on a pixel is off, and the share of pixels that may be. */
const PIXEL_DIFFERENCE_MAX = 0.05 * 255;
const PIXELS_OFF_SHARE_MAX = 0.001;
/** Recorded machines; the oldest is dropped. */
const MACHINES_MAX = 32;
const UNUSED_MAX_MS = 24 * 3600 * 1000;
/** Hexadecimal digits of the hash in a file's name: enough to tell machines apart. */
const NAME_DIGITS = 8;

export interface RuntimeOptions {
  readonly wanted: CpuRuntimeChoice;
  /** Undefined: it is not installed. */
  readonly openvino: OpenvinoHere | undefined;
  /** Compares the two where that was not done, until the signal aborts. Absent: it only reads. */
  readonly comparing?: AbortSignal | undefined;
}

/** The words name the processor and ONNX Runtime; another machine is compared again. */
type Here = Pick<Answering, 'machine'>;

interface RuntimeRecord {
  /** What was compared (identityOf). */
  readonly sha256: string;
  /** Of OpenVINO. */
  readonly version: string;
  readonly machines: readonly {
    readonly machine: string;
    /** Digest of what OpenVINO compiled there: another instruction set refuses it. */
    readonly compiled: string;
    /** OpenVINO's processor time, divided by ONNX Runtime's. */
    readonly timeShare: number;
    /** OpenVINO's process at its peak. Absent: a release that wrote none compared the two. */
    readonly peakBytes?: number;
    /** By how much its matte differs; absent: it is alike. */
    readonly difference?: string | undefined;
  }[];
}

export const NOT_COMPARED = 'OpenVINO was not compared with it on this machine';

export type RecordedChoice =
  | {
      readonly runtime: 'openvino';
      readonly compiled: CompiledGraph;
      readonly timeShare: number;
      readonly peakBytes?: number | undefined;
    }
  /** `reason`: why OpenVINO does not run it. Undefined: it was not asked to. */
  | { readonly runtime: 'onnxruntime'; readonly reason?: string };

/** Reads what preparing recorded. A machine that was not compared runs ONNX Runtime. */
export async function readChoice(
  model: PreparedModel,
  { wanted, openvino }: RuntimeOptions,
  { machine }: Here,
): Promise<RecordedChoice> {
  const runtime = 'onnxruntime';
  if (wanted === 'onnxruntime' || model.provider !== 'cpu') return { runtime };
  if (isOfOpenSize(model)) return { runtime, reason: 'each picture gives its input another size' };
  if (openvino === undefined) return { runtime, reason: 'OpenVINO is not installed' };
  const record = await readRecord(model, openvino);
  const known = record?.machines.find(each => each.machine === machine);
  if (record === undefined || known === undefined) {
    return { runtime, reason: NOT_COMPARED };
  }
  const { timeShare, peakBytes, difference } = known;
  if (difference !== undefined) return { runtime, reason: difference };
  if (wanted === 'auto' && timeShare > TIME_SHARE_MAX) {
    return { runtime, reason: `OpenVINO takes ${timeShare} of ONNX Runtime's time` };
  }
  const compiled = { path: compiledPath(model, openvino, machine), sha256: known.compiled };
  if (!(await isWhole(compiled))) {
    return { runtime, reason: 'what OpenVINO compiled is gone or altered' };
  }
  return { runtime: 'openvino', compiled, timeShare, peakBytes };
}

/**
 * A model with the runtime that preparing chose. `runtimeFallback` says why it is not OpenVINO.
 * @throws ModelError `missing` where OpenVINO is wanted by name and preparing did not choose it;
 *   an added model then runs on ONNX Runtime
 */
export async function recordedRuntime(
  model: PreparedModel,
  options: RuntimeOptions,
  here: Here,
): Promise<PreparedModel> {
  const { openvino } = options;
  const choice = await readChoice(model, options, here);
  if (openvino !== undefined && choice.runtime === 'openvino') {
    return runningOpenvino(model, openvino, choice);
  }
  if (choice.runtime === 'openvino' || choice.reason === undefined) return model;
  if (!isRequired(model, options)) return { ...model, runtimeFallback: choice.reason };
  const what = `${model.model} does not run on OpenVINO (MATTING_CPU_RUNTIME)`;
  throw new ModelError('missing', `${what}: ${choice.reason}; run "models fetch"`);
}

/**
 * Compares the two and records the choice, unless that was done on such a machine.
 * @throws ModelError `prepare` where OpenVINO is wanted by name and does not answer alike
 */
export async function prepareRuntime(
  model: PreparedModel,
  options: RuntimeOptions,
  answering: Pick<Answering, 'machine' | 'runtimes'>,
  onCompare: () => void = () => undefined,
): Promise<PreparedModel> {
  const { wanted, openvino, comparing: signal } = options;
  const { machine, runtimes: tools } = answering;
  const read = () => recordedRuntime(model, options, answering);
  const mayRun = model.provider === 'cpu' && !isOfOpenSize(model);
  const isAsked = wanted !== 'onnxruntime' && openvino !== undefined && mayRun;
  if (!isAsked || signal === undefined || tools === undefined) return await read();
  const before = (await readRecord(model, openvino))?.machines ?? [];
  const path = compiledPath(model, openvino, machine);
  const known = before.find(each => each.machine === machine);
  if (known !== undefined && (await isWhole({ path, sha256: known.compiled }))) return await read();
  onCompare();
  let compiled: CompiledGraph;
  let comparison: RuntimeComparison;
  try {
    const compileTo = (file: string) => tools.compile(model, openvino.library, file, signal);
    compiled = { path, sha256: await compile(path, compileTo) };
    const use = { compiled };
    comparison = await tools.compare(model, runningOpenvino(model, openvino, use), signal);
  } catch (error) {
    signal.throwIfAborted();
    // Not recorded: memory or a disk may be full today.
    const reason = `OpenVINO does not run it: ${(error as Error).message}`;
    if (!isRequired(model, options)) return { ...model, runtimeFallback: reason };
    throw refused(model, reason);
  }
  // Read anew: another machine may have written its own meanwhile.
  const others = ((await readRecord(model, openvino))?.machines ?? []).filter(
    each => each.machine !== machine,
  );
  const { alphas, peakBytes } = comparison;
  const timeShare = Number(comparison.timeShare.toFixed(3));
  const own = {
    machine,
    compiled: compiled.sha256,
    timeShare,
    peakBytes,
    difference: compareAlphas(alphas.openvino, alphas.onnxruntime),
  };
  const { version } = openvino;
  const machines = [...others, own].slice(-MACHINES_MAX);
  await writeRecord(recordPath(model), { sha256: identityOf(model), version, machines });
  const used = machines.map(each => compiledPath(model, openvino, each.machine));
  await removeUnused(model, used);
  if (own.difference !== undefined && isRequired(model, options)) {
    throw refused(model, own.difference);
  }
  return await read();
}

function refused({ model }: PreparedModel, reason: string): ModelError {
  return new ModelError('prepare', `${model} (MATTING_CPU_RUNTIME=openvino): ${reason}`);
}

/** OpenVINO would compile it anew for each size. */
function isOfOpenSize({ form }: PreparedModel): boolean {
  return form?.sides !== undefined;
}

/** Whoever names OpenVINO means the models that come with the service: it may run no added one. */
function isRequired({ form }: PreparedModel, { wanted }: RuntimeOptions): boolean {
  return wanted === 'openvino' && form === undefined;
}

/** What was measured bounds the engines of an added model: the larger of both runtimes counts. */
function runningOpenvino(
  model: PreparedModel,
  { library }: OpenvinoHere,
  {
    compiled,
    peakBytes = 0,
  }: { readonly compiled: CompiledGraph; readonly peakBytes?: number | undefined },
): PreparedModel {
  const measured = model.peakBytes && { peakBytes: Math.max(model.peakBytes, peakBytes) };
  return { ...model, ...measured, openvino: { library, compiled } };
}

/** Undefined: they are alike; else one line that says by how much they differ. */
export function compareAlphas(found: Uint8Array, expected: Uint8Array): string | undefined {
  if (found.length !== expected.length) return 'OpenVINO’s matte has another size';
  let sum = 0;
  let off = 0;
  for (const [at, level] of expected.entries()) {
    const difference = Math.abs(level - (found[at] ?? 0));
    sum += difference;
    if (difference > PIXEL_DIFFERENCE_MAX) off += 1;
  }
  const [mean, share] = [sum / expected.length, off / expected.length];
  if (mean <= MEAN_DIFFERENCE_MAX && share <= PIXELS_OFF_SHARE_MAX) return undefined;
  return `OpenVINO’s matte differs by ${mean.toFixed(3)} levels of 255 in the mean, and ${(100 * share).toFixed(2)} % of its pixels by more than ${Math.floor(PIXEL_DIFFERENCE_MAX)}`;
}

/** Returns the digest of what OpenVINO wrote. */
async function compile(path: string, compileTo: (file: string) => Promise<void>): Promise<string> {
  let sha256 = '';
  await writeFileWhole(path, async file => {
    await compileTo(file.temporary);
    // OpenVINO does not say that its writes failed.
    const { bavail } = await statfs(file.temporary);
    if (bavail === 0) throw Object.assign(new Error('the disk is full'), { code: 'ENOSPC' });
    sha256 = await hashOpenFile(file.handle);
  });
  return sha256;
}

/** Removes what other releases compiled a day ago: they may run in the same folder meanwhile. */
async function removeUnused(
  { path, recordsBeside = path }: Place,
  used: readonly string[],
): Promise<void> {
  const folder = dirname(recordsBeside);
  for (const name of await listDirectory(folder)) {
    const file = join(folder, name);
    if (!name.startsWith(`${basename(recordsBeside)}.openvino`) || used.includes(file)) continue;
    const madeMs = (await statOrNull(file))?.mtimeMs ?? Date.now();
    // If it cannot be removed, it only takes room.
    if (Date.now() - madeMs > UNUSED_MAX_MS) await rm(file).catch(() => undefined);
  }
}

async function isWhole({ path, sha256 }: CompiledGraph): Promise<boolean> {
  return (await statOrNull(path)) !== null && (await hashFile(path)) === sha256;
}

type Place = Pick<PreparedModel, 'path' | 'recordsBeside'>;

function recordPath({ path, recordsBeside = path }: Place): string {
  return `${recordsBeside}.runtimes.json`;
}

/**
 * Each version and machine has its own: engines load it again when they are restarted, while
 * another release or another kind of machine prepares in the same folder.
 */
function compiledPath(
  { path, recordsBeside = path }: Place,
  { version }: OpenvinoHere,
  machine: string,
): string {
  const of = createHash('sha256')
    .update(JSON.stringify([version, machine]))
    .digest('hex');
  return `${recordsBeside}.openvino-${of.slice(0, NAME_DIGITS)}`;
}

/** Undefined: damaged, missing, or of another graph or version. It is then made again. */
async function readRecord(
  model: PreparedModel,
  { version }: OpenvinoHere,
): Promise<RuntimeRecord | undefined> {
  const path = recordPath(model);
  try {
    const record = JSON.parse(await readFile(path, 'utf8')) as Partial<RuntimeRecord> | null;
    const { sha256, machines } = record ?? {};
    if (sha256 !== identityOf(model) || record?.version !== version) return undefined;
    if (!Array.isArray(machines)) return undefined;
    const isSound = machines.every(
      known =>
        typeof known?.machine === 'string' &&
        typeof known.compiled === 'string' &&
        typeof known.timeShare === 'number' &&
        ['number', 'undefined'].includes(typeof known.peakBytes),
    );
    return isSound ? { sha256, version, machines } : undefined;
  } catch (error) {
    if (error instanceof SyntaxError || isMissing(error)) return undefined;
    throw diskError(error, 'read', path);
  }
}
