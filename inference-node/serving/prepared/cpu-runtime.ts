/**
 * OpenVINO runs a prepared graph if it is installed, answers like ONNX Runtime and is faster by
 * enough. Preparing compares the two and records the choice next to the graph, with OpenVINO's
 * compiled graph. A start only reads the record.
 */
import { createHash } from 'node:crypto';
import { rm, statfs } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import {
  hashFile,
  hashOpenFile,
  listDirectory,
  readRecord,
  statOrNull,
  whyUnsafeToRun,
  writeFileWhole,
  writeRecord,
} from '../models/cache-files.ts';
import { ModelError } from '../models/model-error.ts';
import type {
  CompiledGraph,
  CpuRuntimeChoice,
  InstalledOpenvino,
  PreparedModel,
} from '../models/prepared-model.ts';
import {
  type Answering,
  GraphRefusedError,
  identityOf,
  type RuntimeTools,
} from './answer-check.ts';

/** Share of ONNX Runtime's processor time: OpenVINO must be 1.1 times as fast. */
export const TIME_SHARE_MAX = 1 / 1.1;
/** Levels of 255. */
const MEAN_DIFFERENCE_MAX = 0.0002 * 255;
/** Levels of 255 from which a pixel is off, and the share of pixels that may be off. */
const PIXEL_DIFFERENCE_MAX = 0.05 * 255;
const PIXELS_OFF_SHARE_MAX = 0.001;
const MACHINES_MAX = 32;
const UNUSED_MAX_MS = 24 * 3600 * 1000;
const NAME_DIGITS = 8;

export interface RuntimeOptions {
  readonly wanted: CpuRuntimeChoice;
  readonly openvino: InstalledOpenvino | undefined;
  /**
   * Compares OpenVINO with ONNX Runtime if no record does, until the signal aborts. Absent: only
   * reads the record.
   */
  readonly comparing?: AbortSignal | undefined;
}

/** Names processor and ONNX Runtime. Another machine is compared again. */
type ThisMachine = Pick<Answering, 'machine'>;

interface RuntimeRecord {
  readonly sha256: string;
  readonly version: string;
  readonly machines: readonly Compared[];
}

interface Runnable {
  /** SHA-256 of the compiled graph, which another instruction set refuses. */
  readonly compiled: string;
  readonly timeShare: number;
  readonly peakBytes: number;
}

/** `refusal`: OpenVINO refused the graph, or its matte differs. It never runs this graph here. */
type Compared = { readonly machine: string } & (Runnable | { readonly refusal: string });

export const NOT_COMPARED = 'OpenVINO was not compared with it on this machine';

type RecordedChoice =
  | {
      readonly runtime: 'openvino';
      readonly compiled: CompiledGraph;
      readonly timeShare: number;
      readonly peakBytes: number;
    }
  /** `reason`: why OpenVINO does not run the graph. Undefined: it was not wanted. */
  | { readonly runtime: 'onnxruntime'; readonly reason?: string };

/** Reads the choice that preparing recorded. A machine without a record runs ONNX Runtime. */
export async function readChoice(
  model: PreparedModel,
  { wanted, openvino }: RuntimeOptions,
  { machine }: ThisMachine,
): Promise<RecordedChoice> {
  const runtime = 'onnxruntime';
  if (wanted === 'onnxruntime' || model.provider !== 'cpu') return { runtime };
  if (isOfOpenSize(model)) return { runtime, reason: 'each picture gives its input another size' };
  if (openvino === undefined) return { runtime, reason: 'OpenVINO is not installed' };
  const record = await readRuntimeRecord(model, openvino);
  const known = record?.machines.find(each => each.machine === machine);
  if (record === undefined || known === undefined) {
    return { runtime, reason: NOT_COMPARED };
  }
  const verdict = judge(known, wanted);
  if (typeof verdict === 'string') return { runtime, reason: verdict };
  const { timeShare, peakBytes, compiled: sha256 } = verdict;
  const compiled = { path: compiledPath(model, openvino, machine), sha256 };
  const wrong = await whyUnusable(compiled);
  if (wrong !== undefined) return { runtime, reason: `what OpenVINO compiled ${wrong}` };
  return { runtime: 'openvino', compiled, timeShare, peakBytes };
}

/**
 * @throws ModelError `missing` if OpenVINO is wanted by name and was not chosen; an added model
 * then runs on ONNX Runtime
 */
