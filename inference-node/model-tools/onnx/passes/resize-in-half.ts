import {
  ElementType,
  type Graph,
  type GraphNode,
  integerAttribute,
  makersOf,
  readersOf,
} from '../../../serving/onnx/graph.ts';
import { inferValues } from '../../../serving/onnx/infer.ts';
import { removeUnused } from './remove-unused.ts';

/**
 * Takes the casts to float32 and back from around Resize, as exporters of half precision write them
 * for runtimes that resize in float32 alone: CUDA's kernels take half precision, and a large plane
 * is then moved once in place of five times.
 * @param inputDims of the graph's input.
 */
export function resizeInHalf(graph: Graph, inputDims: readonly number[]): Graph {
  const known = inferValues(graph, inputDims);
  const makers = makersOf(graph.nodes);
  const readers = readersOf(graph.nodes);
  const outputs = new Set(graph.outputs.map(({ name }) => name));
  /** From the output of a cast that goes to that of the Resize before it. */
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
