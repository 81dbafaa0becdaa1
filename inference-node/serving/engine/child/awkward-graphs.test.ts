/**
 * Graphs that ONNX Runtime barely loads, or refuses. Graphs without end in memory or time are left
 * to model-tools/probing, whose child is bounded.
 */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import test, { type ExecutionContext } from 'ava';
import { LAYOUTS, type Layout } from '../../models/prepared-model.ts';
import {
  ElementType,
  encodeModel,
  float32Tensor,
  float64Tensor,
  type Graph,
  type GraphNode,
  int64Tensor,
  integer,
  integers,
  nodeOf,
} from '../../onnx/graph.ts';
import { drawCheckPicture } from '../../prepared/answer-check.ts';
import { ModelProto, TensorProto_DataLocation } from '../../test/onnx-messages.ts';
import { compareAlphas } from '../choice/execution-provider.ts';
import { PROBE_SPEC } from '../choice/gpu-probe-graph.ts';
import { type SessionSpec, shortenNativeError } from '../engine-protocol.ts';
import { LoadedModel } from './loaded-model.ts';
import { InferenceSession } from './onnx-runtime.ts';

const SIDE_PX = 64;
const { float16, float32, float64, uint8 } = ElementType;
const CONV = nodeOf('Conv', ['rgb', 'warm', 'bias'], 'logits');
const SIGMOID = nodeOf('Sigmoid', ['logits'], 'alpha');
const PICTURE = [1, 3, SIDE_PX, SIDE_PX];

interface Ends {
  readonly input?: readonly (number | null)[];
  readonly output?: readonly (number | null)[];
  readonly type?: number;
  readonly before?: readonly GraphNode[];
  readonly after?: readonly GraphNode[];
}

/** The matte is how warm a pixel is. */
function encode({ input = PICTURE, output, type = float32, ...ends }: Ends, more = {}): Buffer {
  const { before = [nodeOf('Identity', ['x'], 'rgb')], after = [SIGMOID] } = ends;
  const graph: Graph = {
    ...{ irVersion: 8, opsets: [{ domain: '', version: 17 }] },
    nodes: [...before, CONV, ...after],
    initialisers: new Map([
      ['warm', float32Tensor([4, -2, -2], [1, 3, 1, 1])],
      ['bias', float32Tensor([-2], [1])],
      ['half', float32Tensor([127.5], [])],
      ['most', float32Tensor([255], [])],
      ['first', int64Tensor([0], [1])],
    ]),
    inputs: [{ name: 'x', elementType: type, dims: input }],
    outputs: [
      {
        name: 'alpha',
        elementType: type === float16 ? type : float32,
        dims: output ?? [1, 1, ...input.slice(-2)],
      },
    ],
    ...more,
  };
  return Buffer.concat([...encodeModel(graph)]);
}

const cast = (from: string, to: string, type: number) =>
  nodeOf('Cast', [from], to, [integer('to', type)]);
const MATTE = nodeOf('Sigmoid', ['logits'], 'matte');
const opset = (version: number) => encode({}, { opsets: [{ domain: '', version }] });

/** Give the matte of the plain graph. */
const AWKWARD: Readonly<Record<string, readonly [Buffer, Partial<SessionSpec>?]>> = {
  'opset 9': [opset(9)],
  'opset 13': [opset(13)],
  'opset 21': [opset(21)],
  'any size': [encode({ input: [null, 3, null, null] })],
  float16: [
    encode({
      ...{ type: float16, before: [cast('x', 'rgb', float32)] },
      after: [MATTE, cast('matte', 'alpha', float16)],
    }),
  ],
  bytes: [
    encode({
      type: uint8,
      before: [
        cast('x', 'floats', float32),
        nodeOf('Sub', ['floats', 'half'], 'over'),
        nodeOf('Div', ['over', 'half'], 'rgb'),
      ],
    }),
  ],
  'channels last': [
    encode({
      ...{ input: [1, SIDE_PX, SIDE_PX, 3], output: [1, 1, SIDE_PX, SIDE_PX] },
      before: [nodeOf('Transpose', ['x'], 'rgb', [integers('perm', [0, 3, 1, 2])])],
    }),
  ],
  'no batch': [
    encode({
      ...{ input: PICTURE.slice(1), output: PICTURE.slice(2) },
      before: [nodeOf('Unsqueeze', ['x', 'first'], 'rgb')],
      after: [MATTE, nodeOf('Squeeze', ['matte'], 'alpha')],
    }),
  ],
  logits: [encode({ after: [nodeOf('Identity', ['logits'], 'alpha')] }), { activation: 'sigmoid' }],
  'up to 255': [
    encode({ after: [MATTE, nodeOf('Mul', ['matte', 'most'], 'alpha')] }),
    { activation: 'scale255' },
  ],
};

function withWeightsIn(location: string): Buffer {
  const model = ModelProto.decode(encode({}));
  const warm = model.graph?.initializer.find(({ name }) => name === 'warm');
  if (warm === undefined) throw new Error('the graph has no weights');
  const entries = { location, offset: '0', length: '12' };
  warm.externalData = Object.entries(entries).map(([key, value]) => ({ key, value }));
  warm.dataLocation = TensorProto_DataLocation.EXTERNAL;
  warm.rawData = undefined;
  return Buffer.from(ModelProto.encode(model).finish());
}

