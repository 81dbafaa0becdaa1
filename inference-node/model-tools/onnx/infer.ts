/**
 * Infers element types, dims, and numbers of small integer tensors before a graph runs. Covers
 * operators of the U-2-Net family and shape arithmetic; anything else is unknown. Shape rules:
 * https://github.com/onnx/onnx/blob/main/docs/Operators.md.
 */
import {
  ElementType,
  elementCount,
  type Graph,
  type GraphNode,
  integerAttribute,
  integersAttribute,
  type Tensor,
  tensorNumbers,
  textAttribute,
} from '@matting/serving/onnx/graph.ts';

interface KnownValue {
  readonly elementType: number;
  readonly dims: readonly number[];
  readonly numbers?: readonly number[] | undefined;
}

export type KnownValues = ReadonlyMap<string, KnownValue>;

/** Shapes and sizes have a handful of numbers; larger tensors are not followed. */
const NUMBERS_MAX = 64;

type Inputs = readonly (KnownValue | undefined)[];
type Rule = (node: GraphNode, inputs: Inputs) => KnownValue | undefined;

export function inferValues(graph: Graph, inputDims: readonly number[]): KnownValues {
  const known = new Map<string, KnownValue>();
  for (const [name, tensor] of graph.initialisers) known.set(name, knownTensor(tensor));
  for (const { name, elementType } of graph.inputs)
    known.set(name, { elementType, dims: inputDims });
  for (const node of graph.nodes) {
    const rule = node.domain === '' ? RULES[node.opType] : undefined;
    const value = rule?.(
      node,
      node.inputs.map(name => known.get(name)),
    );
    if (value !== undefined) known.set(node.outputs[0], value);
  }
  return known;
}

function knownTensor(tensor: Tensor): KnownValue {
  const { elementType, dims } = tensor;
  const small = elementCount(dims) <= NUMBERS_MAX;
  return { elementType, dims, numbers: small ? tensorNumbers(tensor) : undefined };
}

const sameAsInput: Rule = (_, [input]) =>
  input && { elementType: input.elementType, dims: input.dims };

const RULES: Readonly<Record<string, Rule>> = {
  Relu: sameAsInput,
  Sigmoid: sameAsInput,
  Clip: sameAsInput,
  Transpose: inferTranspose,
  BatchNormalization: sameAsInput,
  InstanceNormalization: sameAsInput,
  Identity: (_, [input]) => input,
  Add: inferBroadcast,
  Mul: inferBroadcast,
  Sub: inferBroadcast,
  Div: inferBroadcast,
  Conv: (node, inputs) => inferPool(node, inputs[0], inputs[1]?.dims[0], inputs[1]?.dims.slice(2)),
  MaxPool: (node, [input]) => inferPool(node, input, input?.dims[1]),
  AveragePool: (node, [input]) => inferPool(node, input, input?.dims[1]),
  GlobalAveragePool: (_, [input]) =>
    input && { ...input, dims: input.dims.map((dim, axis) => (axis < 2 ? dim : 1)) },
  Cast: (node, [input]) => input && { ...input, elementType: integerAttribute(node, 'to', 0) },
  Concat: inferConcat,
  Gather: inferGather,
  Resize: inferResize,
  Shape: inferShape,
  Slice: inferSlice,
  Squeeze: inferReshaped(-1),
  Unsqueeze: inferReshaped(1),
};

/** Conv and pools over [N, C, H, W]. `weightsKernel` replaces a missing kernel_shape. */
function inferPool(
  node: GraphNode,
  input: KnownValue | undefined,
  channels: number | undefined,
  weightsKernel?: readonly number[],
): KnownValue | undefined {
  const kernel = integersAttribute(node, 'kernel_shape') ?? weightsKernel;
  const [batch, , ...sides] = input?.dims ?? [];
  if (input === undefined || batch === undefined || channels === undefined) return undefined;
  if (sides.length !== kernel?.length) return undefined;
  if (textAttribute(node, 'auto_pad', 'NOTSET') !== 'NOTSET') return undefined;
  const strides = integersAttribute(node, 'strides');
  const dilations = integersAttribute(node, 'dilations');
  const pads = integersAttribute(node, 'pads');
  const round = integerAttribute(node, 'ceil_mode', 0) === 1 ? Math.ceil : Math.floor;
  const spatial = sides.map((side, axis) => {
    const reach = ((kernel[axis] ?? 1) - 1) * (dilations?.[axis] ?? 1) + 1;
    const padding = (pads?.[axis] ?? 0) + (pads?.[axis + sides.length] ?? 0);
    return round((side + padding - reach) / (strides?.[axis] ?? 1)) + 1;
  });
  return { elementType: input.elementType, dims: [batch, channels, ...spatial] };
}

