/**
 * The order of the passes that turn a source graph into one that runs. Quantisation comes last: it
 * takes the float32 graph at its input size.
 */

import type { Size } from '#contract/finishing.ts';
import { ModelError } from '../../../serving/models/model-error.ts';
import {
  attribute,
  ElementType,
  type Graph,
  type GraphNode,
  type GraphPass,
  onlyInput,
  type Tensor,
} from '../../../serving/onnx/graph.ts';
import { readTensor } from '../../../serving/onnx/model-file.ts';
import { bytesAtBothEnds, type PixelFormat } from './bytes-at-both-ends.ts';
import { type Quantisation, quantise } from './quantise.ts';
import { OPSET_OF_INT8, raiseOpset } from './raise-opset.ts';
import { keepOutput, removeUnused } from './remove-unused.ts';
import { resizeInHalf } from './resize-in-half.ts';
import { imageDims, setInputSize } from './set-input-size.ts';
import { widenToFloat32 } from './widen-to-float32.ts';

export interface GraphPreparation {
  readonly inputName: string;
  readonly outputName: string;
  /** The size the graph was exported for. */
  readonly exported: Size;
  readonly wanted: Size;
  /** fp16 keeps half-precision weights as they are, for GPUs. */
  readonly precision: 'fp32' | 'fp16' | 'int8';
  /** Required for int8: the ranges for this float32 graph. */
  readonly quantise?: ((float32: Graph) => Quantisation) | undefined;
  /** For CUDA: bytes of this kind at both ends, and half precision throughout. */
  readonly pixels?: PixelFormat | undefined;
}

/** Throws ModelError `prepare`. */
export function prepareGraph(source: Graph, preparation: GraphPreparation): Graph {
  const { inputName, outputName, exported, wanted, precision, pixels } = preparation;
  const widen: GraphPass = graph => widenToFloat32(graph, imageDims(wanted));
  const passes: readonly GraphPass[] = [
    liftConstants,
    keepOutput(outputName),
    graph => setInputSize(graph, exported, wanted),
    ...(precision === 'fp16' ? [] : [widen]),
    removeUnused,
    ...(precision === 'int8' ? [toBytes(preparation)] : []),
  ];
  const prepared = passes.reduce((graph, pass) => pass(graph), source);
  requireInterface(prepared, inputName);
  if (pixels === undefined) return prepared;
  return bytesAtBothEnds(pixels, wanted)(resizeInHalf(prepared, imageDims(wanted)));
}

function toBytes(preparation: GraphPreparation): GraphPass {
  const { quantise: describe } = preparation;
  if (describe === undefined) throw new Error('int8 needs `quantise`');
  return graph => {
    const raised = raiseOpset(graph, OPSET_OF_INT8);
    return quantise(raised, describe(raised));
  };
}

/** Float32 by the manifest's names: what engines feed and read, or the pass for bytes begins with. */
function requireInterface(graph: Graph, inputName: string): void {
  const input = onlyInput(graph);
  if (input.name !== inputName) {
    throw new ModelError('prepare', `the graph's input is ${input.name}, not ${inputName}`);
  }
  for (const { name, elementType } of [input, ...graph.outputs]) {
    if (elementType === ElementType.float32) continue;
    throw new ModelError('prepare', `${name} must be float32; its ONNX type is ${elementType}`);
  }
}

/**
 * Constant nodes become initialisers, so that other passes meet constants in one form only.
 * Constants given as single numbers (value_int and the like) stay as they are.
 */
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
