import { ModelError } from '../../model-error.ts';
import type { Graph } from '../graph.ts';

/** DequantizeLinear has an axis, for a scale a channel, from this one on. */
export const OPSET_OF_INT8 = 13;

/** Before it operators had other inputs; no published model here is older. */
const OPSET_KNOWN_MIN = 11;

/**
 * Operators whose inputs, attributes and meaning are the same in opsets 11, 12 and 13: what changed
 * is only which element types they take
 * (https://github.com/onnx/onnx/blob/main/docs/Changelog.md).
 */
const UNCHANGED: ReadonlySet<string> = new Set([
  'Add',
  'AveragePool',
  'BatchNormalization',
  'Clip',
  'Concat',
  'Conv',
  'Div',
  'Expand',
  'Flatten',
  'Gather',
  'Gemm',
  'GlobalAveragePool',
  'Identity',
  'InstanceNormalization',
  'MatMul',
  'MaxPool',
  'Mul',
  'Relu',
  'Reshape',
  'Resize',
  'Shape',
  'Sigmoid',
  'Slice',
  'Sub',
  'Transpose',
]);

/**
 * Says of a graph of opset 11 or 12 that it is of 13, where that is true of every operator in it.
 * Throws ModelError `prepare` where it is not.
 */
export function raiseOpset(graph: Graph, wanted: typeof OPSET_OF_INT8): Graph {
  const own = graph.opsets.find(({ domain }) => domain === '');
  const version = own?.version ?? 0;
  if (version >= wanted) return graph;
  const changed = graph.nodes.find(node => node.domain === '' && !UNCHANGED.has(node.opType));
  if (version < OPSET_KNOWN_MIN || changed !== undefined) {
    const what = changed === undefined ? 'it is older than 11' : `it has a ${changed.opType}`;
    throw new ModelError(
      'prepare',
      `the graph's opset ${version} cannot be raised to ${wanted}: ${what}`,
    );
  }
  const opsets = graph.opsets.map(opset =>
    opset.domain === '' ? { ...opset, version: wanted } : opset,
  );
  return { ...graph, opsets };
}
