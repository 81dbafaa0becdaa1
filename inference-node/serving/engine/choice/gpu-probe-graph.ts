/** A small graph of the models' operators, to test whether a GPU runs them. */
import {
  ElementType,
  elementCount,
  encodeModel,
  float32Tensor,
  integer,
  integers,
  nodeOf,
  text,
} from '../../onnx/graph.ts';
import type { SessionSpec } from '../engine-protocol.ts';

export const PROBE_SIZE_PX = 64;
const CHANNELS = 8;
const KERNEL = 3;
/** The models' opset, older than ONNX 1.12: every provider supports it. */
const OPSET = 13;
const IR_VERSION = 7;

export const PROBE_SPEC: Omit<SessionSpec, 'provider'> = {
  path: undefined,
  sha256: undefined,
  inputName: 'input',
  outputName: 'output',
  inputWidth: PROBE_SIZE_PX,
  inputHeight: PROBE_SIZE_PX,
  normalisation: { mean: [128, 128, 128], std: [64, 64, 64] },
  colourOrder: 'rgb',
  activation: 'none',
  intraOpThreads: 1,
  sharesCores: false,
  // If a GPU leaves a convolution to the CPU, the probe fails.
  allowCpuNodes: false,
};

function createSequence(): () => number {
  let state = 1;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
}

export function encodeProbeGraph(): Uint8Array {
  const next = createSequence();
  const weights = (outputs: number, inputs: number) => {
    const dims = [outputs, inputs, KERNEL, KERNEL];
    return float32Tensor(Array.from({ length: elementCount(dims) }, next), dims);
  };
  const image = (name: string, channels: number) => ({
    name,
    elementType: ElementType.float32,
    dims: [1, channels, PROBE_SIZE_PX, PROBE_SIZE_PX],
  });
  const conv = (input: string, weight: string, output: string) =>
    nodeOf('Conv', [input, weight], output, [
      integers('kernel_shape', [KERNEL, KERNEL]),
      integers('pads', [1, 1, 1, 1]),
    ]);
  const pieces = encodeModel({
    irVersion: IR_VERSION,
    opsets: [{ domain: '', version: OPSET }],
    inputs: [image('input', 3)],
    outputs: [image('output', 1)],
    initialisers: new Map([
      ['w1', weights(CHANNELS, 3)],
      ['w2', weights(CHANNELS, CHANNELS)],
      ['w3', weights(1, 2 * CHANNELS)],
      ['scales', float32Tensor([1, 1, 2, 2], [4])],
    ]),
    nodes: [
      conv('input', 'w1', 'c1'),
      nodeOf('Relu', ['c1'], 'full'),
      nodeOf('MaxPool', ['full'], 'half', [
        integers('kernel_shape', [2, 2]),
        integers('strides', [2, 2]),
      ]),
      conv('half', 'w2', 'c2'),
      nodeOf('Relu', ['c2'], 'deep'),
      nodeOf('Resize', ['deep', '', 'scales'], 'up', [
        text('mode', 'linear'),
        text('coordinate_transformation_mode', 'half_pixel'),
      ]),
      nodeOf('Concat', ['full', 'up'], 'both', [integer('axis', 1)]),
      conv('both', 'w3', 'logits'),
      nodeOf('Sigmoid', ['logits'], 'output'),
    ],
  });
  return Buffer.concat([...pieces]);
}
