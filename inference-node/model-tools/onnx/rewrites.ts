import type { Size } from '@matting/proto/contract/finishing.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import {
  ALPHA_OUTPUT,
  type Normalisation,
  type PreparedModel,
  RGB_INPUT,
  SUM_OUTPUT,
} from '@matting/serving/models/prepared-model.ts';
import {
  attribute,
  ElementType,
  float32Tensor,
  float64Tensor,
  type Graph,
  type GraphNode,
  type GraphPass,
  int64Tensor,
  integer,
  integerAttribute,
  integers,
  integersAttribute,
  makersOf,
  nodeOf,
  onlyInput,
  readersOf,
  readTensor,
  type Tensor,
  widenHalf,
} from '@matting/serving/onnx/graph.ts';
import { inferValues, type KnownValues } from './infer.ts';

/** From this opset on DequantizeLinear has an axis, for a scale per channel. */
export const OPSET_OF_INT8 = 13;
export const OPSET_OF_DEFORM_CONV = 19;

const list = (names: string): ReadonlySet<string> => new Set(names.split(/\s+/));

interface Raise {
  readonly from: number;
  /** Operators whose change is only in element types and new optional parts. */
  readonly unchanged: ReadonlySet<string>;
  /** Operators whose axes move from an attribute to the last input. */
  readonly axesMoved: ReadonlySet<string>;
  /** A Split without sizes must state the number of its outputs. */
  readonly splitsCounted?: true;
}

/** From docs/Changelog.md of onnx.ai. An operator that is not listed is refused. */
const RAISES: Readonly<Record<number, Raise>> = {
  [OPSET_OF_INT8]: {
    from: 11,
    unchanged: list(
      `Add AveragePool BatchNormalization Clip Concat Conv Div Expand Flatten Gather Gemm
       GlobalAveragePool Identity InstanceNormalization MatMul MaxPool Mul Relu Reshape Resize
       Shape Sigmoid Slice Sub Transpose`,
    ),
    axesMoved: list('Squeeze Unsqueeze'),
  },
  [OPSET_OF_DEFORM_CONV]: {
    from: 17,
    unchanged: list(
      `Abs Add And AveragePool BatchNormalization Cast Ceil Clip Concat Constant ConstantOfShape
       Conv ConvTranspose Cos Div Equal Erf Exp Expand Flatten Floor Gather GatherElements GatherND
       Gemm GlobalAveragePool Greater GreaterOrEqual HardSigmoid HardSwish Identity
       InstanceNormalization LayerNormalization LeakyRelu Less LessOrEqual Log MatMul Max MaxPool
       Min Mod Mul Neg Not Or Pad Pow PRelu Range Reciprocal ReduceSum Relu Reshape Resize ScatterND
       Shape Sigmoid Sin Slice Softmax Softplus Sqrt Squeeze Sub Sum Tanh Tile Transpose Unsqueeze
       Where`,
    ),
    axesMoved: list(
      `ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
       ReduceSumSquare`,
    ),
    splitsCounted: true,
  },
};

/** @throws ModelError `prepare` if an operator, or the graph's opset, forbids it */
export function raiseOpset(
  graph: Graph,
  wanted: typeof OPSET_OF_INT8 | typeof OPSET_OF_DEFORM_CONV,
): Graph {
  const own = graph.opsets.find(({ domain }) => domain === '');
  const version = own?.version ?? 0;
  if (version >= wanted) return graph;
  const { from, unchanged, axesMoved, splitsCounted } = RAISES[wanted] as Raise;
  const carried = ({ domain, opType }: GraphNode) =>
    domain !== '' ||
    unchanged.has(opType) ||
    axesMoved.has(opType) ||
    (opType === 'Split' && splitsCounted);
  const changed = graph.nodes.find(node => !carried(node));
  if (version < from || changed !== undefined) {
    const what = version < from ? `it is older than ${from}` : `it has a ${changed?.opType}`;
    throw new ModelError(
      'prepare',
      `the graph's opset ${version} cannot be raised to ${wanted}: ${what}`,
    );
  }
  const opsets = graph.opsets.map(opset =>
    opset.domain === '' ? { ...opset, version: wanted } : opset,
  );
  const nodes = graph.nodes.map(countSplit);
  return { ...moveAxes({ ...graph, nodes }, axesMoved), opsets };
}

