import { ModelError } from '../../../serving/models/model-error.ts';
import { type Graph, integersAttribute } from '../../../serving/onnx/graph.ts';
import { int64Tensor } from '../../../serving/onnx/tensor.ts';

/** From this one on DequantizeLinear has an axis, for a scale per channel. */
export const OPSET_OF_INT8 = 13;

/** In older opsets operators had other inputs; no model here is older. */
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

/** Their axes, an attribute before, are an input from opset 13 on; nothing else changed. */
const AXES_MOVED: ReadonlySet<string> = new Set(['Squeeze', 'Unsqueeze']);

const CARRIED: ReadonlySet<string> = new Set([...UNCHANGED, ...AXES_MOVED]);

/**
 * Turns a graph of opset 11 or 12 into one of 13, where every operator in it can be carried over.
 * Throws ModelError `prepare` where one cannot.
 */
export function raiseOpset(graph: Graph, wanted: typeof OPSET_OF_INT8): Graph {
  const own = graph.opsets.find(({ domain }) => domain === '');
  const version = own?.version ?? 0;
  if (version >= wanted) return graph;
  const changed = graph.nodes.find(node => node.domain === '' && !CARRIED.has(node.opType));
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
  return { ...moveAxes(graph), opsets };
}

function moveAxes(graph: Graph): Graph {
  const initialisers = new Map(graph.initialisers);
  const nodes = graph.nodes.map(node => {
    const axes = AXES_MOVED.has(node.opType) ? integersAttribute(node, 'axes') : undefined;
    if (axes === undefined) return node;
    const name = `${node.outputs[0]}.axes`;
    initialisers.set(name, int64Tensor(axes, [axes.length]));
    const attributes = node.attributes.filter(attribute => attribute.name !== 'axes');
    return { ...node, inputs: [...node.inputs, name], attributes };
  });
  return { ...graph, nodes, initialisers };
}
