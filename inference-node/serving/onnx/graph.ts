/**
 * An ONNX graph as the passes see it. Tensors are views of the file. A pass returns another graph
 * and changes no tensor's bytes: 88 MB of weights are copied only when widened.
 *
 * Invariants: nodes are in topological order; one node, initialiser or input makes a name; no node
 * holds a subgraph.
 */

import { ModelError } from '../models/model-error.ts';
import {
  AttributeProto,
  GraphProto,
  ModelProto,
  type NodeProto,
  TensorProto,
  type ValueInfoProto,
} from './gen/onnx.ts';

export const ElementType = {
  float32: 1,
  uint8: 2,
  int8: 3,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
  float64: 11,
} as const;

export interface Tensor {
  readonly elementType: number;
  readonly dims: readonly number[];
  /** Little-endian, row-major, read-only. */
  readonly data: Uint8Array;
}

export interface GraphNode {
  readonly name: string;
  readonly opType: string;
  /** '' is ONNX's own domain. */
  readonly domain: string;
  /** '' is an optional input that is not given; trailing ones may be left out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly [string, ...string[]];
  readonly attributes: readonly AttributeProto[];
}

interface GraphValue {
  readonly name: string;
  readonly elementType: number;
  /** Null: free. */
  readonly dims: readonly (number | null)[];
}

export interface OpsetImport {
  readonly domain: string;
  readonly version: number;
}

export interface Graph {
  readonly irVersion: number;
  readonly opsets: readonly OpsetImport[];
  readonly nodes: readonly GraphNode[];
  readonly initialisers: ReadonlyMap<string, Tensor>;
  readonly inputs: readonly GraphValue[];
  readonly outputs: readonly GraphValue[];
}

/**
 * A step of the preparation.
 * @throws ModelError `prepare` if a graph does not allow it
 */
export type GraphPass = (graph: Graph) => Graph;

export function onlyInput(graph: Graph): GraphValue {
  const [input, ...others] = graph.inputs;
  if (input === undefined || others.length > 0) {
    const names = graph.inputs.map(({ name }) => name).join(', ') || 'none';
    throw new ModelError('prepare', `the graph must have one input, it has ${names}`);
  }
  return input;
}

export function attribute(node: GraphNode, name: string): AttributeProto | undefined {
  return node.attributes.find(candidate => candidate.name === name);
}

export function integerAttribute(node: GraphNode, name: string, absent: number): number {
  return Number(attribute(node, name)?.i ?? absent);
}

export function integersAttribute(node: GraphNode, name: string): readonly number[] | undefined {
  return attribute(node, name)?.ints.map(Number);
}

export function textAttribute(node: GraphNode, name: string, absent: string): string {
  const value = attribute(node, name)?.s;
  return value === undefined ? absent : Buffer.from(value).toString('utf8');
}

export function nodeOf(
  opType: string,
  inputs: readonly string[],
  output: string,
  attributes: GraphNode['attributes'] = [],
): GraphNode {
  return { name: output, opType, domain: '', inputs, outputs: [output], attributes };
}

const ATTRIBUTE_INT = 2;
const ATTRIBUTE_STRING = 3;
const ATTRIBUTE_INTS = 7;

export function integer(name: string, value: number): AttributeProto {
  return AttributeProto.fromPartial({ name, type: ATTRIBUTE_INT, i: BigInt(value) });
}

export function integers(name: string, values: readonly number[]): AttributeProto {
  return AttributeProto.fromPartial({ name, type: ATTRIBUTE_INTS, ints: values.map(BigInt) });
}

export function text(name: string, value: string): AttributeProto {
  return AttributeProto.fromPartial({ name, type: ATTRIBUTE_STRING, s: Buffer.from(value) });
}

export function makersOf(nodes: readonly GraphNode[]): ReadonlyMap<string, GraphNode> {
  return new Map(nodes.flatMap(node => node.outputs.map(name => [name, node])));
}

export function readersOf(nodes: readonly GraphNode[]): ReadonlyMap<string, GraphNode[]> {
  const reads = nodes.flatMap(node => [...new Set(node.inputs)].map(name => ({ name, node })));
  const byName = Map.groupBy(reads, ({ name }) => name);
  return new Map([...byName].map(([name, each]) => [name, each.map(({ node }) => node)]));
}

