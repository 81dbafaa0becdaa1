/**
 * From checked weights to a graph that runs: the prepared one in the cache, or a new one. Knows
 * nothing of sessions: engines get a path, and the caller provides an engine to check int8 with.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { writeFileWhole } from '../../serving/models/cache-files.ts';
import type { ModelManifest } from '../../serving/models/manifest.ts';
import { diskError, ModelError } from '../../serving/models/model-error.ts';
import type {
  ExecutionProvider,
  Precision,
  PreparedModel,
} from '../../serving/models/prepared-model.ts';
import { decodeModel, encodeModel } from '../onnx/model-file.ts';
import { prepareGraph } from '../onnx/passes/prepare-graph.ts';
import type { ImageSize } from '../onnx/passes/set-input-size.ts';
import { alteredWeights, requireWeights, type WeightsPlaces } from '../weights/weights-cache.ts';
import { type AnswerPicture, checkAnswer } from './answer-check.ts';
import { choosePrecision } from './choose-precision.ts';
import {
  checkPrepared,
  cleanPrepared,
  type PreparedKey,
  preparedPath,
  writeSidecar,
} from './prepared-cache.ts';
import { fitRanges, loadRanges, type RangesFile } from './ranges.ts';

/** In this order; `discard` to `write` only where there is no usable prepared file. */
export type PrepareProgress =
  | { readonly step: 'check' }
  /** A prepared file is there and is not used; worth a log line. */
  | { readonly step: 'discard'; readonly path: string; readonly reason: string }
  | { readonly step: 'rewrite' }
  | { readonly step: 'write'; readonly writtenBytes: number }
  /** An int8 graph runs on the check picture. */
  | { readonly step: 'answer' };

/** Runs a prepared graph on this machine. */
export interface Answering {
  readonly answer: AnswerPicture;
  /** The CPU and the runtime, in words. */
  readonly machine: string;
}

export interface PrepareOptions extends WeightsPlaces {
  readonly manifest: ModelManifest;
  /** Where the model's ranges are; by default the product's own. */
  readonly manifestDirectory?: string;
  /** Pixels; the manifest's default, a square, when undefined. */
  readonly inputSize?: ImageSize | undefined;
  /** choose-precision.ts has the rule for `auto`, the default. */
  readonly precision?: Precision | 'auto';
  readonly provider: ExecutionProvider;
  /** instruction-set.ts. */
  readonly instructionSet: string;
  /** Checks an int8 graph. */
  readonly answering: Answering;
  readonly onProgress?: (progress: PrepareProgress) => void;
}

/**
 * Throws ModelError: `settings` for a size or precision the model does not have; `missing` or
 * `altered` weights; `manifest` for ranges that do not fit; `prepare`, also for a named precision
 * that does not run correctly here; `disk`. The weights are checked even when a prepared file is
 * there: a node does not start on an altered cache.
 */
export async function prepareModel(options: PrepareOptions): Promise<PreparedModel> {
  const { manifest, provider, instructionSet, onProgress } = options;
  const size = requireInputSize(manifest, options.inputSize);
  const wanted = options.precision ?? 'auto';
  const choice = choosePrecision(manifest, { wanted, size, provider, instructionSet });
  onProgress?.({ step: 'check' });
  const weights = await requireWeights(options, manifest);
  const source = weights.get(manifest.graph.file);
  if (source === undefined) throw new Error('the manifest names a graph file it does not list');
  const make = (precision: Precision, ranges?: RangesFile) => {
    const { width: inputWidth, height: inputHeight } = size;
    // In the order in which they are written down.
    const key = { inputWidth, inputHeight, precision, provider, instructionSet, ranges };
    return makePrepared(source, key, options);
  };
  if (choice.precision !== 'int8') {
    const prepared = await make(choice.precision);
    return choice.fallback === undefined
      ? prepared
      : { ...prepared, precisionFallback: choice.fallback };
  }
  const ranges = await loadRanges(manifest, size.width, options.manifestDirectory);
  const quantised = await make('int8', ranges);
  const wrong = await checkQuantised(quantised, ranges, options);
  if (wrong === undefined) return quantised;
  const reason = `int8 does not run right here, ${wrong}`;
  if (wanted === 'int8') {
    throw new ModelError('prepare', `${manifest.name} (MATTING_PRECISION=int8): ${reason}`);
  }
  return { ...(await make('fp32')), precisionFallback: reason };
}

function checkQuantised(
  model: PreparedModel,
  { ranges }: RangesFile,
  { answering, onProgress }: PrepareOptions,
): Promise<string | undefined> {
  onProgress?.({ step: 'answer' });
  return checkAnswer(model, async () => ranges.checkAnswer, answering);
}

