/**
 * Makes graphs that run from the checked weights of a plan: it chooses a precision, finds the
 * prepared file or lets the caller make it, and checks its answers. The caller provides the engine
 * to check with.
 */

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { arch, platform } from 'node:os';
import { dirname, join } from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { inputSizeOf, loadManifest, type ModelManifest } from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import type { PlanOutline } from '../models/plan.ts';
import {
  type ExecutionProvider,
  type GraphForm,
  largestInput,
  type Plan,
  type PlanModel,
  type Precision,
  type PreparedModel,
} from '../models/prepared-model.ts';
import {
  type Answering,
  type AnswerPicture,
  checkAnswer,
  drawCheckInput,
  type Machine,
  summariseAnswer,
} from './answer-check.ts';
import {
  checkPrepared,
  glanceAtPrepared,
  type PreparedKey,
  preparedPath,
} from './prepared-cache.ts';
import { loadRanges, type RangesFile } from './ranges.ts';
import { requireWeights, type WeightsFolders, weightsBySize } from './weights-cache.ts';

/** The steps come in this order; `discard` to `write` only if there is no usable prepared file. */
export type PrepareProgress =
  | { readonly step: 'check' }
  /** A prepared file is there and is not used; worth a log line. */
  | { readonly step: 'discard'; readonly path: string; readonly reason: string }
  /** The rewritten graph is for engines with an input of this size, in pixels. */
  | { readonly step: 'rewrite'; readonly width: number; readonly height: number }
  /** Deformable convolutions of an added model were mended, and are held against their stock form. */
  | { readonly step: 'compare'; readonly blocks: number }
  /** The added model's graph runs as it is. */
  | { readonly step: 'keep'; readonly reason: string }
  /** The mended one is used although its matte was not held against that of the stock form. */
  | { readonly step: 'mended'; readonly reason: string }
  | { readonly step: 'write'; readonly writtenBytes: number }
  | { readonly step: 'answer' };

/**
 * Makes a prepared file from the checked weights at `source`, with a sidecar. Returns the file's
 * sha256; undefined: a graph that runs as it is (manifest's graph.dynamic) has nothing to mend,
 * which the sidecar notes.
 */
export type MakePrepared = (
  source: string,
  key: PreparedKey,
  to: Pick<LoadOptions, 'manifest' | 'cacheDir' | 'onProgress' | 'memoryMaxBytes'>,
) => Promise<string | undefined>;

export interface LoadOptions extends WeightsFolders {
  readonly manifest: ModelManifest;
  readonly manifestDirectory?: string;
  /** Manifests of an operator's own models. */
  readonly addedModelsDir?: string;
  /** Pixels; the manifest's default when undefined. */
  readonly inputSize?: Size | undefined;
  readonly precision?: Precision | 'auto';
  readonly provider: ExecutionProvider;
  readonly instructionSet: string;
  readonly answering: Answering;
  readonly make: MakePrepared;
  /** Bounds the process that compares an added graph with its mended form; 4 GiB when absent. */
  readonly memoryMaxBytes?: number;
  readonly onProgress?: (progress: PrepareProgress) => void;
}

/**
 * Weights are checked also where a prepared file is there. Throws ModelError: `settings` (no such
 * size or precision), `missing` or `altered` weights, `manifest` (ranges), `prepare`, `disk`.
 */
export async function loadPrepared(options: LoadOptions): Promise<PreparedModel> {
  const { manifest, provider, instructionSet, onProgress } = options;
  const size = requireInputSize(manifest, options.inputSize);
  const wanted = options.precision ?? 'auto';
  const choice = choosePrecision(manifest, { wanted, size, provider, instructionSet });
  onProgress?.({ step: 'check' });
  const weights = await requireWeights(options, manifest);
  const source = requireGraphFile(weights, manifest);
  const use = (precision: Precision, ranges?: RangesFile) => {
    const { width: inputWidth, height: inputHeight } = size;
    // The sidecar lists the fields in this order.
    const key = { inputWidth, inputHeight, precision, provider, instructionSet, ranges };
    return useOrMake(source, key, options);
  };
  if (choice.precision !== 'int8') {
    const prepared = await use(choice.precision);
    return choice.fallback === undefined
      ? prepared
      : { ...prepared, precisionFallback: choice.fallback };
  }
  const ranges = await loadRanges(manifest, size.width, options.manifestDirectory);
  const quantised = await use('int8', ranges);
  const wrong = await checkQuantised(quantised, ranges, options);
  if (wrong === undefined) return quantised;
  const reason = `int8 does not run right here, ${wrong}`;
  if (wanted === 'int8') {
    throw new ModelError('prepare', `${manifest.name} (MATTING_PRECISION=int8): ${reason}`);
  }
  return { ...(await use('fp32')), precisionFallback: reason };
}