/** Otherwise keeps the order of nodes. Null if they form a circle. */
export function sortTopologically(nodes: readonly GraphNode[]): readonly GraphNode[] | null {
  const makers = makersOf(nodes);
  const sorted = new Set<GraphNode>();
  const entered = new Set<GraphNode>();
  for (const start of nodes) {
    // A stack instead of recursion: exported graphs are thousands of nodes deep.
    const stack = [start];
    for (let node = stack.at(-1); node !== undefined; node = stack.at(-1)) {
      if (entered.has(node)) {
        sorted.add(node);
        stack.pop();
        continue;
      }
      entered.add(node);
      for (const input of node.inputs) {
        // '' is an input or output that is not there.
        const maker = input === '' ? undefined : makers.get(input);
        if (maker === undefined || sorted.has(maker)) continue;
        if (entered.has(maker)) return null;
        stack.push(maker);
      }
    }
  }
  return [...sorted];
}

export function elementCount(dims: readonly number[]): number {
  return dims.reduce((product, dim) => product * dim, 1);
}

export function int64Tensor(values: readonly number[], dims: readonly number[]): Tensor {
  const data = new Uint8Array(values.length * 8);
  const view = new DataView(data.buffer);
  for (const [index, value] of values.entries()) view.setBigInt64(index * 8, BigInt(value), true);
  return { elementType: ElementType.int64, dims, data };
}

export function float32Tensor(values: readonly number[], dims: readonly number[]): Tensor {
  const data = new Uint8Array(values.length * 4);
  const view = new DataView(data.buffer);
  for (const [index, value] of values.entries()) view.setFloat32(index * 4, value, true);
  return { elementType: ElementType.float32, dims, data };
}

export function float64Tensor(values: readonly number[], dims: readonly number[]): Tensor {
  const data = new Uint8Array(values.length * 8);
  const view = new DataView(data.buffer);
  for (const [index, value] of values.entries()) view.setFloat64(index * 8, value, true);
  return { elementType: ElementType.float64, dims, data };
}

export function tensorNumbers(tensor: Tensor): readonly number[] | undefined {
  const { data, elementType } = tensor;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const count = elementCount(tensor.dims);
  if (elementType === ElementType.int64) {
    return Array.from({ length: count }, (_, index) => Number(view.getBigInt64(index * 8, true)));
  }
  if (elementType === ElementType.float32) {
    return Array.from({ length: count }, (_, index) => view.getFloat32(index * 4, true));
  }
  return undefined;
}

/** Exact for every value. 44 million take 0.1 s by the table, 0.9 s by arithmetic. */
export function widenHalf(tensor: Tensor): Tensor {
  // Copied: a view of the file may begin at an odd address.
  const halves = new Uint16Array(new Uint8Array(tensor.data).buffer);
  const floats = new Uint32Array(halves.length);
  const table = halfTable();
  for (let at = 0; at < halves.length; at += 1) floats[at] = table[halves[at]!]!;
  return {
    elementType: ElementType.float32,
    dims: tensor.dims,
    data: new Uint8Array(floats.buffer),
  };
}

let cachedHalfTable: Uint32Array | undefined;

/** The bits of the float32 for each float16 (IEEE 754-2008 binary16). */
function halfTable(): Uint32Array {
  if (cachedHalfTable !== undefined) return cachedHalfTable;
  const table = new Uint32Array(65536);
  const floats = new Float32Array(table.buffer);
  for (let half = 0; half < 65536; half += 1) {
    const sign = half & 0x8000 ? -1 : 1;
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    if (exponent === 0) floats[half] = sign * fraction * 2 ** -24;
    else if (exponent < 31) floats[half] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
    else table[half] = (((half & 0x8000) << 16) | 0x7f800000 | (fraction << 13)) >>> 0;
  }
  cachedHalfTable = table;
  return table;
}

/*
 * Reads and writes ONNX files. Reading makes views; writing yields pieces, so that a graph of 176
 * MB is never assembled a second time. Fields that onnx.proto lacks are lost, so a graph with
 * subgraphs, functions, sparse or external tensors is refused.
 */

const PRODUCER_NAME = 'matting-service';