/** States the outputs of a Split without sizes, which are its second input from opset 13 on. */
function countSplit(node: GraphNode): GraphNode {
  if (node.opType !== 'Split' || node.domain !== '' || node.inputs[1]) return node;
  if (node.attributes.some(({ name }) => name === 'num_outputs')) return node;
  const count = integer('num_outputs', node.outputs.length);
  return { ...node, attributes: [...node.attributes, count] };
}

function moveAxes(graph: Graph, moved: ReadonlySet<string>): Graph {
  const initialisers = new Map(graph.initialisers);
  const nodes = graph.nodes.map(node => {
    const isMoved = moved.has(node.opType) && node.domain === '';
    const axes = isMoved ? integersAttribute(node, 'axes') : undefined;
    if (axes === undefined) return node;
    const name = `${node.outputs[0]}.axes`;
    initialisers.set(name, int64Tensor(axes, [axes.length]));
    const attributes = node.attributes.filter(attribute => attribute.name !== 'axes');
    return { ...node, inputs: [...node.inputs, name], attributes };
  });
  return { ...graph, nodes, initialisers };
}

/** Makes Constant nodes with a tensor (`value`) initialisers, the form that other passes read. */
export function liftConstants(graph: Graph): Graph {
  const initialisers = new Map<string, Tensor>(graph.initialisers);
  const nodes: GraphNode[] = [];
  for (const node of graph.nodes) {
    const value = node.opType === 'Constant' ? attribute(node, 'value')?.t : undefined;
    if (value) initialisers.set(node.outputs[0], readTensor(value, `constant ${node.outputs[0]}`));
    else nodes.push(node);
  }
  return { ...graph, nodes, initialisers };
}

export function removeUnused(graph: Graph): Graph {
  const needed = new Set(graph.outputs.map(output => output.name));
  const nodes: GraphNode[] = [];
  // In reverse order, readers of a value come before its maker.
  for (const node of graph.nodes.toReversed()) {
    if (!node.outputs.some(output => needed.has(output))) continue;
    for (const input of node.inputs) needed.add(input);
    nodes.push(node);
  }
  const initialisers = new Map<string, Tensor>();
  for (const [name, tensor] of graph.initialisers) {
    if (needed.has(name)) initialisers.set(name, tensor);
  }
  return { ...graph, nodes: nodes.reverse(), initialisers };
}

/** Removes the other outputs, which every run would compute. */
export function keepOutput(name: string): GraphPass {
  return (graph: Graph) => {
    const outputs = graph.outputs.filter(output => output.name === name);
    if (outputs.length === 0) {
      const names = graph.outputs.map(output => output.name).join(', ');
      throw new ModelError('prepare', `the graph has no output ${name}, it has ${names}`);
    }
    return removeUnused({ ...graph, outputs });
  };
}

const RESIZE_SIZES_INPUT = 3;

/**
 * Fixes the input size. Each Resize gets its target as a constant, scaled from the exported size,
 * whether it was a number or arithmetic on shapes.
 */