function checkQuantised(
  model: PreparedModel,
  { ranges }: RangesFile,
  { answering, onProgress }: LoadOptions,
): Promise<string | undefined> {
  onProgress?.({ step: 'answer' });
  return checkAnswer(model, async () => ranges.checkAnswer, answering);
}

/**
 * Finds what loadPrepared would use, by names, sizes and sidecars; it hashes, makes and runs
 * nothing. Undefined: the weights are not here, or the model is not prepared and needs it. A graph
 * that is made when it is loaded has no sum yet.
 */
export async function glanceAtModel(
  options: Pick<
    LoadOptions,
    'manifest' | 'cacheDir' | 'weightsDir' | 'inputSize' | 'provider' | 'instructionSet'
  >,
): Promise<PreparedModel | undefined> {
  const { manifest, cacheDir, provider, instructionSet } = options;
  const size = requireInputSize(manifest, options.inputSize);
  const wish = { wanted: 'auto', size, provider, instructionSet } as const;
  const { precision, fallback: precisionFallback } = choosePrecision(manifest, wish);
  const weights = await weightsBySize(options, manifest);
  if (weights === undefined) return undefined;
  const ranges = precision === 'int8' ? await loadRanges(manifest, size.width) : undefined;
  const { width: inputWidth, height: inputHeight } = size;
  const key = { inputWidth, inputHeight, precision, provider, instructionSet, ranges };
  const there = await glanceAtPrepared(cacheDir, manifest, key);
  if (there.state === 'ready') {
    const model = describePrepared(manifest, key, there.path, there.sha256);
    return precisionFallback === undefined ? model : { ...model, precisionFallback };
  }
  if (!isMadeOnLoad(manifest, provider)) return undefined;
  if (manifest.graph.dynamic === undefined) return describePrepared(manifest, key, '', '');
  return describeAsItIs(requireGraphFile(weights, manifest), key, options);
}

/**
 * An added graph takes a look, or is mended. `models fetch` prepares others for a CPU alone, and a
 * GPU's host has the memory for it.
 */
export function isMadeOnLoad({ graph }: ModelManifest, provider: ExecutionProvider): boolean {
  return graph.dynamic !== undefined || provider !== 'cpu';
}

function requireGraphFile(weights: ReadonlyMap<string, string>, { graph }: ModelManifest): string {
  const path = weights.get(graph.file);
  if (path === undefined) throw new Error('the manifest names a graph file it does not list');
  return path;
}

async function useOrMake(
  source: string,
  key: PreparedKey,
  options: LoadOptions,
): Promise<PreparedModel> {
  const { manifest, cacheDir, make } = options;
  const there = await findPrepared(source, key, options);
  if (there !== undefined) return there;
  const sha256 = await make(source, key, options);
  if (sha256 === undefined) return describeAsItIs(source, key, options);
  return describePrepared(manifest, key, preparedPath(cacheDir, manifest, key), sha256);
}

async function findPrepared(
  source: string,
  key: PreparedKey,
  { manifest, cacheDir, onProgress }: LoadOptions,
): Promise<PreparedModel | undefined> {
  const check = await checkPrepared(cacheDir, manifest, key);
  if (check.state === 'ready') return describePrepared(manifest, key, check.path, check.sha256);
  if (check.state === 'as it is') return describeAsItIs(source, key, { manifest, cacheDir });
  if (check.state === 'unusable') {
    onProgress?.({ step: 'discard', path: check.path, reason: check.reason });
  }
  return undefined;
}