/** Infers lists (1-D constants) with step 1. Bounds are inputs from opset 10 on. */
function inferSlice(
  _: GraphNode,
  [data, starts, ends, axes, steps]: Inputs,
): KnownValue | undefined {
  if (data?.numbers === undefined || data.dims.length !== 1) return undefined;
  if (starts?.numbers?.length !== 1 || ends?.numbers?.length !== 1) return undefined;
  if ((axes?.numbers?.[0] ?? 0) !== 0 || (steps?.numbers?.[0] ?? 1) !== 1) return undefined;
  const numbers = data.numbers.slice(starts.numbers[0], ends.numbers[0]);
  return { elementType: data.elementType, dims: [numbers.length], numbers };
}

function inferTranspose(node: GraphNode, [input]: Inputs): KnownValue | undefined {
  const order = integersAttribute(node, 'perm');
  if (input === undefined || order?.length !== input.dims.length) return undefined;
  const dims = order.flatMap(axis => input.dims[axis] ?? []);
  return { elementType: input.elementType, dims };
}

function inferShape(_: GraphNode, [input]: Inputs): KnownValue | undefined {
  if (input === undefined) return undefined;
  return { elementType: ElementType.int64, dims: [input.dims.length], numbers: input.dims };
}

function inferBroadcast(_: GraphNode, [left, right]: Inputs): KnownValue | undefined {
  if (left === undefined || right === undefined) return undefined;
  const rank = Math.max(left.dims.length, right.dims.length);
  const dims: number[] = [];
  for (let axis = 0; axis < rank; axis += 1) {
    const a = left.dims[left.dims.length - rank + axis] ?? 1;
    const b = right.dims[right.dims.length - rank + axis] ?? 1;
    if (a !== b && a !== 1 && b !== 1) return undefined;
    dims.push(a === 1 ? b : a);
  }
  return { elementType: left.elementType, dims };
}

function inferConcat(node: GraphNode, inputs: Inputs): KnownValue | undefined {
  const given = inputs.filter(input => input !== undefined);
  const [head] = given;
  if (head === undefined || given.length < inputs.length) return undefined;
  const { elementType, dims: first } = head;
  const axis = normaliseAxis(integerAttribute(node, 'axis', 0), first.length);
  const alike = given.every(
    ({ dims }) =>
      dims.length === first.length && dims.every((dim, at) => at === axis || dim === first[at]),
  );
  if (!alike) return undefined;
  const joined = given.reduce((sum, { dims }) => sum + (dims[axis] ?? 0), 0);
  const flat = first.length === 1 && given.every(({ numbers }) => numbers !== undefined);
  return {
    elementType,
    dims: first.map((dim, at) => (at === axis ? joined : dim)),
    numbers: flat ? given.flatMap(({ numbers }) => numbers ?? []) : undefined,
  };
}

function inferGather(node: GraphNode, [data, indices]: Inputs): KnownValue | undefined {
  if (data?.numbers === undefined || indices?.numbers === undefined) return undefined;
  if (data.dims.length !== 1 || integerAttribute(node, 'axis', 0) !== 0) return undefined;
  const { elementType, numbers: list } = data;
  const numbers = indices.numbers.flatMap(index => list.at(index) ?? []);
  if (numbers.length < indices.numbers.length) return undefined;
  return { elementType, dims: indices.dims, numbers };
}

/** Unsqueeze and Squeeze of a single number: the number stays, the dims change. */
function inferReshaped(step: 1 | -1): Rule {
  return (_, [input]) => {
    if (input?.numbers === undefined || input.numbers.length !== 1) return undefined;
    if (input.dims.length + step < 0) return undefined;
    return { ...input, dims: Array(input.dims.length + step).fill(1) };
  };
}

/** From opset 11 on, with the inputs X, roi, scales, sizes. */
function inferResize(node: GraphNode, inputs: Inputs): KnownValue | undefined {
  const [input, , scales, sizes] = inputs;
  if (input === undefined) return undefined;
  if (integersAttribute(node, 'axes') !== undefined) return undefined;
  const { elementType, dims } = input;
  if (sizes?.numbers !== undefined && sizes.numbers.length === dims.length) {
    return { elementType, dims: sizes.numbers };
  }
  if (scales?.numbers !== undefined && scales.numbers.length === dims.length) {
    const factors = scales.numbers;
    return { elementType, dims: dims.map((dim, axis) => Math.floor(dim * (factors[axis] ?? 1))) };
  }
  return undefined;
}

function normaliseAxis(axis: number, rank: number): number {
  return axis < 0 ? axis + rank : axis;
}
