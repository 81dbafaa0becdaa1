import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { loadManifest, type ModelManifest, requireInputSize } from '../models/manifest.ts';
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
import { type Answering, checkAnswer } from './answer-check.ts';
import { choosePrecision } from './choose-precision.ts';
import { prepareRuntime, type RuntimeOptions, recordedRuntime } from './cpu-runtime.ts';
import { detectInstructionSet } from './instruction-set.ts';
import { checkPrepared, type PreparedKey, preparedPath } from './prepared-cache.ts';
import { loadRanges, type RangesFile } from './ranges.ts';
import { requireWeights, type WeightsFolders } from './weights-cache.ts';

/** In this order. `discard` to `write` come only if there is no usable prepared file. */
export type PrepareProgress =
  | { readonly step: 'check' }
  | { readonly step: 'discard'; readonly path: string; readonly reason: string }
  | { readonly step: 'rewrite'; readonly width: number; readonly height: number }
  | { readonly step: 'compare'; readonly blocks: number }
  /** An added model's graph runs as it is. */
  | { readonly step: 'keep'; readonly reason: string }
  /** The graph with replaced convolutions is used, although its matte was not compared. */
  | { readonly step: 'mended'; readonly reason: string }
  | { readonly step: 'write'; readonly writtenBytes: number }
  | { readonly step: 'answer' }
  | { readonly step: 'runtimes' };

/**
 * Makes a prepared file and its sidecar from the checked weights at `source`. Returns the file's
 * SHA-256. Undefined: the weights file runs as it is, which the sidecar notes.
 */
export type MakePrepared = (
  source: string,
  key: PreparedKey,
  to: Pick<LoadOptions, 'manifest' | 'cacheDir' | 'onProgress' | 'memoryMaxBytes'>,
) => Promise<string | undefined>;

export interface LoadOptions extends WeightsFolders {
  readonly manifest: ModelManifest;
  readonly manifestDirectory?: string;
  readonly addedModelsDir?: string;
  /** Pixels. Undefined: the manifest's default. */
  readonly inputSize?: Size | undefined;
  readonly precision?: Precision | 'auto';
  readonly provider: ExecutionProvider;
  /** CPU class that the file is for. Undefined: this machine's. */
  readonly instructionSet?: string | undefined;
  readonly answering: Answering;
  readonly make: MakePrepared;
  readonly runtime?: RuntimeOptions | undefined;
  readonly memoryMaxBytes?: number;
  readonly onProgress?: (progress: PrepareProgress) => void;
}

/**
 * Checks the weights even if there is a prepared file.
 * @throws ModelError
 */
export async function loadPrepared(options: LoadOptions): Promise<PreparedModel> {
  const model = await loadGraph(options);
  const { runtime, answering } = options;
  if (runtime === undefined) return model;
  if (runtime.comparing === undefined) return await recordedRuntime(model, runtime, answering);
  const onCompare = () => options.onProgress?.({ step: 'runtimes' });
  return await prepareRuntime(model, runtime, answering, onCompare);
}

async function loadGraph(options: LoadOptions): Promise<PreparedModel> {
  const { manifest, provider, onProgress } = options;
  const { instructionSet = await detectInstructionSet() } = options;
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

export function requireGraphFile(weights: ReadonlyMap<string, string>, { graph }: ModelManifest) {
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
  // `min` is left out if it equals `multipleOf`, so that models keep the checksum they had before.
  const least = min > multipleOf && { min };
  const sides = fit === 'short-side' && { sides: { multipleOf, ...least, max } };
  const form = { inputType, layout, fit, ...sides, inverted: inverted === true };
  return trimap ? { ...form, trimap } : form;
}

/** Describes the weights file itself, which lies next to its external data. */
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

interface PlanOptions extends Omit<LoadOptions, 'manifest' | 'onProgress' | 'inputSize'> {
  readonly outline: PlanOutline;
  readonly onProgress?: (model: string, progress: PrepareProgress) => void;
}

export async function buildPlan(options: PlanOptions): Promise<Plan> {
  const { outline, onProgress, ...preparation } = options;
  const models: PlanModel[] = [];
  for (const { model: name, inputSize: side, role, extraRuns } of outline.entries) {
    const manifest = await loadManifest(name, options.manifestDirectory, options.addedModelsDir);
    const model = await loadPrepared({
      ...preparation,
      manifest,
      inputSize: side === undefined ? undefined : { width: side, height: side },
      onProgress: progress => onProgress?.(name, progress),
    });
    models.push({ model, role, extraRuns });
  }
  return { name: outline.name, models };
}
