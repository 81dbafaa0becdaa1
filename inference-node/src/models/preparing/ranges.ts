/**
 * The ranges by which a model is quantised, in `models/<name>/ranges-<size>.json`: measured once on
 * photos by `npm run calibrate`, committed, and checked here value by value before a graph is made
 * by them. They belong to one weights file and one input size, and name both.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from '../cache-files.ts';
import { MANIFEST_DIRECTORY, type ModelManifest } from '../manifest.ts';
import { FieldReader } from '../manifest-fields.ts';
import { diskError, ModelError } from '../model-error.ts';
import type { Graph } from '../onnx/graph.ts';
import type { Quantisation, Range, Scale } from '../onnx/passes/quantise.ts';
import { planQuantisation } from '../onnx/quantisation-plan.ts';
import { CHECK_BLOCKS } from './check-picture.ts';

/** A photo that the ranges were measured on. */
export interface CalibrationPhoto {
  /** Of its file, without the folder; for people. */
  readonly name: string;
  /** Hexadecimal. */
  readonly sha256: string;
}

export interface Ranges {
  readonly model: string;
  /** The manifest's version of the weights. */
  readonly version: string;
  /** Of the weights file that they were measured on, hexadecimal. */
  readonly weightsSha256: string;
  /** Side of the square, pixels. */
  readonly inputSize: number;
  /** This fraction of a value's numbers lies beyond either end. */
  readonly quantile: number;
  /** A range ends at most at so much of the median of the photos' own ends; not given: no bound. */
  readonly percentOfMedianMax?: number;
  readonly photos: readonly CalibrationPhoto[];
  /** Outputs of convolutions that stay float32 (quantisation-plan.ts). */
  readonly float32: readonly string[];
  readonly ranges: ReadonlyMap<string, Range>;
  /** What the quantised model answers to the check picture: means of blocks of alpha, 0 to 255. */
  readonly checkAnswer: readonly number[];
}

export interface RangesFile {
  /** In the model's directory. */
  readonly name: string;
  /** Of the file, hexadecimal. */
  readonly sha256: string;
  readonly ranges: Ranges;
}

const SHA256 = /^[0-9a-f]{64}$/;
const SIDE_MAX = 8192;
const QUANTILE_PARTS = 1_000_000;
const PERCENT_OF_MEDIAN_MAX = 10_000;
const ALPHA_MAX = 255;

export function rangesFileName(side: number): string {
  return `ranges-${side}.json`;
}

/**
 * Throws ModelError `manifest`, with file and field, when the file is not there, is malformed, or
 * was made for something else than `manifest` at this size.
 */
export async function loadRanges(
  manifest: ModelManifest,
  side: number,
  directory = MANIFEST_DIRECTORY,
): Promise<RangesFile> {
  const name = rangesFileName(side);
  const path = join(directory, manifest.name, name);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (!isMissing(error)) throw diskError(error, 'read', path);
    throw new ModelError('manifest', `${path} is missing, the manifest lists int8 at ${side}`);
  }
  const ranges = parseRanges(text, path);
  requireFitting(ranges, manifest, side, path);
  return { name, sha256: createHash('sha256').update(text).digest('hex'), ranges };
}

/** `file` is named in errors. */
export function parseRanges(text: string, file: string): Ranges {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new ModelError('manifest', `${file}: not JSON: ${(error as Error).message}`, error);
  }
  const fields = new FieldReader(json, file, '');
  const ranges: Ranges = {
    model: fields.text('model'),
    version: fields.text('version'),
    weightsSha256: fields.text('weightsSha256', SHA256),
    inputSize: fields.integer('inputSize', 1, SIDE_MAX),
    quantile: fields.integer('quantilePerMillion', 0, QUANTILE_PARTS / 2) / QUANTILE_PARTS,
    ...(fields.has('percentOfMedianMax') && {
      percentOfMedianMax: fields.integer('percentOfMedianMax', 100, PERCENT_OF_MEDIAN_MAX),
    }),
    photos: fields.list('photos', photo => {
      const entry = { name: photo.text('name'), sha256: photo.text('sha256', SHA256) };
      photo.end();
      return entry;
    }),
    float32: fields.has('float32') ? fields.texts('float32') : [],
    ranges: new Map(
      fields.entries('ranges').map(([name, value]) => [name, requireRange(fields, name, value)]),
    ),
    checkAnswer: fields.integers('checkAnswer', 0, ALPHA_MAX),
  };
  if (ranges.checkAnswer.length !== CHECK_BLOCKS) {
    fields.fail('checkAnswer', `must be ${CHECK_BLOCKS} numbers`);
  }
  fields.end();
  return ranges;
}

