/**
 * The order of the passes that make a source graph one that runs. Another precision is another pass
 * at the end of this list: quantisation takes the float32 graph at its input size.
 */
import { ModelError } from '../model-error.ts';
import { ElementType, type Graph } from './graph.ts';
import { keepOutput } from './passes/keep-output.ts';
import { liftConstants } from './passes/lift-constants.ts';
import { removeUnused } from './passes/remove-unused.ts';
import { type ImageSize, imageDims, setInputSize } from './passes/set-input-size.ts';
import { widenToFloat32 } from './passes/widen-to-float32.ts';

export interface GraphPreparation {
  readonly inputName: string;
  readonly outputName: string;
  /** The size the graph was exported for. */
  readonly exported: ImageSize;
  readonly wanted: ImageSize;
  /** fp16 keeps half-precision weights as they are, for GPUs. */
  readonly precision: 'fp32' | 'fp16';
}

/** Throws ModelError `prepare`. */
export function prepareGraph(source: Graph, preparation: GraphPreparation): Graph {
  const { inputName, outputName, exported, wanted, precision } = preparation;
  const passes: readonly ((graph: Graph) => Graph)[] = [
    liftConstants,
    keepOutput(outputName),
    graph => setInputSize(graph, exported, wanted),
    ...(precision === 'fp32' ? [(graph: Graph) => widenToFloat32(graph, imageDims(wanted))] : []),
    removeUnused,
  ];
  const prepared = passes.reduce((graph, pass) => pass(graph), source);
  requireFace(prepared, inputName);
  return prepared;
}

/** Engines feed and read float32 by the manifest's names. */
function requireFace(graph: Graph, inputName: string): void {
  const [input] = graph.inputs;
  if (input.name !== inputName) {
    throw new ModelError('prepare', `the graph's input is ${input.name}, not ${inputName}`);
  }
  for (const { name, elementType } of [input, ...graph.outputs]) {
    if (elementType === ElementType.float32) continue;
    throw new ModelError('prepare', `${name} must be float32; its ONNX type is ${elementType}`);
  }
}
