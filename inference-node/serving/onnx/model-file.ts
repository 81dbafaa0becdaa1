/**
 * ONNX files: protobuf to Graph and back. Reading makes views of the file's bytes. Writing yields
 * pieces in order, the tensors' own bytes among them, so that a graph of 176 MB is never assembled
 * in memory a second time.
 *
 * Field numbers and types: onnx.proto of ONNX 1.10 (https://github.com/onnx/onnx), as generated in
 * the npm package onnx-proto; a field it does not know would be lost, so a graph is refused where
 * it holds what this code cannot carry over (subgraphs, functions, sparse or external tensors).
 */
import onnxProto, { type onnx } from 'onnx-proto';
import { ModelError } from '../models/model-error.ts';
import {
  ElementType,
  type Graph,
  type GraphNode,
  type GraphValue,
  sortTopologically,
  type Tensor,
} from './graph.ts';
import { elementCount, float32Tensor, int64Tensor } from './tensor.ts';

const { ModelProto, GraphProto, TensorProto } = onnxProto.onnx;

/** The producer that the written files name. */
const PRODUCER_NAME = 'matting-service';

/** Protobuf tags of length-delimited fields: number << 3 | 2. */
const TAG_MODEL_GRAPH = (7 << 3) | 2;
const TAG_GRAPH_INITIALISER = (5 << 3) | 2;
const TAG_TENSOR_RAW_DATA = (9 << 3) | 2;

/** @param name the file's, for errors. The graph's tensors are views of `bytes`. */
export function decodeModel(bytes: Uint8Array, name: string): Graph {
  let model: onnx.ModelProto;
  try {
    model = ModelProto.decode(bytes);
  } catch (error) {
    throw new ModelError('prepare', `${name} is not an ONNX file`, error);
  }
  const { graph } = model;
  if (!graph || graph.node?.length === 0) {
    throw new ModelError('prepare', `${name} holds no graph`);
  }
  refuseUncarried(model, graph, name);
  const nodes = sortTopologically((graph.node ?? []).map(node => readNode(node, name)));
  if (nodes === null) throw new ModelError('prepare', `the graph of ${name} has a circle`);
  const initialisers = new Map<string, Tensor>();
  for (const tensor of graph.initializer ?? []) {
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
    inputs: (graph.input ?? []).map(readValue).filter(({ name }) => !initialisers.has(name)),
    outputs: (graph.output ?? []).map(readValue),
  };
}

function refuseUncarried(model: onnx.ModelProto, graph: onnx.IGraphProto, name: string): void {
  const refuse = (what: string) => {
    throw new ModelError('prepare', `${name} holds ${what}, which cannot be prepared`);
  };
  if (model.functions.length > 0) refuse('functions');
  if ((graph.sparseInitializer?.length ?? 0) > 0) refuse('sparse tensors');
  for (const node of graph.node ?? []) {
    for (const attribute of node.attribute ?? []) {
      if (attribute.g || (attribute.graphs?.length ?? 0) > 0) refuse('subgraphs');
      if (attribute.refAttrName) refuse('attributes by reference');
    }
  }
}

function readNode(node: onnx.INodeProto, file: string): GraphNode {
  const [output, ...others] = node.output ?? [];
  if (output === undefined) {
    throw new ModelError('prepare', `${file}: node ${node.name} (${node.opType}) has no output`);
  }
  return {
    name: node.name ?? '',
    opType: node.opType ?? '',
    domain: node.domain ?? '',
    inputs: node.input ?? [],
    outputs: [output, ...others],
    attributes: node.attribute ?? [],
  };
}

function readValue(value: onnx.IValueInfoProto): GraphValue {
  const type = value.type?.tensorType;
  return {
    name: value.name ?? '',
    elementType: type?.elemType ?? 0,
    dims: (type?.shape?.dim ?? []).map(dim =>
      dim.dimParam || dim.dimValue == null || Number(dim.dimValue) <= 0
        ? null
        : Number(dim.dimValue),
    ),
  };
}