/** Uses the file in the cache, or makes a new one. */
async function makePrepared(
  source: string,
  key: PreparedKey,
  options: PrepareOptions,
): Promise<PreparedModel> {
  const { manifest, cacheDir } = options;
  const there = await findPrepared(key, options);
  if (there !== undefined) return there;
  // Two processes on one cache that make it at once make the same bytes.
  const sha256 = await writePrepared(source, key, options);
  await cleanPrepared(cacheDir, manifest);
  return describe(manifest, key, preparedPath(cacheDir, manifest, key), sha256);
}

async function findPrepared(
  key: PreparedKey,
  { manifest, cacheDir, onProgress }: PrepareOptions,
): Promise<PreparedModel | undefined> {
  const check = await checkPrepared(cacheDir, manifest, key);
  if (check.state === 'ready') return describe(manifest, key, check.path, check.sha256);
  if (check.state === 'unusable') {
    onProgress?.({ step: 'discard', path: check.path, reason: check.reason });
  }
  return undefined;
}

/** Returns the file's sha256. */
async function writePrepared(
  source: string,
  key: PreparedKey,
  options: PrepareOptions,
): Promise<string> {
  const { manifest, cacheDir, onProgress } = options;
  onProgress?.({ step: 'rewrite' });
  const bytes = await readChecked(source, manifest);
  const { inputName, outputName, inputWidth, inputHeight } = manifest.graph;
  const { precision, provider, ranges } = key;
  const { normalisation, colourOrder, activation } = manifest;
  const graph = prepareGraph(decodeModel(bytes, source), {
    inputName,
    outputName,
    exported: { width: inputWidth, height: inputHeight },
    wanted: { width: key.inputWidth, height: key.inputHeight },
    precision,
    pixels: takesBytes(provider) ? { normalisation, colourOrder, activation } : undefined,
    quantise: ranges && (float32 => fitRanges(ranges, manifest, float32)),
  });
  const hash = createHash('sha256');
  let writtenBytes = 0;
  await writeFileWhole(preparedPath(cacheDir, manifest, key), async file => {
    for (const piece of encodeModel(graph)) {
      hash.update(piece);
      await file.write(piece, writtenBytes);
      writtenBytes += piece.length;
      onProgress?.({ step: 'write', writtenBytes });
    }
  });
  const sha256 = hash.digest('hex');
  await writeSidecar(cacheDir, manifest, key, writtenBytes, sha256);
  return sha256;
}

/**
 * What copies to another device, and has kernels for bytes and float64. On a CPU the conversion in
 * the graph takes as long as ours beside it; WebGPU has neither type.
 */
function takesBytes(provider: ExecutionProvider): boolean {
  return provider === 'cuda' || provider === 'tensorrt';
}

/** Hashes the bytes that the graph is made from: a record of an earlier check is not enough. */
async function readChecked(path: string, manifest: ModelManifest): Promise<Buffer> {
  const file = manifest.files.find(({ name }) => name === manifest.graph.file);
  let bytes: Buffer;
  try {
    bytes = await readFile(path);
  } catch (error) {
    throw diskError(error, 'read', path);
  }
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  if (sha256 !== file?.sha256) {
    throw alteredWeights(manifest, path, `its sha256 is ${sha256}, not ${file?.sha256}`);
  }
  return bytes;
}

function requireInputSize(manifest: ModelManifest, wanted: ImageSize | undefined): ImageSize {
  const { default: side, listed, multipleOf, min, max } = manifest.inputSize;
  const size = wanted ?? { width: side, height: side };
  const fits = (pixels: number) =>
    Number.isInteger(pixels) && pixels % multipleOf === 0 && pixels >= min && pixels <= max;
  if (fits(size.width) && fits(size.height)) return size;
  throw new ModelError(
    'settings',
    `${manifest.name} cannot take an input of ${size.width}x${size.height} pixels ` +
      `(MATTING_MODEL_INPUT_SIZE): its sides are multiples of ${multipleOf} from ${min} to ` +
      `${max}, measured are ${listed.join(', ')}`,
  );
}

function describe(
  manifest: ModelManifest,
  key: PreparedKey,
  path: string,
  sha256: string,
): PreparedModel {
  return {
    model: manifest.name,
    version: manifest.version,
    path,
    sha256,
    precision: key.precision,
    provider: key.provider,
    inputWidth: key.inputWidth,
    inputHeight: key.inputHeight,
    inputName: manifest.graph.inputName,
    outputName: manifest.graph.outputName,
    normalisation: manifest.normalisation,
    colourOrder: manifest.colourOrder,
    activation: manifest.activation,
    licence: manifest.licence,
  };
}
