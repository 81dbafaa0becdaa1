/**
 * Graphs for several pictures beside a prepared one, with another number written into it. Weights
 * stay in the file of the first: the others are some 0.1 to 0.4 MB, made at every start.
 */

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { hashFile, statOrNull, writeFileWhole } from '../models/cache-files.ts';
import { diskError, ModelError } from '../models/model-error.ts';
import {
  BATCH_SIZES,
  type BatchGraph,
  type PreparedModel,
  SUM_OUTPUT,
} from '../models/prepared-model.ts';
import {
  decodeModel,
  ElementType,
  encodeModel,
  type Graph,
  type GraphNode,
  int64Tensor,
  integerAttribute,
  integersAttribute,
  onlyInput,
  type Tensor,
  tensorNumbers,
} from '../onnx/graph.ts';
import { inferValues, type KnownValues } from '../onnx/infer.ts';
import { batchPath, noteUse } from './prepared-cache.ts';

/** Below this it may be a shape, which the runtime wants to read while it loads the graph. */
const PLACED_BYTES_MIN = 128;

/** @throws ModelError `prepare` where the graph cannot take several; `disk`. */
export async function prepareBatches(
  model: PreparedModel,
  imagesMax: number,
): Promise<PreparedModel> {
  const { batches: _, ...single } = model;
  const sizes = BATCH_SIZES.filter(images => images <= imagesMax);
  if (sizes.length === 0) return single;
  const bytes = await readPrepared(model.path);
  const graph = decodeModel(bytes, model.path);
  const batches: BatchGraph[] = [];
  for (const images of sizes) {
    const path = batchPath(model.path, images);
    const written = encodeBatch(graph, images, { file: model.path, bytes });
    const sha256 = createHash('sha256').update(written).digest('hex');
    await requireFile(path, written, sha256);
    batches.push({ images, path, sha256 });
  }
  return { ...single, batches };
}

async function readPrepared(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    throw diskError(error, 'read', path);
  }
}

function encodeBatch(
  graph: Graph,
  images: number,
  { file, bytes }: { readonly file: string; readonly bytes: Buffer },
): Buffer {
  const placeOf = ({ data }: Tensor) =>
    data.buffer === bytes.buffer && data.length >= PLACED_BYTES_MIN
      ? { file: basename(file), offset: data.byteOffset - bytes.byteOffset }
      : undefined;
  try {
    return Buffer.concat([...encodeModel(setBatch(graph, images), placeOf)]);
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    throw new ModelError('prepare', `${file}: ${error.message} (MATTING_BATCH_MAX)`, error);
  }
}

/** Another release on the same cache makes files of other names: what is there is ours. */
async function requireFile(path: string, bytes: Buffer, sha256: string): Promise<void> {
  const there = (await statOrNull(path))?.size === bytes.length;
  if (there && (await hashFile(path)) === sha256) await noteUse(path);
  else await writeFileWhole(path, file => file.write(bytes, 0));
}

const RESIZE_SIZES_INPUT = 3;
const SLICE_AXES_INPUT = 3;
/** Of a target of Resize: [images, channels, height, width]. */
const TARGET_LENGTH = 4;

/** They do the same to each picture along the first axis, whatever is beside it. */
const APART: ReadonlySet<string> = new Set([
  'Add',
  'AveragePool',
  'BatchNormalization',
  'Cast',
  'Clip',
  'Conv',
  'DequantizeLinear',
  'Div',
  'GlobalAveragePool',
  'Identity',
  'InstanceNormalization',
  'MatMul',
  'Max',
  'MaxPool',
  'Min',
  'Mul',
  'QuantizeLinear',
  'Relu',
  'Round',
  'Sigmoid',
  'Sub',
]);

interface Surroundings {
  readonly images: number;
  readonly known: KnownValues;
  readonly initialisers: ReadonlyMap<string, Tensor>;
}

