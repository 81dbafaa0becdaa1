import { ModelError } from '../models/model-error.ts';
import { SUM_OUTPUT } from '../models/prepared-model.ts';
import {
  ElementType,
  type Graph,
  type GraphNode,
  integerAttribute,
  integersAttribute,
  onlyInput,
  type Tensor,
} from './graph.ts';
import { inferValues, type KnownValues } from './infer.ts';
import { int64Tensor, tensorNumbers } from './tensor.ts';

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

/** What a node reads, of a graph that takes several pictures. */
interface Surroundings {
  readonly images: number;
  readonly known: KnownValues;
  readonly initialisers: ReadonlyMap<string, Tensor>;
}

/** Whether a node that is not always APART is so with what it reads. */
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
 * Makes of a prepared graph for one picture one for `images` at once, all of them of its size. Only
 * operators that treat each picture apart are let through: no picture's matte may depend on those
 * beside it. Throws ModelError `prepare` where another one is in the graph.
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
