/**
 * ONNX graphs of a few hundred bytes, built in code, so that tests run the real ONNX Runtime in
 * milliseconds. The input is bytes over 255, the output one channel of the same size.
 *
 *   mean          alpha is the mean of a pixel's red, green and blue
 *   red           alpha is a pixel's red: shows a wrong order of channels
 *   sigmoid       8 * (mean - 0.5), and the sigmoid still to be applied
 *   overshoot     3 * mean - 1: below 0 and above 1, to be clamped
 *   paced         as mean, but takes longer the brighter the brightest byte over 128 is: 129 is
 *                 quick, 255 takes `tripsMax` products of matrices; up to 128 nothing (warm-ups
 *                 are 128)
 *   not-a-number  as mean where the picture is bright, not a number where it is dark
 *   wrong-shape   two channels
 *   noise         another matte at every run
 *   refined       takes a trimap as fourth channel: half a pixel's red, half the trimap
 */
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { GraphForm, PreparedModel } from '@matting/serving/models/prepared-model.ts';
import {
  AttributeProto_AttributeType as AttributeType,
  type DeepPartial,
  ModelProto,
  type NodeProto,
  TensorProto,
  TensorProto_DataType,
} from '@matting/serving/test/onnx-messages.ts';

const { FLOAT, INT64, BOOL } = TensorProto_DataType;
type Node = DeepPartial<NodeProto>;

export type TinyModelKind =
  | 'mean'
  | 'red'
  | 'sigmoid'
  | 'overshoot'
  | 'paced'
  | 'not-a-number'
  | 'wrong-shape'
  | 'noise'
  | 'refined';

export interface TinyModelOptions {
  readonly kind?: TinyModelKind;
  /** Pixels; default 32. */
  readonly width?: number;
  readonly height?: number;
  /** A graph of form short-side takes any size. */
  readonly form?: GraphForm;
  /** Products of 512x512 matrices at brightness 255 (a few ms each on a thread); default 400. */
  readonly tripsMax?: number;
}

function floats(name: string, dims: number[], values: number[]) {
  const rawData = new Uint8Array(Float32Array.from(values).buffer);
  return TensorProto.fromPartial({ name, dims: dims.map(BigInt), rawData, dataType: FLOAT });
}

function integers(name: string, dims: number[], values: number[]) {
  const rawData = new Uint8Array(BigInt64Array.from(values.map(BigInt)).buffer);
  return TensorProto.fromPartial({ name, dims: dims.map(BigInt), rawData, dataType: INT64 });
}

function value(name: string, elemType: number, dims: readonly (number | undefined)[]) {
  const shape = {
    dim: dims.map(dimValue => (dimValue === undefined ? {} : { dimValue: BigInt(dimValue) })),
  };
  return { name, type: { tensorType: { elemType, shape } } };
}

function node(
  opType: string,
  input: string[],
  output: string[],
  attribute: Node['attribute'] = [],
): Node {
  return { opType, input, output, attribute };
}

/** 1x1 convolution to `rows.length` channels. */
function mix(rows: number[][]) {
  return floats('mix', [rows.length, rows[0]?.length ?? 0, 1, 1], rows.flat());
}

const THIRD = [1 / 3, 1 / 3, 1 / 3];
const PRODUCT_SIDE = 512;

function pacedNodes(): Node[] {
  const matrix = [PRODUCT_SIDE, PRODUCT_SIDE];
  const body = {
    name: 'body',
    input: [value('trip', INT64, []), value('go_on', BOOL, []), value('product', FLOAT, matrix)],
    output: [value('goes_on', BOOL, []), value('next', FLOAT, matrix)],
    node: [
      node('Identity', ['go_on'], ['goes_on']),
      node('MatMul', ['product', 'matrix'], ['next']),
    ],
  };
  const filled = {
    name: 'value',
    type: AttributeType.TENSOR,
    t: floats('fill', [1], [1 / PRODUCT_SIDE]),
  };
  const keepdims = { name: 'keepdims', type: AttributeType.INT, i: 0n };
  const g = { name: 'body', type: AttributeType.GRAPH, g: body };
  return [
    node('ConstantOfShape', ['matrix_shape'], ['matrix'], [filled]),
    node('ReduceMax', ['input'], ['brightest'], [keepdims]),
    node('Sub', ['brightest', 'half'], ['over']),
    node('Relu', ['over'], ['over_half']),
    node('Mul', ['over_half', 'trips_over_half'], ['trips_float']),
    node(
      'Cast',
      ['trips_float'],
      ['trips'],
      [{ name: 'to', type: AttributeType.INT, i: BigInt(INT64) }],
    ),
    node('Loop', ['trips', '', 'matrix'], ['products'], [g]),
    // The product's mean is 1 / PRODUCT_SIDE: adding and subtracting it keeps the loop from being
    // optimised away.
    node('ReduceMean', ['products'], ['product_mean'], [keepdims]),
    node('Conv', ['input', 'mix'], ['mean']),
    node('Add', ['mean', 'product_mean'], ['more']),
    node('Sub', ['more', 'fill_value'], ['output']),
  ];
}