export function setInputSize(graph: Graph, exported: Size, wanted: Size): Graph {
  const input = onlyInput(graph);
  const atExported = inferValues(graph, imageDims(exported));
  const initialisers = new Map<string, Tensor>(graph.initialisers);
  const nodes = graph.nodes.map(node => {
    const sizes = node.opType === 'Resize' ? node.inputs[RESIZE_SIZES_INPUT] : undefined;
    if (!sizes) return node;
    const target = scaledTarget(node, atExported, exported, wanted);
    if (target === undefined) {
      if (wanted.width === exported.width && wanted.height === exported.height) return node;
      throw new ModelError(
        'prepare',
        `the input size cannot be changed: what ${describe(node)} resizes to is not known`,
      );
    }
    const name = `${node.outputs[0]}.sizes`;
    initialisers.set(name, int64Tensor(target, [target.length]));
    return { ...node, inputs: node.inputs.with(RESIZE_SIZES_INPUT, name) };
  });
  const sized = removeUnused({
    ...graph,
    nodes,
    initialisers,
    inputs: [{ ...input, dims: imageDims(wanted) }],
  });
  return withOutputDims(sized, wanted);
}

function scaledTarget(node: GraphNode, atExported: KnownValues, exported: Size, wanted: Size) {
  const target = atExported.get(node.inputs[RESIZE_SIZES_INPUT] ?? '')?.numbers ?? [];
  const [batch, channels, exportedHeight, exportedWidth, ...others] = target;
  if (batch === undefined || channels === undefined) return undefined;
  if (exportedHeight === undefined || exportedWidth === undefined || others.length > 0) {
    return undefined;
  }
  const height = (exportedHeight * wanted.height) / exported.height;
  const width = (exportedWidth * wanted.width) / exported.width;
  if (!Number.isInteger(height) || !Number.isInteger(width)) {
    throw new ModelError(
      'prepare',
      `the graph cannot take ${wanted.width}x${wanted.height}: ${describe(node)} would resize to ` +
        `${width}x${height} pixels`,
    );
  }
  return [batch, channels, height, width];
}

function withOutputDims(graph: Graph, wanted: Size): Graph {
  const values = inferValues(graph, imageDims(wanted));
  const dims = [1, 1, wanted.height, wanted.width];
  const outputs = graph.outputs.map(output => {
    const found = values.get(output.name)?.dims ?? dims;
    if (found.join() !== dims.join()) {
      throw new ModelError(
        'prepare',
        `output ${output.name} would have the shape [${found.join()}], not [${dims.join()}]`,
      );
    }
    return { ...output, dims };
  });
  return { ...graph, outputs };
}

export function imageDims(size: Size): readonly number[] {
  return [1, 3, size.height, size.width];
}

function describe(node: GraphNode): string {
  return node.name === '' ? `the Resize that makes ${node.outputs[0]}` : node.name;
}

/**
 * Converts float16 weights to float32, exactly, and removes the Casts between the two: a CPU has no
 * half precision. Other Casts then give float32.
 */
export function widenToFloat32(graph: Graph, inputDims: readonly number[]): Graph {
  const known = inferValues(graph, inputDims);
  const initialisers = new Map<string, Tensor>();
  for (const [name, tensor] of graph.initialisers) {
    initialisers.set(name, tensor.elementType === ElementType.float16 ? widenHalf(tensor) : tensor);
  }
  const aliases = new Map<string, string>();
  const nodes: GraphNode[] = [];
  for (const node of graph.nodes) {
    const [input = ''] = node.inputs;
    if (!isCastToFloat(node)) {
      nodes.push(node);
    } else if (isFloat(known.get(input)?.elementType)) {
      aliases.set(node.outputs[0], aliases.get(input) ?? input);
    } else {
      nodes.push(castToFloat32(node));
    }
  }
  return {
    ...graph,
    nodes: rename(nodes, graph, aliases),
    initialisers,
    inputs: graph.inputs.map(widenValue),
    outputs: graph.outputs.map(widenValue),
  };
}

/**
 * Connects a removed Cast's readers to its source. If the Cast made an output of the graph, the
 * source's maker takes the output's name; if the source is an input, an Identity makes the output.
 */
