import {
  ElementType,
  float32Tensor,
  type Graph,
  type GraphNode,
  integerAttribute,
  integers,
  integersAttribute,
  textAttribute,
} from '@matting/serving/onnx/graph.ts';
import { removeUnused } from './rewrites.ts';

/**
 * ONNX Runtime computes 16 channels of a float32 convolution at a time, so one channel costs as
 * much as 16, as do the resizing and sigmoid after it. A transposed convolution with the turned
 * kernel adds the same products for one channel. ISNet in int8 takes a tenth less processor time
 * (bench/MEASUREMENTS.md).
 */
export function transposeToOneChannel(graph: Graph): Graph {
  const initialisers = new Map(graph.initialisers);
  const nodes = graph.nodes.map(node => {
    const [data = '', weights = '', ...bias] = node.inputs;
    const tensor = graph.initialisers.get(weights);
    if (tensor?.elementType !== ElementType.float32) return node;
    const pads = transposedPads(node, tensor.dims);
    if (pads === undefined) return node;
    const [, channels = 0, height = 0, width = 0] = tensor.dims;
    const name = `${node.outputs[0]}.turned`;
    const floats = new Float32Array(new Uint8Array(tensor.data).buffer);
    const size = height * width;
    for (let at = 0; at < floats.length; at += size) floats.subarray(at, at + size).reverse();
    initialisers.set(name, float32Tensor([...floats], [channels, 1, height, width]));
    return {
      ...node,
      opType: 'ConvTranspose',
      inputs: [data, name, ...bias],
      attributes: [integers('kernel_shape', [height, width]), integers('pads', pads)],
    };
  });
  return removeUnused({ ...graph, nodes, initialisers });
}

/** Undefined: it has several channels, strides, dilations, or a 1x1 kernel. */
function transposedPads(node: GraphNode, dims: readonly number[]): readonly number[] | undefined {
  const [outputs, , height = 1, width = 1] = dims;
  if (node.opType !== 'Conv' || node.domain !== '' || outputs !== 1 || dims.length !== 4) return;
  const isPlain = (name: string) =>
    (integersAttribute(node, name) ?? []).every(value => value === 1);
  const isPadded = textAttribute(node, 'auto_pad', 'NOTSET') === 'NOTSET';
  if (!isPlain('strides') || !isPlain('dilations') || !isPadded) return;
  if (integerAttribute(node, 'group', 1) !== 1 || height * width === 1) return;
  const pads = integersAttribute(node, 'pads') ?? [];
  const transposed = [height, width, height, width].map((side, i) => side - 1 - (pads[i] ?? 0));
  return transposed.every(pad => pad >= 0) ? transposed : undefined;
}
