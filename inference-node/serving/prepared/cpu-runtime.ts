/**
 * Chooses what runs a prepared graph on this processor: OpenVINO where it is installed, answers
 * like ONNX Runtime and is faster by enough; else ONNX Runtime. Preparing compares the two in turns
 * and records the choice beside the graph, with what OpenVINO compiled; a start only reads it.
 */
import { createHash } from 'node:crypto';
import { rm, statfs } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import {
  foreignTo,
  hashFile,
  hashOpenFile,
  listDirectory,
  readRecord,
  statOrNull,
  writeFileWhole,
  writeRecord,
} from '../models/cache-files.ts';
import { ModelError } from '../models/model-error.ts';
import type {
  CompiledGraph,
  CpuRuntimeChoice,
  OpenvinoHere,
  PreparedModel,
} from '../models/prepared-model.ts';
import {
  type Answering,
  GraphRefusedError,
  identityOf,
  type RuntimeTools,
} from './answer-check.ts';

/** OpenVINO must take at most this share of ONNX Runtime's processor time: 1.1 times as fast. */
export const TIME_SHARE_MAX = 1 / 1.1;
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
  /** The compared file (identityOf). */
  readonly sha256: string;
  /** OpenVINO's. */
  readonly version: string;
  readonly machines: readonly Compared[];
}

interface Runnable {
  /** Digest of what OpenVINO compiled there: another instruction set refuses it. */
  readonly compiled: string;
  /** OpenVINO's processor time, divided by ONNX Runtime's. */
  readonly timeShare: number;
  /** OpenVINO's process at its peak. */
  readonly peakBytes: number;
}

/** `refusal`: why OpenVINO runs it under no name. It does not take the graph, or its matte differs. */
type Compared = { readonly machine: string } & (Runnable | { readonly refusal: string });

export const NOT_COMPARED = 'OpenVINO was not compared with it on this machine';

type RecordedChoice =
  | {
      readonly runtime: 'openvino';
      readonly compiled: CompiledGraph;
      readonly timeShare: number;
      readonly peakBytes: number;
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
  const record = await recordOf(model, openvino);
  const known = record?.machines.find(each => each.machine === machine);
  if (record === undefined || known === undefined) {
    return { runtime, reason: NOT_COMPARED };
  }
  const verdict = judge(known, wanted);
  if (typeof verdict === 'string') return { runtime, reason: verdict };
  const { timeShare, peakBytes, compiled: sha256 } = verdict;
  const compiled = { path: compiledPath(model, openvino, machine), sha256 };
  const wrong = await wrongWith(compiled);
  if (wrong !== undefined) return { runtime, reason: `what OpenVINO compiled ${wrong}` };
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
  const before = (await recordOf(model, openvino))?.machines ?? [];
  const path = compiledPath(model, openvino, machine);
  const known = before.find(each => each.machine === machine);
  const isDone = async () => {
    if (known === undefined) return false;
    const verdict = judge(known, wanted);
    // An operator who names OpenVINO has it try again what it refused.
    if (typeof verdict === 'string') return !isRequired(model, options);
    return (await wrongWith({ path, sha256: verdict.compiled })) === undefined;
  };
  if (await isDone()) return await read();
  onCompare();
  let own: Compared;
  try {
    own = { machine, ...(await compareOnce(model, openvino, path, { tools, signal })) };
  } catch (error) {
    signal.throwIfAborted();
    // Not recorded: memory or a disk may be full today.
    const reason = notRun(error);
    if (!isRequired(model, options)) return { ...model, runtimeFallback: reason };
    throw refused(model, reason);
  }
  // Read anew: another machine may have written its own meanwhile.
  const others = ((await recordOf(model, openvino))?.machines ?? []).filter(
    each => each.machine !== machine,
  );
  const { version } = openvino;
  const machines = [...others, own].slice(-MACHINES_MAX);
  await writeRecord(recordPath(model), { sha256: identityOf(model), version, machines });
  if (typeof judge(own, wanted) === 'string') await removeQuietly(path);
  const used = machines.map(each => compiledPath(model, openvino, each.machine));
  await removeUnused(model, used);
  if ('refusal' in own && isRequired(model, options)) throw refused(model, own.refusal);
  return await read();
}