/** Zero is within every range: padding is zero, and must be a byte. */
function requireRange(fields: FieldReader, name: string, value: unknown): Range {
  const wrong = (expected: string) => fields.fail(`ranges[${JSON.stringify(name)}]`, expected);
  if (!Array.isArray(value) || value.length !== 2) return wrong('must be two numbers');
  const [lower, upper] = value as [unknown, unknown];
  if (!Number.isFinite(lower) || !Number.isFinite(upper)) return wrong('must be two numbers');
  const range: Range = [lower as number, upper as number];
  if (range[0] > 0 || range[1] < 0) return wrong('must begin at most at 0 and end at least there');
  if (range[0] >= range[1]) return wrong('must begin below its end');
  return range;
}

function requireFitting(ranges: Ranges, manifest: ModelManifest, side: number, file: string): void {
  const weights = manifest.files.find(({ name }) => name === manifest.graph.file)?.sha256;
  const facts: readonly (readonly [what: string, found: unknown, wanted: unknown])[] = [
    ['model', ranges.model, manifest.name],
    ['version', ranges.version, manifest.version],
    ['weightsSha256', ranges.weightsSha256, weights],
    ['inputSize', ranges.inputSize, side],
  ];
  for (const [field, found, wanted] of facts) {
    if (found === wanted) continue;
    throw new ModelError(
      'manifest',
      `${file} was made for something else, ${field} is ${found}, not ${wanted}: make it again ` +
        `with "npm run calibrate -- ${manifest.name} <photos…>"`,
    );
  }
}

/**
 * What the pass needs, for this very graph. Throws ModelError `manifest` where the graph has values
 * without a range, or the file has ranges of values that the graph has not.
 * @param graph float32, at the ranges' input size.
 */
export function fitRanges(
  { name: file, ranges }: RangesFile,
  manifest: ModelManifest,
  graph: Graph,
): Quantisation {
  const float32 = new Set(ranges.float32);
  const input = exactInputScale(manifest);
  const plan = planQuantisation(graph, { inputIsExact: input !== undefined, float32 });
  const misfit = (what: string): never => {
    throw new ModelError('manifest', `${file} does not fit the graph of ${manifest.name}: ${what}`);
  };
  const measured = new Set(plan.measured);
  for (const value of measured) if (!ranges.ranges.has(value)) misfit(`it has no ${value}`);
  for (const value of ranges.ranges.keys()) {
    if (!measured.has(value)) misfit(`the graph has no ${value} to be made bytes`);
  }
  const made = new Set(graph.nodes.flatMap(node => node.outputs));
  for (const value of float32) if (!made.has(value)) misfit(`the graph makes no ${value}`);
  return { ranges: ranges.ranges, float32, input };
}

/**
 * The scale at which the picture's own bytes are the input's bytes: where all channels are
 * normalised alike and around a whole number.
 */
export function exactInputScale({ normalisation }: ModelManifest): Scale | undefined {
  const { mean, std } = normalisation;
  const alike = mean.every(value => value === mean[0]) && std.every(value => value === std[0]);
  if (!alike || !Number.isInteger(mean[0]) || mean[0] < 0 || mean[0] > ALPHA_MAX) return undefined;
  return { scale: 1 / std[0], zeroPoint: mean[0] };
}

/** As the file is written. */
export function formatRanges(ranges: Ranges): string {
  const { quantile, ranges: measured, float32, checkAnswer, photos, ...head } = ranges;
  const lines = [
    ...Object.entries({
      ...head,
      quantilePerMillion: Math.round(quantile * QUANTILE_PARTS),
    }).map(([field, value]) => `  ${JSON.stringify(field)}: ${JSON.stringify(value)}`),
    `  "photos": [\n${photos.map(photo => `    ${JSON.stringify(photo)}`).join(',\n')}\n  ]`,
    ...(float32.length > 0 ? [`  "float32": ${JSON.stringify(float32)}`] : []),
    `  "checkAnswer": ${JSON.stringify(checkAnswer)}`,
    `  "ranges": {\n${[...measured]
      .map(([name, range]) => `    ${JSON.stringify(name)}: ${JSON.stringify(range)}`)
      .join(',\n')}\n  }`,
  ];
  return `{\n${lines.join(',\n')}\n}\n`;
}