/** Length-delimited fields: number << 3 | 2. */
const TAG_MODEL_GRAPH = (7 << 3) | 2;
const TAG_GRAPH_NODE = (1 << 3) | 2;
const TAG_GRAPH_INITIALISER = (5 << 3) | 2;
const TAG_TENSOR_RAW_DATA = (9 << 3) | 2;

/** BiRefNet has 6,000. Reading a million takes minutes and gigabytes. */
const NODES_MAX = 100_000;

/** Without decoding nodes: a damaged file may have any number. */
function countNodes(bytes: Uint8Array): number {
  let nodes = 0;
  for (const graph of fieldsOf(bytes)) {
    if (graph.tag !== TAG_MODEL_GRAPH) continue;
    for (const { tag } of fieldsOf(graph.content)) {
      if (tag === TAG_GRAPH_NODE || tag === TAG_GRAPH_INITIALISER) nodes += 1;
    }
  }
  return nodes;
}

const WIRE_VARINT = 0;
const WIRE_BYTES = 2;
const WIRE_FIXED_LENGTHS: Readonly<Record<number, number>> = { 1: 8, 5: 4 };

function requireFew(nodes: number, name: string): void {
  if (nodes <= NODES_MAX) return;
  const what = `${name} has ${nodes} nodes and initialisers`;
  throw new ModelError('prepare', `${what}; at most ${NODES_MAX} can be prepared`);
}

function* fieldsOf(bytes: Uint8Array): Generator<{ tag: number; content: Uint8Array }> {
  for (let at = 0; at < bytes.length; ) {
    const tag = readVarint(bytes, at);
    const value = readVarint(bytes, tag.end);
    const wire = tag.value % 8;
    const isBytes = wire === WIRE_BYTES;
    const from = wire === WIRE_VARINT || isBytes ? value.end : tag.end;
    const length = isBytes ? value.value : (WIRE_FIXED_LENGTHS[wire] ?? 0);
    if (wire !== WIRE_VARINT && !isBytes && length === 0) return;
    yield { tag: tag.value, content: bytes.subarray(from, from + length) };
    at = from + length;
  }
}

function readVarint(bytes: Uint8Array, from: number): { value: number; end: number } {
  let value = 0;
  let end = from;
  for (let scale = 1, more = true; more && end < bytes.length; scale *= 128) {
    const byte = bytes[end] ?? 0;
    value += (byte % 128) * scale;
    more = byte > 127;
    end += 1;
  }
  return { value, end };
}

/** Tensors are views of `bytes`; `name` is for errors. */
export function decodeModel(bytes: Uint8Array, name: string): Graph {
  requireFew(countNodes(bytes), name);
  let model: ModelProto;
  try {
    model = ModelProto.decode(bytes);
  } catch (error) {
    throw new ModelError('prepare', `${name} is not an ONNX file`, error);
  }
  const { graph } = model;
  if (graph === undefined || graph.node.length === 0) {
    throw new ModelError('prepare', `${name} holds no graph`);
  }
  refuseUncarried(model, graph, name);
  const nodes = sortTopologically(graph.node.map(node => readNode(node, name)));
  if (nodes === null) throw new ModelError('prepare', `the graph of ${name} has a circle`);
  const initialisers = new Map<string, Tensor>();
  for (const tensor of graph.initializer) {
    initialisers.set(tensor.name ?? '', readTensor(tensor, name));
  }
  return {
    irVersion: Number(model.irVersion),
    opsets: model.opsetImport.map(({ domain, version }) => ({
      domain: domain ?? '',
      version: Number(version),
    })),
    nodes,
    initialisers,
    // Before IR version 4 every initialiser is listed as an input too.
    inputs: graph.input.map(readValue).filter(({ name }) => !initialisers.has(name)),
    outputs: graph.output.map(readValue),
  };
}

function refuseUncarried(model: ModelProto, graph: GraphProto, name: string): void {
  const refuse = (what: string) => {
    throw new ModelError('prepare', `${name} holds ${what}, which cannot be prepared`);
  };
  if (model.functions.length > 0) refuse('functions');
  if (graph.sparseInitializer.length > 0) refuse('sparse tensors');
  for (const node of graph.node) {
    for (const attribute of node.attribute) {
      if (attribute.g || attribute.graphs.length > 0) refuse('subgraphs');
      if (attribute.refAttrName) refuse('attributes by reference');
    }
  }
}

