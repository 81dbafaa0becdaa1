import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { ModelManifest } from '@matting/serving/models/manifest.ts';
import { diskError, ModelError } from '@matting/serving/models/model-error.ts';
import type { PreparedModel } from '@matting/serving/models/prepared-model.ts';
import {
  decodeModel,
  ElementType,
  type Graph,
  type GraphPass,
  onlyInput,
} from '@matting/serving/onnx/graph.ts';
import {
  type LoadOptions,
  loadPrepared,
  type MakePrepared,
} from '@matting/serving/prepared/load-prepared.ts';
import {
  cleanPrepared,
  type PreparedKey,
  preparedPath,
  writeSidecar,
} from '@matting/serving/prepared/prepared-cache.ts';
import { alteredWeights } from '@matting/serving/prepared/weights-cache.ts';
import { transposeToOneChannel } from '../onnx/one-channel.ts';
import { planQuantisation } from '../onnx/plan-quantisation.ts';
import { type Quantisation, quantise, type Scale } from '../onnx/quantise.ts';
import {
  bytesAtBothEnds,
  imageDims,
  keepOutput,
  liftConstants,
  OPSET_OF_INT8,
  type PixelFormat,
  raiseOpset,
  removeUnused,
  resizeInHalf,
  setInputSize,
  widenToFloat32,
} from '../onnx/rewrites.ts';
import { prepareAdded } from './added-graph.ts';
import { writeGraph } from './write-graph.ts';

export type PrepareOptions = Omit<LoadOptions, 'make'>;

export function prepareModel(options: PrepareOptions): Promise<PreparedModel> {
  return loadPrepared({ ...options, make: makePrepared });
}

export const makePrepared: MakePrepared = async (source, key, to) => {
  const { manifest, cacheDir, onProgress } = to;
  onProgress?.({ step: 'rewrite', width: key.inputWidth, height: key.inputHeight });
  if (manifest.graph.dynamic !== undefined) return await prepareAdded(source, key, to);
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
    // On a CPU, converting pixels in the graph takes as long as in our code.
    pixels: provider === 'cuda' ? { normalisation, colourOrder, activation } : undefined,
    quantise: ranges && (float32 => fitRanges(ranges, manifest, float32)),
  });
  const path = preparedPath(cacheDir, manifest, key);
  const { sha256, bytes: writtenBytes } = await writeGraph(path, graph, done =>
    onProgress?.({ step: 'write', writtenBytes: done }),
  );
  await writeSidecar(cacheDir, manifest, key, writtenBytes, sha256);
  await cleanPrepared(cacheDir, manifest);
  return sha256;
};

/** Hashes the bytes that it reads: a record of an earlier check does not suffice. */
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

/* Quantisation is last: it takes the float32 graph at its input size. */

interface GraphPreparation {
  readonly inputName: string;
  readonly outputName: string;
  readonly exported: Size;
  readonly wanted: Size;
  /** fp16 keeps half-precision weights, for GPUs. */
  readonly precision: 'fp32' | 'fp16' | 'int8';
  readonly quantise?: ((float32: Graph) => Quantisation) | undefined;
  /** CUDA takes bytes at both ends, and half precision in between. */
  readonly pixels?: PixelFormat | undefined;
}

export function prepareGraph(source: Graph, preparation: GraphPreparation): Graph {
  const { inputName, outputName, exported, wanted, precision, pixels } = preparation;
  const widen: GraphPass = graph => widenToFloat32(graph, imageDims(wanted));
  const passes: readonly GraphPass[] = [
    liftConstants,
    keepOutput(outputName),
    graph => setInputSize(graph, exported, wanted),
    ...(precision === 'fp16' ? [] : [widen]),
    removeUnused,
    ...(precision === 'int8' ? [toBytes(preparation)] : []),
  ];
  const prepared = passes.reduce((graph, pass) => pass(graph), source);
  requireInterface(prepared, inputName);
  if (pixels === undefined) return prepared;
  return bytesAtBothEnds(pixels, wanted)(resizeInHalf(prepared, imageDims(wanted)));
}

function toBytes(preparation: GraphPreparation): GraphPass {
  const { quantise: describe } = preparation;
  if (describe === undefined) throw new Error('int8 needs `quantise`');
  return graph => {
    const raised = raiseOpset(graph, OPSET_OF_INT8);
    return transposeToOneChannel(quantise(raised, describe(raised)));
  };
}

function requireInterface(graph: Graph, inputName: string): void {
  const input = onlyInput(graph);
  if (input.name !== inputName) {
    throw new ModelError('prepare', `the graph's input is ${input.name}, not ${inputName}`);
  }
  for (const { name, elementType } of [input, ...graph.outputs]) {
    if (elementType === ElementType.float32) continue;
    throw new ModelError('prepare', `${name} must be float32; its ONNX type is ${elementType}`);
  }
}

type RangesFile = NonNullable<PreparedKey['ranges']>;

/** @throws ModelError `manifest` if the ranges do not fit this graph */
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

const BYTE_MAX = 255;

/** The scale if the picture's bytes can be the input: all channels alike, with a whole mean. */
export function exactInputScale({ normalisation }: ModelManifest): Scale | undefined {
  const { mean, std } = normalisation;
  const alike = mean.every(value => value === mean[0]) && std.every(value => value === std[0]);
  if (!alike || !Number.isInteger(mean[0]) || mean[0] < 0 || mean[0] > BYTE_MAX) return undefined;
  return { scale: 1 / std[0], zeroPoint: mean[0] };
}