/** @param name the file's, for errors. */
export function readTensor(tensor: onnx.ITensorProto, name: string): Tensor {
  const elementType = tensor.dataType ?? 0;
  const dims = (tensor.dims ?? []).map(Number);
  if (tensor.rawData && tensor.rawData.length > 0) {
    return { elementType, dims, data: tensor.rawData };
  }
  const count = elementCount(dims);
  if (count === 0) return { elementType, dims, data: new Uint8Array(0) };
  if (elementType === ElementType.float32 && tensor.floatData?.length === count) {
    return float32Tensor(tensor.floatData, dims);
  }
  if (elementType === ElementType.int64 && tensor.int64Data?.length === count) {
    return int64Tensor(tensor.int64Data.map(Number), dims);
  }
  throw new ModelError(
    'prepare',
    `${name}: tensor ${tensor.name} of type ${elementType} is stored in a form not supported`,
  );
}

/** Bytes of a tensor in another file of the same folder. */
export interface TensorPlace {
  readonly file: string;
  readonly offset: number;
}

/**
 * The file's bytes, piece by piece; join them in this order.
 * @param placeOf where a tensor's bytes are already: then they are named, not written again.
 */
export function* encodeModel(
  graph: Graph,
  placeOf: (tensor: Tensor) => TensorPlace | undefined = () => undefined,
): Generator<Uint8Array> {
  yield ModelProto.encode({
    irVersion: graph.irVersion,
    producerName: PRODUCER_NAME,
    opsetImport: graph.opsets.map(opset => ({ ...opset })),
  }).finish();
  const body = GraphProto.encode({
    name: 'matte',
    node: graph.nodes.map(writeNode),
    input: graph.inputs.map(writeValue),
    output: graph.outputs.map(writeValue),
  }).finish();
  const tensors = [...graph.initialisers].map(([name, tensor]) => {
    const place = placeOf(tensor);
    return place === undefined
      ? encodeTensor(name, tensor)
      : encodePlacedTensor(name, tensor, place);
  });
  const graphBytes = tensors.reduce(
    (sum, pieces) => sum + pieces.reduce((bytes, piece) => bytes + piece.length, 0),
    body.length,
  );
  yield tagAndLength(TAG_MODEL_GRAPH, graphBytes);
  yield body;
  for (const pieces of tensors) yield* pieces;
}

function encodeTensor(name: string, tensor: Tensor): readonly Uint8Array[] {
  const head = TensorProto.encode({
    name,
    dataType: tensor.elementType,
    dims: [...tensor.dims],
  }).finish();
  const raw = tagAndLength(TAG_TENSOR_RAW_DATA, tensor.data.length);
  const tensorBytes = head.length + raw.length + tensor.data.length;
  return [tagAndLength(TAG_GRAPH_INITIALISER, tensorBytes), head, raw, tensor.data];
}

function encodePlacedTensor(
  name: string,
  { elementType: dataType, dims, data }: Tensor,
  { file, offset }: TensorPlace,
): readonly Uint8Array[] {
  const entries = { location: file, offset: String(offset), length: String(data.length) };
  const tensor = TensorProto.encode({
    ...{ name, dataType, dims: [...dims] },
    dataLocation: TensorProto.DataLocation.EXTERNAL,
    externalData: Object.entries(entries).map(([key, value]) => ({ key, value })),
  }).finish();
  return [tagAndLength(TAG_GRAPH_INITIALISER, tensor.length), tensor];
}

/** A tag and a length as protobuf varints. */
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

function writeNode(node: GraphNode): onnx.INodeProto {
  return {
    name: node.name,
    opType: node.opType,
    domain: node.domain,
    input: [...node.inputs],
    output: [...node.outputs],
    attribute: [...node.attributes],
  };
}

function writeValue(value: GraphValue): onnx.IValueInfoProto {
  return {
    name: value.name,
    type: {
      tensorType: {
        elemType: value.elementType,
        shape: {
          dim: value.dims.map(dim => (dim === null ? {} : { dimValue: dim })),
        },
      },
    },
  };
}