function requireInputSize(manifest: ModelManifest, wanted: Size | undefined): Size {
  const { listed, multipleOf, min, max } = manifest.inputSize;
  const own = inputSizeOf(manifest);
  const { width, height } = wanted ?? own;
  const fits = (pixels: number) =>
    Number.isInteger(pixels) && pixels % multipleOf === 0 && pixels >= min && pixels <= max;
  const refuse = (sides: string) => {
    const what = `${manifest.name} cannot take an input of ${width}x${height} pixels`;
    return new ModelError('settings', `${what} (MATTING_MODEL_INPUT_SIZE): ${sides}`);
  };
  if (manifest.graph.dynamic === false) {
    if (width === own.width && height === own.height) return own;
    throw refuse(`its graph takes ${own.width}x${own.height} alone`);
  }
  if (manifest.fit === 'short-side' && width !== height) {
    throw refuse('by its fit, short-side, it takes the length of one side');
  }
  if (fits(width) && fits(height)) return { width, height };
  throw refuse(
    `its sides are multiples of ${multipleOf} from ${min} to ${max}, measured are ${listed.join(', ')}`,
  );
}

export function describePrepared(
  manifest: ModelManifest,
  key: PreparedKey,
  path: string,
  sha256: string,
): PreparedModel {
  const model: PreparedModel = {
    model: manifest.name,
    version: manifest.version,
    path,
    sha256,
    weights: manifest.files.map(file => file.sha256),
    precision: key.precision,
    provider: key.provider,
    inputWidth: key.inputWidth,
    inputHeight: key.inputHeight,
    inputName: manifest.graph.inputName,
    outputName: manifest.graph.outputName,
    normalisation: manifest.normalisation,
    colourOrder: manifest.colourOrder,
    activation: manifest.activation,
    ...(manifest.graph.dynamic !== undefined && { form: formOf(manifest) }),
    licence: manifest.licence,
  };
  const peakBytes = peakBytesOf(model, manifest);
  return peakBytes === undefined ? model : { ...model, peakBytes };
}

/** A run's memory above the loaded graph grows with the input's pixels. */
function peakBytesOf(model: PreparedModel, { measured, graph }: ModelManifest): number | undefined {
  if (measured === undefined) return undefined;
  const { width, height } = largestInput(model);
  const share = (width * height) / (graph.inputWidth * graph.inputHeight);
  const { loadedBytes, peakBytes } = measured;
  return Math.ceil(loadedBytes + share * Math.max(0, peakBytes - loadedBytes));
}

function formOf({ graph, inputSize, fit = 'stretch', inverted }: ModelManifest): GraphForm {
  const { inputType = 'float32', layout = 'nchw', trimap } = graph;
  const { multipleOf, min, max } = inputSize;
  // Left out where it says nothing, so that a model keeps the checksum that fleets know it by.
  const least = min > multipleOf && { min };
  const sides = fit === 'short-side' && { sides: { multipleOf, ...least, max } };
  const form = { inputType, layout, fit, ...sides, inverted: inverted === true };
  return trimap ? { ...form, trimap } : form;
}

/** The weights file itself, from the folder in which its external data lies. */
export function describeAsItIs(
  source: string,
  key: PreparedKey,
  { manifest, cacheDir }: Pick<LoadOptions, 'manifest' | 'cacheDir'>,
): PreparedModel {
  const file = manifest.files.find(({ name }) => name === manifest.graph.file);
  assert(file, 'a manifest lists the file of its graph');
  const data = manifest.files
    .filter(({ name }) => name !== file.name)
    .map(({ name, sha256 }) => ({ path: join(dirname(source), name), sha256 }));
  const recordsBeside = preparedPath(cacheDir, manifest, key);
  const model = { ...describePrepared(manifest, key, source, file.sha256), recordsBeside };
  return data.length === 0 ? model : { ...model, data };
}

/*
 * Names files that are right for a class of CPUs only: quantised graphs are for those that multiply
 * bytes in one instruction (VNNI, DOTPROD), and several kinds may share a cache.
 */

