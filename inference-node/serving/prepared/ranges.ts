/**
 * Ranges that quantise a model, in `models/<name>/ranges-<size>.json`, for one weights file and one
 * input size. `npm run calibrate` measures them.
 */
import { createHash } from 'node:crypto';
import { basename, join } from 'node:path';
import { isMissing, ParsedFiles } from '../models/cache-files.ts';
import {
  fieldError,
  fields,
  list,
  mapOf,
  NUMBER,
  parseChecked,
  text,
  tuple,
  wholeNumber,
} from '../models/checked-json.ts';
import { MANIFEST_DIRECTORY, type ModelManifest } from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import { INPUT_SIDE_MAX } from '../models/prepared-model.ts';
import { CHECK_BLOCKS } from './answer-check.ts';

/** 0 lies within. */
type Range = readonly [lower: number, upper: number];

interface CalibrationPhoto {
  readonly name: string;
  readonly sha256: string;
}

export interface Ranges {
  readonly model: string;
  readonly version: string;
  /** SHA-256 of the weights file that they were measured on, hexadecimal. */
  readonly weightsSha256: string;
  readonly inputSize: number;
  /** Fraction of a value's numbers that may lie beyond each end of its range. */
  readonly quantile: number;
  /** Limit of a range, in percent of the median of the photos' own ends. Absent: no limit. */
  readonly percentOfMedianMax?: number;
  readonly photos: readonly CalibrationPhoto[];
  /** Outputs of convolutions that stay float32 (model-tools/onnx/quantise.ts). */
  readonly float32: readonly string[];
  readonly ranges: ReadonlyMap<string, Range>;
  /** The quantised model's answer to the check picture: means of blocks of alpha, 0 to 255. */
  readonly checkAnswer: readonly number[];
}

export interface RangesFile {
  readonly name: string;
  readonly sha256: string;
  readonly ranges: Ranges;
}

interface WrittenRanges extends Omit<Ranges, 'quantile' | 'float32' | 'ranges'> {
  readonly quantilePerMillion: number;
  readonly float32?: readonly string[];
  readonly ranges: Readonly<Record<string, Range>>;
}

const QUANTILE_PARTS = 1_000_000;
const ALPHA_MAX = 255;
const SHA256 = text(/^[0-9a-f]{64}$/);
const SCHEMA = fields<WrittenRanges>(
  {
    model: text(),
    version: text(),
    weightsSha256: SHA256,
    inputSize: wholeNumber(1, INPUT_SIDE_MAX),
    quantilePerMillion: wholeNumber(0, QUANTILE_PARTS / 2),
    percentOfMedianMax: wholeNumber(100, 10_000),
    photos: list(fields<CalibrationPhoto>({ name: text(), sha256: SHA256 })),
    float32: list(text()),
    ranges: mapOf(tuple(2, NUMBER, 'two numbers')),
    checkAnswer: tuple(CHECK_BLOCKS, wholeNumber(0, ALPHA_MAX), `${CHECK_BLOCKS} numbers`),
  },
  ['percentOfMedianMax', 'float32'],
);

export function rangesFileName(side: number): string {
  return `ranges-${side}.json`;
}

const FILES = new ParsedFiles((json, path) => {
  const sha256 = createHash('sha256').update(json).digest('hex');
  return { name: basename(path), sha256, ranges: parseRanges(json, path) };
});

/** @throws ModelError `manifest`: missing, malformed, or of another model, version or size */
export async function loadRanges(
  manifest: ModelManifest,
  side: number,
  directory = MANIFEST_DIRECTORY,
): Promise<RangesFile> {
  const path = join(directory, manifest.name, rangesFileName(side));
  const file = await FILES.read(path).catch(error => {
    if (!isMissing(error.cause)) throw error;
    throw new ModelError('manifest', `${path} is missing, the manifest lists int8 at ${side}`);
  });
  requireFitting(file.ranges, manifest, side, path);
  return file;
}

export function parseRanges(json: string, file: string): Ranges {
  const {
    quantilePerMillion,
    float32 = [],
    ranges: written,
    ...same
  } = parseChecked<WrittenRanges>(json, file, SCHEMA);
  const ranges = new Map(Object.entries(written));
  for (const [name, [lower, upper]] of ranges) {
    const wrong = (expected: string) =>
      fieldError(file, `ranges[${JSON.stringify(name)}]`, expected);
    // Padding is zero, so a byte must stand for 0.
    if (lower > 0 || upper < 0) throw wrong('must begin at most at 0 and end at least there');
    if (lower >= upper) throw wrong('must begin below its end');
  }
  return { ...same, quantile: quantilePerMillion / QUANTILE_PARTS, float32, ranges };
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
