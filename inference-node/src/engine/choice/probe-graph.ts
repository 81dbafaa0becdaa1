/**
 * A graph of a few kilobytes with the operators that the matting models are made of (convolutions,
 * a pooled branch, a resize, a concatenation, a sigmoid): what a provider makes of it shows whether
 * it is there, takes the work, and computes it right.
 */
import onnxProto from 'onnx-proto';
import type { SessionSpec } from '../engine-protocol.ts';

const { onnx } = onnxProto;
type Attribute = ReturnType<typeof onnx.AttributeProto.create>;

export const PROBE_SIZE_PX = 64;
const CHANNELS = 8;
const KERNEL = 3;
/** As the models' own, which came before ONNX 1.12: every provider knows it. */
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
  // A GPU that leaves a convolution to the CPU is no GPU.
  allowCpuNodes: false,
};

/** A fixed sequence in [-0.5, 0.5): the lower bits of a linear congruential generator are poor. */
function createSequence(): () => number {
  let state = 1;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
}

function ints(name: string, values: number[]): Attribute {
  return onnx.AttributeProto.create({
    name,
    type: onnx.AttributeProto.AttributeType.INTS,
    ints: values,
  });
}

function text(name: string, value: string): Attribute {
  const type = onnx.AttributeProto.AttributeType.STRING;
  return onnx.AttributeProto.create({ name, type, s: Buffer.from(value) });
}

function integer(name: string, value: number): Attribute {
  return onnx.AttributeProto.create({
    name,
    type: onnx.AttributeProto.AttributeType.INT,
    i: value,
  });
}

function floats(name: string, dims: number[], values: Float32Array) {
  const rawData = new Uint8Array(values.buffer);
  return onnx.TensorProto.create({
    name,
    dims,
    rawData,
    dataType: onnx.TensorProto.DataType.FLOAT,
  });
}

function image(name: string, channels: number) {
  const dim = [1, channels, PROBE_SIZE_PX, PROBE_SIZE_PX].map(dimValue => ({ dimValue }));
  return onnx.ValueInfoProto.create({
    name,
    type: { tensorType: { elemType: onnx.TensorProto.DataType.FLOAT, shape: { dim } } },
  });
}

export function encodeProbeGraph(): Uint8Array {
  const next = createSequence();
  const weights = (name: string, outputs: number, inputs: number) => {
    const values = Float32Array.from({ length: outputs * inputs * KERNEL * KERNEL }, next);
    return floats(name, [outputs, inputs, KERNEL, KERNEL], values);
  };
  const conv = (input: string, weight: string, output: string) => ({
    opType: 'Conv',
    input: [input, weight],
    output: [output],
    attribute: [ints('kernel_shape', [KERNEL, KERNEL]), ints('pads', [1, 1, 1, 1])],
  });
  const simple = (
    opType: string,
    input: string[],
    output: string,
    attribute: Attribute[] = [],
  ) => ({
    opType,
    input,
    output: [output],
    attribute,
  });
  const graph = {
    name: 'probe',
    input: [image('input', 3)],
    output: [image('output', 1)],
    initializer: [
      weights('w1', CHANNELS, 3),
      weights('w2', CHANNELS, CHANNELS),
      weights('w3', 1, 2 * CHANNELS),
      floats('scales', [4], Float32Array.of(1, 1, 2, 2)),
    ],
    node: [
      conv('input', 'w1', 'c1'),
      simple('Relu', ['c1'], 'full'),
      simple('MaxPool', ['full'], 'half', [ints('kernel_shape', [2, 2]), ints('strides', [2, 2])]),
      conv('half', 'w2', 'c2'),
      simple('Relu', ['c2'], 'deep'),
      simple('Resize', ['deep', '', 'scales'], 'up', [
        text('mode', 'linear'),
        text('coordinate_transformation_mode', 'half_pixel'),
      ]),
      simple('Concat', ['full', 'up'], 'both', [integer('axis', 1)]),
      conv('both', 'w3', 'logits'),
      simple('Sigmoid', ['logits'], 'output'),
    ],
  };
  const opsetImport = [{ domain: '', version: OPSET }];
  return onnx.ModelProto.encode({ irVersion: IR_VERSION, opsetImport, graph }).finish();
}
