/**
 * From checked weights to a graph that runs: the prepared one in the cache, or a new one that the
 * caller makes. Knows nothing of sessions: engines get a path, and the caller provides an engine to
 * check int8 with.
 */
import type { Size } from '#contract/finishing.ts';
import type { ModelManifest } from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import type { ExecutionProvider, Precision, PreparedModel } from '../models/prepared-model.ts';
import { type Answering, checkAnswer } from './answer-check.ts';
import { choosePrecision } from './choose-precision.ts';
import { checkPrepared, type PreparedKey, preparedPath } from './prepared-cache.ts';
import { loadRanges, type RangesFile } from './ranges.ts';
import { requireWeights, type WeightsPlaces } from './weights-cache.ts';

/** In this order; `discard` to `write` only where there is no usable prepared file. */
export type PrepareProgress =
  | { readonly step: 'check' }
  /** A prepared file is there and is not used; worth a log line. */
  | { readonly step: 'discard'; readonly path: string; readonly reason: string }
  | { readonly step: 'rewrite' }
  | { readonly step: 'write'; readonly writtenBytes: number }
  /** An int8 graph runs on the check picture. */
  | { readonly step: 'answer' };

/**
 * Writes the prepared file of `key` from the checked weights at `source`, and its sidecar. Returns
 * the file's sha256.
 */
export type MakePrepared = (
  source: string,
  key: PreparedKey,
  to: Pick<LoadOptions, 'manifest' | 'cacheDir' | 'onProgress'>,
) => Promise<string>;

export interface LoadOptions extends WeightsPlaces {
  readonly manifest: ModelManifest;
  /** Where the model's ranges are; by default the product's own. */
  readonly manifestDirectory?: string;
  /** Pixels; the manifest's default, a square, when undefined. */
  readonly inputSize?: Size | undefined;
  /** choose-precision.ts has the rule for `auto`, the default. */
  readonly precision?: Precision | 'auto';
  readonly provider: ExecutionProvider;
  /** instruction-set.ts. */
  readonly instructionSet: string;
  /** Checks an int8 graph. */
  readonly answering: Answering;
  /** Called where there is no usable prepared file. */
  readonly make: MakePrepared;
  readonly onProgress?: (progress: PrepareProgress) => void;
}

/**
 * Throws ModelError: `settings` for a size or precision the model does not have; `missing` or
 * `altered` weights; `manifest` for ranges that do not fit; `prepare`, also for a named precision
 * that does not run correctly here; `disk`. The weights are checked even when a prepared file is
 * there: a node does not start on an altered cache.
 */
export async function loadPrepared(options: LoadOptions): Promise<PreparedModel> {
  const { manifest, provider, instructionSet, onProgress } = options;
  const size = requireInputSize(manifest, options.inputSize);
  const wanted = options.precision ?? 'auto';
  const choice = choosePrecision(manifest, { wanted, size, provider, instructionSet });
  onProgress?.({ step: 'check' });
  const weights = await requireWeights(options, manifest);
  const source = weights.get(manifest.graph.file);
  if (source === undefined) throw new Error('the manifest names a graph file it does not list');
  const use = (precision: Precision, ranges?: RangesFile) => {
    const { width: inputWidth, height: inputHeight } = size;
    // In the order in which they are written down.
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

/** Uses the file in the cache, or makes a new one. */
async function useOrMake(
  source: string,
  key: PreparedKey,
  options: LoadOptions,
): Promise<PreparedModel> {
  const { manifest, cacheDir, make } = options;
  const there = await findPrepared(key, options);
  if (there !== undefined) return there;
  const sha256 = await make(source, key, options);
  return describe(manifest, key, preparedPath(cacheDir, manifest, key), sha256);
}

async function findPrepared(
  key: PreparedKey,
  { manifest, cacheDir, onProgress }: LoadOptions,
): Promise<PreparedModel | undefined> {
  const check = await checkPrepared(cacheDir, manifest, key);
  if (check.state === 'ready') return describe(manifest, key, check.path, check.sha256);
  if (check.state === 'unusable') {
    onProgress?.({ step: 'discard', path: check.path, reason: check.reason });
  }
  return undefined;
}

function requireInputSize(manifest: ModelManifest, wanted: Size | undefined): Size {
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