const APART_WHERE: Readonly<Record<string, (node: GraphNode, around: Surroundings) => boolean>> = {
  Concat: (node, around) => isLaterAxis(integerAttribute(node, 'axis', 0), node, around),
  // Red and blue that change places.
  Gather: (node, around) => isLaterAxis(integerAttribute(node, 'axis', 0), node, around),
  // One sum of all of them: whether any is not a number.
  ReduceSum: node => node.outputs[0] === SUM_OUTPUT,
  Transpose: node => integersAttribute(node, 'perm')?.[0] === 0,
  Slice: (node, around) => {
    const axes = around.initialisers.get(node.inputs[SLICE_AXES_INPUT] ?? '');
    const numbers = axes && tensorNumbers(axes);
    return numbers?.every(axis => isLaterAxis(axis, node, around)) === true;
  },
  Resize: (node, { initialisers }) =>
    !node.inputs[RESIZE_SIZES_INPUT] || targetOfResize(node, initialisers) !== undefined,
  Reshape: keepsFirstAxis,
  Expand: keepsFirstAxis,
};

/**
 * Only operators that treat each picture apart are let through: no matte may depend on another
 * picture. Throws ModelError `prepare` where another one is in the graph.
 */
export function setBatch(graph: Graph, images: number): Graph {
  const input = onlyInput(graph);
  const inputs = [{ ...input, dims: input.dims.with(0, images) }];
  const outputs = graph.outputs.map(output =>
    output.dims.length === 0 ? output : { ...output, dims: output.dims.with(0, images) },
  );
  const batched = { ...graph, inputs, outputs, initialisers: resized(graph, images) };
  const known = inferValues(batched, inputs[0]?.dims as readonly number[]);
  const around = { images, known, initialisers: batched.initialisers };
  for (const node of graph.nodes) {
    if (isShapeArithmetic(node, around) || isApart(node, around)) continue;
    const which = node.name === '' ? node.outputs[0] : node.name;
    throw new ModelError(
      'prepare',
      `the graph cannot take ${images} pictures at once: ${which} (${node.opType}) may mix them`,
    );
  }
  return batched;
}

/** The targets of Resize are [1, C, h, w], written into the graph for one picture. */
function resized({ nodes, initialisers }: Graph, images: number): ReadonlyMap<string, Tensor> {
  const changed = new Map(initialisers);
  for (const node of nodes) {
    const target = node.opType === 'Resize' ? targetOfResize(node, initialisers) : undefined;
    if (target === undefined) continue;
    const { name, sizes, dims } = target;
    changed.set(name, int64Tensor(sizes.with(0, images), dims));
  }
  return changed;
}

/** Undefined: it has none that is written into the graph, or not of every axis in its place. */
function targetOfResize(node: GraphNode, initialisers: ReadonlyMap<string, Tensor>) {
  const name = node.inputs[RESIZE_SIZES_INPUT] ?? '';
  const tensor = initialisers.get(name);
  const sizes = tensor && tensorNumbers(tensor);
  if (tensor === undefined || sizes?.length !== TARGET_LENGTH) return undefined;
  if (integersAttribute(node, 'axes') !== undefined) return undefined;
  return { name, sizes, dims: tensor.dims };
}

/** Not the first, which is counted from the end too: -4 of four axes. */
function isLaterAxis(axis: number, { inputs }: GraphNode, { known }: Surroundings): boolean {
  if (axis >= 0) return axis > 0;
  const rank = known.get(inputs[0] ?? '')?.dims.length;
  return rank !== undefined && axis > -rank;
}

function isApart(node: GraphNode, around: Surroundings): boolean {
  if (node.domain !== '') return false;
  return APART.has(node.opType) || APART_WHERE[node.opType]?.(node, around) === true;
}

/** Its numbers follow the shapes of what there is, the number of pictures among them. */
function isShapeArithmetic({ outputs: [output] }: GraphNode, { known }: Surroundings): boolean {
  const value = known.get(output);
  return value?.elementType === ElementType.int64 && value.numbers !== undefined;
}

/** 0 copies what is there. */
function keepsFirstAxis({ inputs }: GraphNode, { images, known }: Surroundings): boolean {
  const first = known.get(inputs[1] ?? '')?.numbers?.[0];
  return first === images || first === 0;
}