function readNode(node: NodeProto, file: string): GraphNode {
  const [output, ...others] = node.output;
  if (output === undefined) {
    throw new ModelError('prepare', `${file}: node ${node.name} (${node.opType}) has no output`);
  }
  return {
    name: node.name ?? '',
    opType: node.opType ?? '',
    domain: node.domain ?? '',
    inputs: node.input,
    outputs: [output, ...others],
    attributes: node.attribute,
  };
}

function readValue(value: ValueInfoProto): GraphValue {
  const type = value.type?.tensorType;
  return {
    name: value.name ?? '',
    elementType: type?.elemType ?? 0,
    dims: (type?.shape?.dim ?? []).map(dim =>
      dim.dimParam || dim.dimValue === undefined || dim.dimValue <= 0 ? null : Number(dim.dimValue),
    ),
  };
}

export function readTensor(tensor: TensorProto, name: string): Tensor {
  const elementType = tensor.dataType ?? 0;
  const dims = tensor.dims.map(Number);
  if (tensor.rawData && tensor.rawData.length > 0) {
    return { elementType, dims, data: tensor.rawData };
  }
  const count = elementCount(dims);
  if (count === 0) return { elementType, dims, data: new Uint8Array(0) };
  if (elementType === ElementType.float32 && tensor.floatData.length === count) {
    return float32Tensor(tensor.floatData, dims);
  }
  if (elementType === ElementType.int64 && tensor.int64Data.length === count) {
    return int64Tensor(tensor.int64Data.map(Number), dims);
  }
  throw new ModelError(
    'prepare',
    `${name}: tensor ${tensor.name} of type ${elementType} is stored in a form not supported`,
  );
}

export function* encodeModel(graph: Graph): Generator<Uint8Array> {
  yield ModelProto.encode({
    irVersion: BigInt(graph.irVersion),
    producerName: PRODUCER_NAME,
    opsetImport: graph.opsets.map(({ domain, version }) => ({ domain, version: BigInt(version) })),
    functions: [],
  }).finish();
  const body = GraphProto.encode({
    name: 'matte',
    node: graph.nodes.map(writeNode),
    input: graph.inputs.map(writeValue),
    output: graph.outputs.map(writeValue),
    ...{ initializer: [], valueInfo: [], sparseInitializer: [] },
  }).finish();
  const tensors = [...graph.initialisers].map(([name, tensor]) => encodeTensor(name, tensor));
  const graphBytes = tensors.reduce(
    (sum, pieces) => sum + pieces.reduce((bytes, piece) => bytes + piece.length, 0),
    body.length,
  );
  yield tagAndLength(TAG_MODEL_GRAPH, graphBytes);
  yield body;
  for (const pieces of tensors) yield* pieces;
}

function encodeTensor(name: string, tensor: Tensor): readonly Uint8Array[] {
  const dims = tensor.dims.map(BigInt);
  const head = TensorProto.encode(
    TensorProto.fromPartial({ name, dataType: tensor.elementType, dims }),
  ).finish();
  const raw = tagAndLength(TAG_TENSOR_RAW_DATA, tensor.data.length);
  const tensorBytes = head.length + raw.length + tensor.data.length;
  return [tagAndLength(TAG_GRAPH_INITIALISER, tensorBytes), head, raw, tensor.data];
}

function tagAndLength(tag: number, length: number): Uint8Array {
  const bytes: number[] = [];
  for (const value of [tag, length]) {
    let left = value;
    while (left > 127) {
      bytes.push((left % 128) + 128);
      left = Math.floor(left / 128);
    }
    bytes.push(left);
  }
  return Uint8Array.from(bytes);
}

function writeNode(node: GraphNode): NodeProto {
  return {
    name: node.name,
    opType: node.opType,
    domain: node.domain,
    input: [...node.inputs],
    output: [...node.outputs],
    attribute: [...node.attributes],
  };
}

function writeValue(value: GraphValue): ValueInfoProto {
  return {
    name: value.name,
    type: {
      tensorType: {
        elemType: value.elementType,
        shape: {
          dim: value.dims.map(dim => (dim === null ? {} : { dimValue: BigInt(dim) })),
        },
      },
    },
  };
}
