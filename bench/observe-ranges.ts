/**
 * The ranges of a float32 graph's values over photos: of each value about 20,000 evenly spaced
 * numbers a photo, of these the quantiles, and of all photos the least and the greatest, or less
 * where a few photos reach much further than most. Outliers are cut off on purpose: with the true
 * least and greatest a byte's steps are so coarse that the matte is useless.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { inferValues, type KnownValues } from '../inference-node/model-tools/onnx/infer.ts';
import { InferenceSession, Tensor } from '../inference-node/serving/engine/child/onnx-runtime.ts';
import { ElementType, encodeModel, type Graph } from '../inference-node/serving/onnx/graph.ts';
import { at } from '../test/support/at.ts';

type Range = readonly [lower: number, upper: number];

const SAMPLES_MAX = 20_000;
/** Values of a run that are fetched together. */
const FETCHED_BYTES_MAX = 1.2e9;
/** For values whose shape depends on an operator that infer.ts does not know. */
const COUNT_UNKNOWN = 4e6;
const DIMS_UNKNOWN = [1, null, null, null];
const RANGE_MIN = 1e-6;
/** Digits that are kept: a range's third moves no step of 255. */
const DIGITS = 5;

export interface Observation {
  readonly graph: Graph;
  /** Names of the values to observe. */
  readonly names: readonly string[];
  /** Inputs of the graph, CHW. */
  readonly planes: readonly Float32Array[];
  readonly side: number;
  readonly quantile: number;
  /** A range ends at most at so much of the median of the photos' own ends; Infinity: no bound. */
  readonly percentOfMedianMax: number;
  readonly threads: number;
  readonly onBatch: (done: number, all: number) => void;
}

export async function observeRanges(observation: Observation): Promise<Map<string, Range>> {
  const { graph, names, side } = observation;
  const known = inferValues(graph, [1, 3, side, side]);
  const ranges = new Map<string, Range>();
  for (const batch of batches(names, known)) {
    const observed = await observeBatch(batch, known, observation);
    for (const [name, perPhoto] of observed) {
      ranges.set(name, rangeOfAll(perPhoto, observation.percentOfMedianMax));
    }
    observation.onBatch(ranges.size, names.length);
  }
  return ranges;
}

function batches(names: readonly string[], known: KnownValues): string[][] {
  const found: string[][] = [[]];
  let bytes = 0;
  for (const name of names) {
    const count = known.get(name)?.dims.reduce((product, dim) => product * dim, 1) ?? COUNT_UNKNOWN;
    const last = at(found, found.length - 1);
    if (last.length > 0 && bytes + 4 * count > FETCHED_BYTES_MAX) {
      found.push([name]);
      bytes = 0;
    } else last.push(name);
    bytes += 4 * count;
  }
  return found;
}

/**
 * A photo or two may take a value several times as far as all others do: a range for those too
 * leaves the others a few steps of the 255.
 */
export function rangeOfAll(perPhoto: readonly Range[], percentOfMedianMax: number): Range {
  const end = (ends: readonly number[]) => {
    const sorted = ends.toSorted((a, b) => a - b);
    const median = at(sorted, Math.floor(sorted.length / 2));
    const greatest = at(sorted, sorted.length - 1);
    // If most photos have nothing, there is no ordinary end.
    return median === 0 ? greatest : Math.min(greatest, (percentOfMedianMax / 100) * median);
  };
  const lower = end(perPhoto.map(([least]) => Math.max(0, -least)));
  const upper = end(perPhoto.map(([, greatest]) => Math.max(0, greatest)));
  // A value that is always nothing still needs a step.
  return [rounded(-lower) || 0, Math.max(rounded(upper), RANGE_MIN)];
}

/** Ranges of each value, photo by photo. */
async function observeBatch(
  names: readonly string[],
  known: KnownValues,
  { graph, planes, side, quantile, threads }: Observation,
): Promise<Map<string, Range[]>> {
  const values = names
    .filter(name => graph.outputs.every(output => output.name !== name))
    .map(name => ({
      name,
      elementType: ElementType.float32,
      dims: known.get(name)?.dims ?? DIMS_UNKNOWN,
    }));
  const session = await openSession({ ...graph, outputs: [...graph.outputs, ...values] }, threads);
  const ranges = new Map<string, Range[]>(names.map(name => [name, []]));
  const { name: input } = at(graph.inputs, 0);
  for (const photo of planes) {
    const feeds = { [input]: new Tensor('float32', photo, [1, 3, side, side]) };
    const outputs = await session.run(feeds, [...names]);
    for (const name of names) {
      ranges.get(name)?.push(quantilesOf(outputs[name]?.data as Float32Array, quantile));
    }
  }
  await session.release();
  return ranges;
}

function quantilesOf(values: Float32Array, quantile: number): Range {
  const count = Math.min(values.length, SAMPLES_MAX);
  const samples = Float32Array.from({ length: count }, (_, i) =>
    at(values, Math.floor((i * values.length) / count)),
  ).sort();
  const quantileOf = (fraction: number) =>
    at(samples, Math.min(count - 1, Math.floor(fraction * count)));
  return [quantileOf(quantile), quantileOf(1 - quantile)];
}

function rounded(value: number): number {
  return Number(value.toPrecision(DIGITS));
}

/** Opens the graph by a file: a buffer of weights would be held twice. */
export async function openSession(graph: Graph, threads: number): Promise<InferenceSession> {
  const folder = mkdtempSync(path.join(tmpdir(), 'matting-graph-'));
  try {
    const file = path.join(folder, 'graph.onnx');
    writeFileSync(file, Buffer.concat([...encodeModel(graph)]));
    return await InferenceSession.create(file, {
      executionProviders: ['cpu'],
      intraOpNumThreads: threads,
      interOpNumThreads: 1,
      enableMemPattern: false,
      logSeverityLevel: 3,
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
