/**
 * From checked weights to a graph that runs: the one that lies prepared in the cache, or a new one.
 * Knows nothing of sessions; engines get a path.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { writeFileWhole } from './cache-files.ts';
import type { ModelManifest } from './manifest.ts';
import { diskError, ModelError } from './model-error.ts';
import { decodeModel, encodeModel } from './onnx/model-file.ts';
import type { ImageSize } from './onnx/passes/set-input-size.ts';
import { prepareGraph } from './onnx/prepare-graph.ts';
import {
  checkPrepared,
  cleanPrepared,
  type PreparedKey,
  preparedPath,
  writeSidecar,
} from './prepared-cache.ts';
import type { ExecutionProvider, Precision, PreparedModel } from './prepared-model.ts';
import { alteredWeights, requireWeights } from './weights-cache.ts';

/** In this order; `discard` and what follows only where there is no usable prepared file. */
export type PrepareProgress =
  | { readonly step: 'check' }
  /** A prepared file was there and is not used; worth a log line. */
  | { readonly step: 'discard'; readonly path: string; readonly reason: string }
  | { readonly step: 'rewrite' }
  | { readonly step: 'write'; readonly writtenBytes: number };

export interface PrepareOptions {
  readonly manifest: ModelManifest;
  /** Absolute. */
  readonly cacheDir: string;
  /** Pixels; the manifest's default, a square, when not given. */
  readonly inputSize?: ImageSize;
  /** `auto`, the default: fp32 on a CPU, on others fp16 where the model has it. */
  readonly precision?: Precision | 'auto';
  readonly provider: ExecutionProvider;
  /** instruction-set.ts. */
  readonly instructionSet: string;
  readonly onProgress?: (progress: PrepareProgress) => void;
}

/**
 * Throws ModelError: `settings` for a size or precision the model has not; `missing` or `altered`
 * weights; `prepare`; `disk`. The weights are checked even when a prepared file is there: a node
 * does not start on a cache that somebody altered.
 */
export async function prepareModel(options: PrepareOptions): Promise<PreparedModel> {
  const { manifest, cacheDir, onProgress } = options;
  const size = requireInputSize(manifest, options.inputSize);
  const precision = requirePrecision(manifest, options.precision ?? 'auto', options.provider);
  const key: PreparedKey = {
    inputWidth: size.width,
    inputHeight: size.height,
    precision,
    provider: options.provider,
    instructionSet: options.instructionSet,
  };
  onProgress?.({ step: 'check' });
  const weights = await requireWeights(cacheDir, manifest);
  const check = await checkPrepared(cacheDir, manifest, key);
  if (check.state === 'ready') return describe(manifest, key, check.path, check.sha256);
  if (check.state === 'unusable') {
    onProgress?.({ step: 'discard', path: check.path, reason: check.reason });
  }
  const source = weights.get(manifest.graph.file);
  if (source === undefined) throw new Error('the manifest names a graph file it does not list');
  const sha256 = await writePrepared(source, key, options);
  await cleanPrepared(cacheDir, manifest);
  return describe(manifest, key, preparedPath(cacheDir, manifest, key), sha256);
}

/** Returns the file's sha256. */
async function writePrepared(
  source: string,
  key: PreparedKey,
  options: PrepareOptions,
): Promise<string> {
  const { manifest, cacheDir, onProgress } = options;
  onProgress?.({ step: 'rewrite' });
  const bytes = await readProven(source, manifest);
  const { inputName, outputName, inputWidth, inputHeight } = manifest.graph;
  const { precision } = key;
  if (precision === 'int8') throw new Error('precision int8 has no pass');
  const graph = prepareGraph(decodeModel(bytes, source), {
    inputName,
    outputName,
    exported: { width: inputWidth, height: inputHeight },
    wanted: { width: key.inputWidth, height: key.inputHeight },
    precision,
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

/** The very bytes the graph is made from are hashed: a record of an earlier check is not enough. */
async function readProven(path: string, manifest: ModelManifest): Promise<Buffer> {
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

function requirePrecision(
  manifest: ModelManifest,
  wanted: Precision | 'auto',
  provider: ExecutionProvider,
): Precision {
  const { precisions } = manifest;
  if (wanted === 'auto') {
    return provider !== 'cpu' && precisions.includes('fp16') ? 'fp16' : 'fp32';
  }
  if (wanted !== 'int8' && precisions.includes(wanted)) return wanted;
  throw new ModelError(
    'settings',
    `${manifest.name} cannot be prepared in ${wanted} (MATTING_PRECISION): ` +
      `it can in ${precisions.join(', ')}`,
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
  };
}