function rename(nodes: readonly GraphNode[], graph: Graph, aliases: ReadonlyMap<string, string>) {
  const outputNames = new Map<string, string>();
  const copies: GraphNode[] = [];
  const made = new Set(nodes.flatMap(node => node.outputs));
  for (const { name } of graph.outputs) {
    const source = aliases.get(name);
    if (source === undefined) continue;
    const taken = outputNames.has(source) || graph.outputs.some(other => other.name === source);
    if (made.has(source) && !taken) outputNames.set(source, name);
    else copies.push(identity(source, name));
  }
  const renamed = (name: string) => outputNames.get(name) ?? name;
  return [...nodes, ...copies].map(node => {
    const [output, ...others] = node.outputs;
    const outputs: GraphNode['outputs'] = [renamed(output), ...others.map(renamed)];
    const inputs = node.inputs.map(name => renamed(aliases.get(name) ?? name));
    return { ...node, inputs, outputs };
  });
}

function identity(input: string, output: string): GraphNode {
  return {
    name: `copy to ${output}`,
    opType: 'Identity',
    domain: '',
    inputs: [input],
    outputs: [output],
    attributes: [],
  };
}

function isCastToFloat(node: GraphNode): boolean {
  return node.opType === 'Cast' && isFloat(integerAttribute(node, 'to', 0));
}

function castToFloat32(node: GraphNode): GraphNode {
  const attributes = node.attributes.map(attribute =>
    attribute.name === 'to' ? { ...attribute, i: BigInt(ElementType.float32) } : attribute,
  );
  return { ...node, attributes };
}

function isFloat(elementType: number | undefined): boolean {
  return elementType === ElementType.float32 || elementType === ElementType.float16;
}

function widenValue<Value extends { readonly elementType: number }>(value: Value): Value {
  return value.elementType === ElementType.float16
    ? { ...value, elementType: ElementType.float32 }
    : value;
}

/**
 * Removes casts to float32 around Resize. CUDA resizes in half precision, so a large plane moves
 * once instead of five times.
 */
export function resizeInHalf(graph: Graph, inputDims: readonly number[]): Graph {
  const known = inferValues(graph, inputDims);
  const makers = makersOf(graph.nodes);
  const readers = readersOf(graph.nodes);
  const outputs = new Set(graph.outputs.map(({ name }) => name));
  const aliases = new Map<string, string>();
  const nodes = graph.nodes.map(node => {
    if (node.opType !== 'Resize') return node;
    const [input = '', ...others] = node.inputs;
    const before = makers.get(input);
    const [resized] = node.outputs;
    const after = readers.get(resized) ?? [];
    if (before === undefined || !isCast(before, ElementType.float32)) return node;
    const [half = ''] = before.inputs;
    if (known.get(half)?.elementType !== ElementType.float16 || outputs.has(resized)) return node;
    if (!after.every(reader => isCast(reader, ElementType.float16))) return node;
    for (const reader of after) aliases.set(reader.outputs[0], resized);
    return { ...node, inputs: [half, ...others] };
  });
  const kept = nodes.filter(node => !aliases.has(node.outputs[0]) || outputs.has(node.outputs[0]));
  return removeUnused({
    ...graph,
    nodes: kept.map(node => ({
      ...node,
      inputs: node.inputs.map(name => aliases.get(name) ?? name),
    })),
  });
}

function isCast(node: GraphNode, elementType: number): boolean {
  return node.opType === 'Cast' && integerAttribute(node, 'to', 0) === elementType;
}

/*
 * A graph that takes and gives bytes: copying them to a GPU and back costs a third and a quarter of
 * what floats cost. Computes in float64, as JavaScript does (serving/engine/child/graph-io.ts).
 */

const CHANNELS = 3;
const TO_PLANES = [0, 3, 1, 2];
const BGR = [2, 1, 0];
const ALPHA_MAX = 255;

export interface PixelFormat {
  readonly normalisation: Normalisation;
  readonly colourOrder: PreparedModel['colourOrder'];
  readonly activation: PreparedModel['activation'];
}