export async function recordedRuntime(
  model: PreparedModel,
  options: RuntimeOptions,
  here: ThisMachine,
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
 * Compares the runtimes, unless a machine of this kind already did.
 * @throws ModelError `prepare` if OpenVINO is wanted by name and does not answer alike
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
  const before = (await readRuntimeRecord(model, openvino))?.machines ?? [];
  const path = compiledPath(model, openvino, machine);
  const known = before.find(each => each.machine === machine);
  const isDone = async () => {
    if (known === undefined) return false;
    const verdict = judge(known, wanted);
    // If the operator names OpenVINO, preparing tries again graphs that it refused.
    if (typeof verdict === 'string') return !isRequired(model, options);
    return (await whyUnusable({ path, sha256: verdict.compiled })) === undefined;
  };
  if (await isDone()) return await read();
  onCompare();
  let own: Compared;
  try {
    own = { machine, ...(await compareOnce(model, openvino, path, { tools, signal })) };
  } catch (error) {
    signal.throwIfAborted();
    // The failure is not recorded: memory or disk may be full only today.
    const reason = notRun(error);
    if (!isRequired(model, options)) return { ...model, runtimeFallback: reason };
    throw refused(model, reason);
  }
  // Reads again: another machine may have written its entry meanwhile.
  const others = ((await readRuntimeRecord(model, openvino))?.machines ?? []).filter(
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

/** @returns a text with the reason if OpenVINO is not chosen */
function judge(known: Compared, wanted: CpuRuntimeChoice): Runnable | string {
  if ('refusal' in known) return known.refusal;
  const isSlow = wanted === 'auto' && known.timeShare > TIME_SHARE_MAX;
  return isSlow ? `OpenVINO takes ${known.timeShare} of ONNX Runtime's time` : known;
}

async function compareOnce(
  model: PreparedModel,
  openvino: InstalledOpenvino,
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

async function removeQuietly(path: string): Promise<void> {
  await rm(path, { force: true }).catch(() => undefined);
}

function notRun(error: unknown): string {
  return `OpenVINO does not run it: ${(error as Error).message}`;
}

function refused({ model }: PreparedModel, reason: string): ModelError {
  return new ModelError('prepare', `${model} (MATTING_CPU_RUNTIME=openvino): ${reason}`);
}

/** OpenVINO would compile such a graph again for each size. */
function isOfOpenSize({ form }: PreparedModel): boolean {
  return form?.sides !== undefined;
}

/**
 * MATTING_CPU_RUNTIME=openvino applies to the service's own models: OpenVINO may be unable to run
 * an added one.
 */
function isRequired({ form }: PreparedModel, { wanted }: RuntimeOptions): boolean {
  return wanted === 'openvino' && form === undefined;
}

/** The measured memory bounds an added model's engines, so the larger of both runtimes counts. */
function runningOpenvino(
  model: PreparedModel,
  { library }: InstalledOpenvino,
  { compiled, peakBytes = 0 }: { readonly compiled: CompiledGraph; readonly peakBytes?: number },
): PreparedModel {
  const measured = model.peakBytes && { peakBytes: Math.max(model.peakBytes, peakBytes) };
  return { ...model, ...measured, openvino: { library, compiled } };
}

/** Undefined if alike, else in one line how they differ. */
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

async function compile(path: string, compileTo: (file: string) => Promise<void>): Promise<string> {
  let sha256 = '';
  await writeFileWhole(path, async file => {
    await compileTo(file.temporary);
    // OpenVINO does not report failed writes, so a full disk shows only here.
    const { bavail } = await statfs(file.temporary);
    if (bavail === 0) throw Object.assign(new Error('the disk is full'), { code: 'ENOSPC' });
    sha256 = await hashOpenFile(file.handle);
  });
  return sha256;
}

/** Removes unused files after a day, since other releases may run in the same folder. */
async function removeUnused(
  { path, recordsBeside = path }: RecordLocation,
  used: readonly string[],
) {
  const folder = dirname(recordsBeside);
  for (const name of await listDirectory(folder)) {
    const file = join(folder, name);
    if (!name.startsWith(`${basename(recordsBeside)}.openvino`) || used.includes(file)) continue;
    const madeMs = (await statOrNull(file))?.mtimeMs ?? Date.now();
    if (Date.now() - madeMs > UNUSED_MAX_MS) await removeQuietly(file);
  }
}

/** A compiled graph is code: a user who may write it decides what the engines run. */
async function whyUnusable({ path, sha256 }: CompiledGraph): Promise<string | undefined> {
  if ((await statOrNull(path)) === null) return 'is gone';
  return (
    (await whyUnsafeToRun(path)) ?? ((await hashFile(path)) === sha256 ? undefined : 'is altered')
  );
}

type RecordLocation = Pick<PreparedModel, 'path' | 'recordsBeside'>;

function recordPath({ path, recordsBeside = path }: RecordLocation): string {
  return `${recordsBeside}.runtimes.json`;
}

/**
 * One file for each version and machine: restarted engines load it again while another release or
 * kind of machine prepares in the same folder.
 */
function compiledPath(
  { path, recordsBeside = path }: RecordLocation,
  { version }: InstalledOpenvino,
  machine: string,
): string {
  const of = createHash('sha256')
    .update(JSON.stringify([version, machine]))
    .digest('hex');
  return `${recordsBeside}.openvino-${of.slice(0, NAME_DIGITS)}`;
}

/** Undefined if damaged, missing, or of another graph or version. */
async function readRuntimeRecord(
  model: PreparedModel,
  { version }: InstalledOpenvino,
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