const value = (name: string, dims: readonly number[]) => ({ name, elementType: float32, dims });
const circle = [nodeOf('Add', ['logits', 'alpha'], 'sum'), nodeOf('Sigmoid', ['sum'], 'alpha')];
const doubles = new Map([
  ['warm', float64Tensor([4, -2, -2], [1, 3, 1, 1])],
  ['bias', float64Tensor([-2], [1])],
]);
const fourOut = new Map([
  ['warm', float32Tensor(Array(12).fill(1), [4, 3, 1, 1])],
  ['bias', float32Tensor([0, 0, 0, 0], [4])],
]);
const tooLarge = new Map([
  ['warm', { ...float32Tensor([4, -2, -2], [1, 3, 1, 1]), dims: [1, 3, 2 ** 40, 2 ** 20] }],
  ['bias', float32Tensor([-2], [1])],
]);

const REFUSED: Readonly<Record<string, readonly [Buffer, RegExp]>> = {
  'weights at an absolute path': [withWeightsIn('/proc/self/environ'), /Absolute path not allowed/],
  'weights outside of the folder': [withWeightsIn('../weights'), /escapes model directory/],
  'weights that are not there': [withWeightsIn('weights'), /does not exist: .*weights/],
  float64: [
    encode(
      { type: float64, after: [MATTE, cast('matte', 'alpha', float32)] },
      { initialisers: doubles },
    ),
    /implementation for Conv/,
  ],
  'one channel': [encode({ input: [1, 1, SIDE_PX, SIDE_PX] }), /has 1 channels, not 3/],
  'two inputs': [
    encode({}, { inputs: [value('x', PICTURE), value('ratio', [1])] }),
    /inputs are x, ratio, not x/,
  ],
  'a circle': [encode({ after: circle }), /not acyclic/],
  'sizes without end': [encode({}, { initialisers: tooLarge }), /declares a size|Out of bounds/],
  'IR version 99': [encode({}, { irVersion: 99 }), /Unsupported model IR version/],
  'a web page': [Buffer.from('<!doctype html>'), /Protobuf parsing failed|does not have a graph/],
  'a file that is cut off': [encode({}).subarray(0, 90), /Protobuf parsing failed/],
  'four classes': [
    encode({ output: [1, 4, SIDE_PX, SIDE_PX] }, { initialisers: fourOut }),
    /1x4x64x64: no matte/,
  ],
  'no numbers': [encode({ after: [nodeOf('Log', ['logits'], 'alpha')] }), /not numbers/],
  'an unknown operator': [
    encode({ after: [nodeOf('Bespoke', ['logits'], 'alpha')] }),
    /No Op registered for Bespoke/,
  ],
};

async function specOf(file: string, more: Partial<SessionSpec> = {}): Promise<SessionSpec> {
  const options = { intraOpNumThreads: 1, logSeverityLevel: 4 } as const;
  const session = await InferenceSession.create(file, options);
  const [input] = session.inputMetadata;
  const output = session.outputMetadata.at(-1);
  if (!input?.isTensor || !output) throw new Error('no tensor goes in, or nothing comes out');
  const { shape, type } = input;
  const isLayout = (layout: Layout) =>
    layout.length === shape.length && shape[layout.indexOf('c')] === 3;
  return {
    ...{ ...PROBE_SPEC, path: file, provider: 'cpu', allowCpuNodes: true },
    ...{ inputName: input.name, outputName: output.name },
    ...{ inputWidth: SIDE_PX, inputHeight: SIDE_PX },
    normalisation: { mean: [127.5, 127.5, 127.5], std: [127.5, 127.5, 127.5] },
    activation: 'none',
    form: {
      inputType: type === 'float16' || type === 'uint8' ? type : 'float32',
      ...{ layout: LAYOUTS.find(isLayout) ?? 'nchw', fit: 'stretch', inverted: false },
    },
    ...more,
  };
}

async function matteOf(t: ExecutionContext, bytes: Buffer, more?: Partial<SessionSpec>) {
  const file = path.join(await temporaryFolder(t), 'graph.onnx');
  await writeFile(file, bytes);
  const { model } = await LoadedModel.load(await specOf(file, more));
  const { alpha } = await model.run(drawCheckPicture(SIDE_PX, SIDE_PX));
  return Uint8Array.from(alpha);
}

for (const [name, [bytes, more]] of Object.entries(AWKWARD)) {
  test(`a graph runs as it is: ${name}`, async t => {
    const plain = await matteOf(t, encode({}));
    t.true(new Set(plain).size > 10, 'the matte shows the picture');
    t.true(compareAlphas(plain, await matteOf(t, bytes, more)).mean < 1);
  });
}

for (const [name, [bytes, message]] of Object.entries(REFUSED)) {
  test(`a graph is refused by its cause: ${name}`, async t => {
    const failed = await t.throwsAsync(matteOf(t, bytes));
    t.regex(shortenNativeError(failed?.message ?? ''), message);
  });
}