/** The classes go from the most capable to the least; the first with all its flags applies. */
const X64_CLASSES: readonly (readonly [name: string, ...flags: string[]])[] = [
  ['x64-amx-int8', 'amx_int8', 'avx512_vnni'],
  ['x64-avx512-vnni', 'avx512f', 'avx512_vnni'],
  ['x64-avx2-vnni', 'avx2', 'avx_vnni'],
  ['x64-avx512', 'avx512f', 'avx512bw'],
  ['x64-avx2', 'avx2', 'fma'],
];

const ARM64_CLASSES: readonly (readonly [name: string, ...flags: string[]])[] = [
  ['arm64-neon-i8mm', 'asimddp', 'i8mm'],
  ['arm64-neon-dotprod', 'asimddp'],
];

export function classifyInstructionSet(
  architecture: string,
  operatingSystem: string,
  cpuInfo: string,
): string {
  const line = cpuInfo.match(/^(?:flags|Features)\s*:(.*)$/m)?.[1] ?? '';
  const flags = new Set(line.trim().split(/\s+/));
  const first = (classes: typeof X64_CLASSES) =>
    classes.find(([, ...wanted]) => wanted.every(flag => flags.has(flag)))?.[0];
  if (architecture === 'x64') return first(X64_CLASSES) ?? 'x64-base';
  if (architecture === 'arm64') {
    // All of Apple's own CPUs have DOTPROD, and macOS has no /proc.
    const base = operatingSystem === 'darwin' ? 'arm64-neon-dotprod' : 'arm64-neon';
    return first(ARM64_CLASSES) ?? base;
  }
  return architecture;
}

/** These multiply bytes and add the products up in 32 bits, in one instruction. */
const INT8_CLASSES: ReadonlySet<string> = new Set([
  'x64-amx-int8',
  'x64-avx512-vnni',
  'x64-avx2-vnni',
  'arm64-neon-i8mm',
  'arm64-neon-dotprod',
]);

/** Without it int8 is no faster, and on x64 sums of two products saturate at 16 bits. */
export function carriesInt8(instructionSet: string): boolean {
  return INT8_CLASSES.has(instructionSet);
}

export async function detectInstructionSet(): Promise<string> {
  const cpuInfo = platform() === 'linux' ? await readFile('/proc/cpuinfo', 'utf8') : '';
  return classifyInstructionSet(arch(), platform(), cpuInfo);
}

export interface PrecisionWish {
  readonly wanted: Precision | 'auto';
  readonly size: Size;
  readonly provider: ExecutionProvider;
  readonly instructionSet: string;
}

interface PrecisionChoice {
  readonly precision: Precision;
  /** This line explains why `auto` did not choose int8. */
  readonly fallback?: string;
}

/**
 * `auto`: int8 on a CPU with the instructions, where the model has ranges; else fp32; on GPUs fp16
 * where the model has it; of a graph that runs as it is its own. Throws ModelError `settings`: a named one is never replaced.
 */
export function choosePrecision(manifest: ModelManifest, wish: PrecisionWish): PrecisionChoice {
  const { wanted, provider, instructionSet } = wish;
  if (wanted !== 'auto') return { precision: requireNamed(manifest, wanted, wish) };
  if (manifest.graph.dynamic !== undefined) return { precision: manifest.graph.precision };
  if (provider !== 'cpu') {
    return { precision: manifest.precisions.includes('fp16') ? 'fp16' : 'fp32' };
  }
  if (!manifest.precisions.includes('int8')) return { precision: 'fp32' };
  if (!hasRanges(manifest, wish.size)) {
    const sizes = (manifest.inputSize.int8 ?? []).join(', ');
    const fallback = `it has ranges for int8 at ${sizes}, not at ${describeMiss(wish.size)}`;
    return { precision: 'fp32', fallback };
  }
  if (carriesInt8(instructionSet)) return { precision: 'int8' };
  const fallback = `this CPU (${instructionSet}) has no instruction for int8: no VNNI, no DOTPROD`;
  return { precision: 'fp32', fallback };
}