function pacedInitializers(tripsMax: number) {
  return [
    mix([THIRD]),
    integers('matrix_shape', [2], [PRODUCT_SIDE, PRODUCT_SIDE]),
    floats('half', [], [128 / 255]),
    floats('trips_over_half', [], [(tripsMax * 255) / 127]),
    floats('fill_value', [], [1 / PRODUCT_SIDE]),
  ];
}

function parts(kind: TinyModelKind, tripsMax: number) {
  const conv = (output: string) => node('Conv', ['input', 'mix'], [output]);
  const scaled = (factor: number, offset: number) => ({
    nodes: [
      conv('mean'),
      node('Mul', ['mean', 'factor'], ['scaled']),
      node('Add', ['scaled', 'offset'], ['output']),
    ],
    initializers: [mix([THIRD]), floats('factor', [], [factor]), floats('offset', [], [offset])],
  });
  switch (kind) {
    case 'mean':
      return { nodes: [conv('output')], initializers: [mix([THIRD])] };
    case 'red':
      return { nodes: [conv('output')], initializers: [mix([[1, 0, 0]])] };
    case 'refined':
      return { nodes: [conv('output')], initializers: [mix([[0.5, 0, 0, 0.5]])] };
    case 'wrong-shape':
      return { nodes: [conv('output')], initializers: [mix([THIRD, THIRD])] };
    case 'noise':
      return {
        nodes: [conv('mean'), node('RandomUniformLike', ['mean'], ['output'])],
        initializers: [mix([THIRD])],
      };
    case 'sigmoid':
      return scaled(8, -4);
    case 'overshoot':
      return scaled(3, -1);
    case 'paced':
      return { nodes: pacedNodes(), initializers: pacedInitializers(tripsMax) };
    case 'not-a-number':
      // log(mean - 0.1) is NaN in the dark; times 0 it changes nothing elsewhere.
      return {
        nodes: [
          conv('mean'),
          node('Sub', ['mean', 'dark'], ['light']),
          node('Log', ['light'], ['log']),
          node('Mul', ['log', 'zero'], ['nothing']),
          node('Add', ['mean', 'nothing'], ['output']),
        ],
        initializers: [mix([THIRD]), floats('dark', [], [0.1]), floats('zero', [], [0])],
      };
  }
}

export function encodeTinyModel(options: TinyModelOptions = {}): Uint8Array {
  const { kind = 'mean', width = 32, height = 32, tripsMax = 400 } = options;
  const { nodes, initializers } = parts(kind, tripsMax);
  const channelsIn = kind === 'refined' ? 4 : 3;
  const channelsOut = kind === 'wrong-shape' ? 2 : 1;
  const sides = options.form?.sides === undefined ? [height, width] : [undefined, undefined];
  const graph = {
    name: `tiny-${kind}`,
    input: [value('input', FLOAT, [1, channelsIn, ...sides])],
    output: [value('output', FLOAT, [1, channelsOut, ...sides])],
    initializer: initializers,
    node: nodes,
  };
  const opsetImport = [{ domain: '', version: 13n }];
  return ModelProto.encode(ModelProto.fromPartial({ irVersion: 7n, opsetImport, graph })).finish();
}

const OURS = {
  commercialUse: 'yes',
  reason: 'The tests make it.',
  source: 'https://example.com/tiny',
} as const;
export const TINY_LICENCE: PreparedModel['licence'] = {
  spdx: 'MIT',
  origin: 'https://example.com/tiny',
  weights: OURS,
  trainingData: OURS,
};

export async function writeTinyModel(
  folder: string,
  options: TinyModelOptions = {},
): Promise<PreparedModel> {
  const { kind = 'mean', width = 32, height = 32 } = options;
  const file = path.join(folder, `tiny-${kind}-${width}x${height}.onnx`);
  const bytes = encodeTinyModel(options);
  await writeFile(file, bytes);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  return {
    model: `tiny-${kind}`,
    version: '1.0.0',
    path: file,
    sha256,
    weights: [sha256],
    precision: 'fp32',
    provider: 'cpu',
    inputWidth: width,
    inputHeight: height,
    inputName: 'input',
    outputName: 'output',
    normalisation: { mean: [0, 0, 0], std: [255, 255, 255] },
    colourOrder: 'rgb',
    activation: kind === 'sigmoid' ? 'sigmoid' : 'none',
    ...(options.form && { form: options.form }),
    licence: TINY_LICENCE,
  };
}

export function createUniformRgb(width: number, height: number, brightness: number): Uint8Array {
  return new Uint8Array(3 * width * height).fill(brightness);
}