export function bytesAtBothEnds(format: PixelFormat, { width, height }: Size): GraphPass {
  return graph => {
    const ends = new Ends();
    ends.before(onlyInput(graph).name, format);
    const [matte] = graph.outputs;
    if (matte === undefined) throw new Error('a prepared graph has one output');
    ends.after(matte.name, format.activation);
    return {
      ...graph,
      nodes: [...ends.first, ...graph.nodes, ...ends.last],
      initialisers: new Map([...graph.initialisers, ...ends.constants]),
      inputs: [
        { name: RGB_INPUT, elementType: ElementType.uint8, dims: [1, height, width, CHANNELS] },
      ],
      outputs: [
        { name: ALPHA_OUTPUT, elementType: ElementType.uint8, dims: [1, 1, height, width] },
        { name: SUM_OUTPUT, elementType: ElementType.float64, dims: [] },
      ],
    } satisfies Graph;
  };
}

class Ends {
  readonly first: GraphNode[] = [];
  readonly last: GraphNode[] = [];
  readonly constants = new Map<string, Tensor>();

  before(input: string, { normalisation, colourOrder }: PixelFormat): void {
    const { first } = this;
    let bytes = add(first, 'Transpose', [RGB_INPUT], [integers('perm', TO_PLANES)]);
    const inOrder = (values: Normalisation['mean']) =>
      colourOrder === 'rgb' ? values : BGR.map(channel => values[channel] ?? Number.NaN);
    if (colourOrder === 'bgr') {
      const order = this.#constant('matting.order', int64Tensor(BGR, [CHANNELS]));
      bytes = add(first, 'Gather', [bytes, order], [integer('axis', 1)]);
    }
    const perPlane = (values: readonly number[]) => float64Tensor(values, [1, CHANNELS, 1, 1]);
    const mean = this.#constant('matting.mean', perPlane(inOrder(normalisation.mean)));
    const std = this.#constant('matting.std', perPlane(inOrder(normalisation.std)));
    const doubles = add(first, 'Cast', [bytes], [integer('to', ElementType.float64)]);
    const normalised = add(first, 'Div', [add(first, 'Sub', [doubles, mean]), std]);
    add(first, 'Cast', [normalised], [integer('to', ElementType.float32)], input);
  }

  after(matte: string, activation: PixelFormat['activation']): void {
    const { last } = this;
    const toDouble = [integer('to', ElementType.float64)];
    const doubles = add(last, 'Cast', [matte], toDouble);
    const values = activation === 'sigmoid' ? add(last, 'Sigmoid', [doubles]) : doubles;
    add(last, 'ReduceSum', [values], [integer('keepdims', 0)], SUM_OUTPUT);
    const scaled = add(last, 'Mul', [
      activation === 'sigmoid' ? values : add(last, 'Cast', [this.#clipped(matte)], toDouble),
      this.#constant('matting.scale', float64Tensor([ALPHA_MAX], [])),
    ]);
    // Round takes the even neighbour, as JavaScript's clamped bytes do.
    const rounded = add(last, 'Round', [scaled]);
    add(last, 'Cast', [rounded], [integer('to', ElementType.uint8)], ALPHA_OUTPUT);
  }

  /** Clips before widening: Min and Max of float64 need newer opsets than the models'. */
  #clipped(matte: string): string {
    const zero = this.#constant('matting.zero', float32Tensor([0], []));
    const one = this.#constant('matting.one', float32Tensor([1], []));
    return add(this.last, 'Min', [add(this.last, 'Max', [matte, zero]), one]);
  }

  #constant(name: string, tensor: Tensor): string {
    this.constants.set(name, tensor);
    return name;
  }
}

function add(
  nodes: GraphNode[],
  opType: string,
  inputs: readonly string[],
  attributes: GraphNode['attributes'] = [],
  output = `matting.${opType}.${inputs.join('.')}`,
): string {
  nodes.push(nodeOf(opType, inputs, output, attributes));
  return output;
}