function requireNamed(
  manifest: ModelManifest,
  wanted: Precision,
  { size, provider }: PrecisionWish,
): Precision {
  const refuse = (why: string): never => {
    const what = `${manifest.name} cannot be prepared in ${wanted} (MATTING_PRECISION)`;
    throw new ModelError('settings', `${what}: ${why}`);
  };
  const { precisions, inputSize } = manifest;
  if (!precisions.includes(wanted)) refuse(`it can in ${precisions.join(', ')}`);
  if (wanted !== 'int8') return wanted;
  if (provider !== 'cpu') refuse(`int8 is for CPUs, the execution provider is ${provider}`);
  if (!hasRanges(manifest, size)) {
    refuse(`it has ranges at ${(inputSize.int8 ?? []).join(', ')}, not at ${describeMiss(size)}`);
  }
  return wanted;
}

function hasRanges({ inputSize }: ModelManifest, { width, height }: Size): boolean {
  return width === height && (inputSize.int8 ?? []).includes(width);
}

function describeMiss({ width, height }: Size): string {
  return width === height ? String(width) : `${width}x${height}`;
}

/* Half precision, a driver's kernels, a wrong card: they show in a whole model only. */

export interface DeviceAnswerOptions
  extends Pick<
    LoadOptions,
    | 'cacheDir'
    | 'weightsDir'
    | 'manifestDirectory'
    | 'addedModelsDir'
    | 'instructionSet'
    | 'answering'
    | 'make'
  > {
  readonly model: PreparedModel;
  readonly answer: AnswerPicture;
  readonly machine: Machine;
}

/** Returns undefined if the GPU's answer is the model's; else one line that says what is wrong. */
export async function checkAnswerOnDevice(
  options: DeviceAnswerOptions,
): Promise<string | undefined> {
  return await checkAnswer(options.model, () => storedAnswer(options), options);
}

/** Answers from the model's ranges if it has some for this size, else from the CPU in fp32, now. */
async function storedAnswer(options: DeviceAnswerOptions): Promise<readonly number[]> {
  const { model, manifestDirectory, addedModelsDir } = options;
  const { inputWidth: width, inputHeight: height } = model;
  const manifest = await loadManifest(model.model, manifestDirectory, addedModelsDir);
  if (width === height && (manifest.inputSize.int8 ?? []).includes(width)) {
    const { ranges } = await loadRanges(manifest, width, manifestDirectory);
    return ranges.checkAnswer;
  }
  return await answerOfCpu(manifest, options);
}

async function answerOfCpu(
  manifest: ModelManifest,
  { model, ...options }: DeviceAnswerOptions,
): Promise<readonly number[]> {
  const { inputWidth: width, inputHeight: height } = model;
  const { cacheDir, weightsDir, instructionSet, answering, make } = options;
  const onCpu = await loadPrepared({
    ...{ manifest, cacheDir, weightsDir, instructionSet, answering, make },
    inputSize: { width, height },
    precision: manifest.graph.dynamic === undefined ? 'fp32' : 'auto',
    provider: 'cpu',
  });
  return summariseAnswer(await answering.answer(onCpu, drawCheckInput(onCpu)));
}

/** Everything but `outline` is the same for every model. */
export interface PlanOptions extends Omit<LoadOptions, 'manifest' | 'onProgress' | 'inputSize'> {
  readonly outline: PlanOutline;
  readonly onProgress?: (model: string, progress: PrepareProgress) => void;
}

export async function buildPlan(options: PlanOptions): Promise<Plan> {
  const { outline, onProgress, ...preparation } = options;
  const models: PlanModel[] = [];
  for (const { model: name, inputSize: side, role } of outline.entries) {
    const manifest = await loadManifest(name, options.manifestDirectory, options.addedModelsDir);
    const model = await loadPrepared({
      ...preparation,
      manifest,
      inputSize: side === undefined ? undefined : { width: side, height: side },
      onProgress: progress => onProgress?.(name, progress),
    });
    models.push({ model, role });
  }
  return { name: outline.name, models };
}