/** A line: why it is not OpenVINO. */
function judge(known: Compared, wanted: CpuRuntimeChoice): Runnable | string {
  if ('refusal' in known) return known.refusal;
  const isSlow = wanted === 'auto' && known.timeShare > TIME_SHARE_MAX;
  return isSlow ? `OpenVINO takes ${known.timeShare} of ONNX Runtime's time` : known;
}

/** @throws what `compile` and `compare` reject with, but that the graph is refused */
async function compareOnce(
  model: PreparedModel,
  openvino: OpenvinoHere,
  path: string,
  { tools, signal }: { readonly tools: RuntimeTools; readonly signal: AbortSignal },
): Promise<Runnable | { readonly refusal: string }> {
  try {
    const compileTo = (file: string) => tools.compile(model, openvino.library, file, signal);
    const compiled = await compile(path, compileTo);
    const use = { compiled: { path, sha256: compiled } };
    const compared = await tools.compare(model, runningOpenvino(model, openvino, use), signal);
    const { alphas, peakBytes } = compared;
    const refusal = compareAlphas(alphas.openvino, alphas.onnxruntime);
    if (refusal !== undefined) return { refusal };
    return { compiled, timeShare: Number(compared.timeShare.toFixed(3)), peakBytes };
  } catch (error) {
    await removeQuietly(path);
    if (error instanceof GraphRefusedError) return { refusal: notRun(error) };
    throw error;
  }
}

/** A file that stays only takes room. */
async function removeQuietly(path: string): Promise<void> {
  await rm(path, { force: true }).catch(() => undefined);
}

function notRun(error: unknown): string {
  return `OpenVINO does not run it: ${(error as Error).message}`;
}

function refused({ model }: PreparedModel, reason: string): ModelError {
  return new ModelError('prepare', `${model} (MATTING_CPU_RUNTIME=openvino): ${reason}`);
}

/** OpenVINO would compile it anew for each size. */
function isOfOpenSize({ form }: PreparedModel): boolean {
  return form?.sides !== undefined;
}

/**
 * An operator who names OpenVINO means the models of the service: OpenVINO may run no added one.
 */
function isRequired({ form }: PreparedModel, { wanted }: RuntimeOptions): boolean {
  return wanted === 'openvino' && form === undefined;
}

/** The measured memory bounds the engines of an added model: the larger of both runtimes counts. */
function runningOpenvino(
  model: PreparedModel,
  { library }: OpenvinoHere,
  { compiled, peakBytes = 0 }: { readonly compiled: CompiledGraph; readonly peakBytes?: number },
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
async function removeUnused({ path, recordsBeside = path }: Place, used: readonly string[]) {
  const folder = dirname(recordsBeside);
  for (const name of await listDirectory(folder)) {
    const file = join(folder, name);
    if (!name.startsWith(`${basename(recordsBeside)}.openvino`) || used.includes(file)) continue;
    const madeMs = (await statOrNull(file))?.mtimeMs ?? Date.now();
    if (Date.now() - madeMs > UNUSED_MAX_MS) await removeQuietly(file);
  }
}

/** A compiled graph is code: a user who may write it decides what the engines run. */
async function wrongWith({ path, sha256 }: CompiledGraph): Promise<string | undefined> {
  if ((await statOrNull(path)) === null) return 'is gone';
  return (await foreignTo(path)) ?? ((await hashFile(path)) === sha256 ? undefined : 'is altered');
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
async function recordOf(
  model: PreparedModel,
  { version }: OpenvinoHere,
): Promise<RuntimeRecord | undefined> {
  const record = (await readRecord(recordPath(model))) as Partial<RuntimeRecord> | null | undefined;
  const { sha256, machines } = record ?? {};
  if (sha256 !== identityOf(model) || record?.version !== version) return undefined;
  if (!Array.isArray(machines)) return undefined;
  const isSound = machines.every(
    known =>
      typeof known?.machine === 'string' &&
      ('refusal' in known
        ? typeof known.refusal === 'string'
        : typeof known.compiled === 'string' &&
          typeof known.timeShare === 'number' &&
          typeof known.peakBytes === 'number'),
  );
  return isSound ? { sha256, version, machines } : undefined;
}
