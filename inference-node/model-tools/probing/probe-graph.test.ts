/** Graphs of a few nodes that find warm colours, with inputs and outputs of every kind. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ModelErrorKind } from '@matting/serving/models/model-error.ts';
import {
  ElementType,
  encodeModel,
  float32Tensor,
  type Graph,
  type GraphNode,
  int64Tensor,
  integer,
  integers,
  nodeOf,
  type Tensor,
} from '@matting/serving/onnx/graph.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { ModelProto, TensorProto_DataLocation } from '@matting/serving/test/onnx-messages.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import { encodeTrap } from '@matting/test-support/trap-model.ts';
import test, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { stockDeformable } from '../test/stock-deformable.ts';
import { openMendedCopy } from './mended-copy.ts';
import { probeGraph } from './probe-graph.ts';
import {
  type Facts,
  type GraphWords,
  OpenFacts,
  type Probe,
  type ProbeLimits,
} from './probe-types.ts';

type Dims = readonly (number | null)[];

interface WarmGraph {
  readonly input?: Dims;
  readonly inputType?: number;
  readonly output?: Dims;
  readonly outputType?: number;
  /** From `x` to `rgb`, float32 [n, 3, h, w]. */
  readonly before?: readonly GraphNode[];
  /** From `logits`, float32 [n, 1, h, w], to `alpha`. */
  readonly after?: readonly GraphNode[];
  readonly constants?: Readonly<Record<string, Tensor>>;
}

const SIGMOID = nodeOf('Sigmoid', ['logits'], 'alpha');
const FROM_FLOATS = nodeOf('Identity', ['x'], 'rgb');

const tensorOf = (name: string) => ({
  name,
  elementType: ElementType.float32,
  dims: [1, name === 'rgb' ? 3 : 1, 48, 48],
});

const encodeWarm = (graph: WarmGraph) => Buffer.concat([...encodeModel(encodedGraph(graph))]);

function encodedGraph({
  input = [1, 3, 48, 48],
  inputType = ElementType.float32,
  output = [1, 1, 48, 48],
  outputType = ElementType.float32,
  before = [FROM_FLOATS],
  after = [SIGMOID],
  constants = {},
}: WarmGraph): Graph {
  const weights = {
    warm: float32Tensor([4, -2, -2], [1, 3, 1, 1]),
    bias: float32Tensor([-2], [1]),
    ...constants,
  };
  return {
    ...{ irVersion: 8, opsets: [{ domain: '', version: 17 }] },
    nodes: [...before, nodeOf('Conv', ['rgb', 'warm', 'bias'], 'logits'), ...after],
    initialisers: new Map(Object.entries(weights)),
    inputs: [{ name: 'x', elementType: inputType, dims: input }],
    outputs: [{ name: 'alpha', elementType: outputType, dims: output }],
  };
}

const IMAGENET = { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375] } as const;
const STATED: Facts = { normalisation: IMAGENET, activation: 'none' };

async function probe(
  t: ExecutionContext,
  graph: WarmGraph | Uint8Array,
  facts = STATED,
  limits: ProbeLimits = { asItIs: true },
): Promise<Probe> {
  const file = join(await temporaryFolder(t), 'graph.onnx');
  await writeFile(file, graph instanceof Uint8Array ? graph : encodeWarm(graph));
  return await probeGraph(file, facts, { childEnv: CACHE_ENV, ...limits });
}

async function alphasOf({ cutout }: Probe): Promise<readonly [body: number, wall: number]> {
  const { data } = await sharp(cutout).raw().toBuffer({ resolveWithObject: true });
  const alphaAt = (x: number, y: number) => data[4 * (y * 640 + x) + 3] ?? -1;
  return [alphaAt(320, 500), alphaAt(50, 50)];
}

const scalar = (value: number) => float32Tensor([value], []);
const AS_FLOATS = [nodeOf('Cast', ['x'], 'rgb', [integer('to', ElementType.float32)])];
const FROM_NHWC = [nodeOf('Transpose', ['x'], 'rgb', [integers('perm', [0, 3, 1, 2])])];
const MATTE = nodeOf('Sigmoid', ['logits'], 'matte');

test('a graph that is mended when it is prepared is measured as it will run', async t => {
  // The stock form takes over 1.6 GB.
  const stock = stockDeformable({ outputs: 1, channels: 64, height: 256, width: 256 });
  const bytes = Buffer.concat([...encodeModel(stock)]);
  const limits = { memoryMaxBytes: 1300 * 1024 ** 2 };
  const { mended, peakBytes } = await probe(t, bytes, STATED, limits);
  t.true(mended);
  t.true(peakBytes < 1e9, `${peakBytes}`);
  const asItIs = probe(t, bytes, STATED, { ...limits, asItIs: true });
  await rejectsWith(t, asItIs, isModelError('prepare', /takes more memory than the 1\.3 GiB/));
});

test('a graph cuts the person out by the facts that are stated', async t => {
  const inverse = nodeOf('Neg', ['logits'], 'n');
  for (const [graph, facts, ends] of [
    [
      {
        ...{ input: [1, 32, 48, 3], output: [1, 1, 32, 48], before: FROM_NHWC },
        after: [nodeOf('Identity', ['logits'], 'alpha')],
      },
      { activation: 'sigmoid', fit: 'letterbox' },
      { layout: 'nhwc', inputWidth: 48, inputHeight: 32 },
    ],
    [{ after: [inverse, nodeOf('Sigmoid', ['n'], 'alpha')] }, { inverted: true }, {}],
  ] as const satisfies readonly (readonly [WarmGraph, Facts, object])[]) {
    const found = await probe(t, graph, { ...STATED, ...facts });
    t.like(found.graph, { dynamic: false, inputName: 'x', outputName: 'alpha', ...ends });
    const [body, wall] = await alphasOf(found);
    t.true(body > 200 && wall < 50, `${JSON.stringify(facts)} ${body} ${wall}`);
  }
});

test('facts that nobody states are open, and the graph decides the others', async t => {
  const wordsOf = async (graph: WarmGraph, facts: Facts) => {
    const error = await t.throwsAsync(probe(t, graph, facts), { instanceOf: OpenFacts });
    return { open: error?.open, ...(error?.graph as GraphWords) };
  };
  t.deepEqual(await wordsOf({}, { fit: 'letterbox' }), {
    open: ['normalisation', 'activation'],
    inputs: ['x: float32 [1, 3, 48, 48]'],
    outputs: ['alpha: float32 [1, 1, 48, 48]'],
    facts: {
      ...{ fit: 'letterbox', size: { width: 48, height: 48 }, output: 'alpha', trimap: false },
    },
  });
  const dynamic = { input: [1, 3, null, 48], output: [1, 1, null, 48] };
  t.deepEqual((await wordsOf(dynamic, { ...STATED, fit: 'short-side' })).open, [
    'size',
    'multipleOf',
  ]);
  const bytes = { inputType: ElementType.uint8, before: AS_FLOATS };
  t.deepEqual((await wordsOf(bytes, {})).open, ['activation']);
  // Only rows of the catalogue take the first of several outputs.
  const several = { ...encodedGraph({}), outputs: ['alpha', 'rgb', 'logits'].map(tensorOf) };
  const file = Buffer.concat([...encodeModel(several)]);
  const open = await t.throwsAsync(probe(t, file), { instanceOf: OpenFacts });
  t.deepEqual(open?.open, ['output']);
  const { graph } = await probe(t, file, { ...STATED, firstOutput: true });
  t.is(graph.outputName, 'alpha');
  const logits = await probe(t, file, { ...STATED, output: 'logits', activation: 'sigmoid' });
  t.is(logits.graph.outputName, 'logits');
});

test('stated facts that the graph contradicts are refused', async t => {
  const bytes = { inputType: ElementType.uint8, before: AS_FLOATS };
  const open = { input: [1, 3, null, null], output: [1, 1, null, null] };
  const size = { width: 100, height: 100 };
  for (const [graph, facts, expected] of [
    [bytes, {}, /uint8 .*: the graph normalises by itself/],
    [{}, { trimap: true }, /the graph takes no trimap/],
    [{}, { size }, /48\]: the graph does not take pictures of 100x100/],
    [{}, { output: 'beta' }, /no output beta: its outputs are alpha/],
    [open, { size, multipleOf: 8 }, /100x100: the sides must be multiples of 8/],
    [{}, { fit: 'short-side', multipleOf: 8 }, /takes a graph of any size, and one side/],
  ] as const satisfies readonly (readonly [WarmGraph, Facts, RegExp])[]) {
    await rejectsWith(
      t,
      probe(t, graph, { ...STATED, ...facts }),
      isModelError('settings', expected),
    );
  }
});

/** Halved three times, doubled back, and added to itself: only multiples of 8 keep their size. */
const IN_EIGHTHS: WarmGraph = {
  ...{ input: [1, 3, null, null], output: [1, 1, null, null] },
  constants: { scales: float32Tensor([1, 1, 8, 8], [4]), half: scalar(0.5) },
  before: [
    nodeOf('AveragePool', ['x'], 'p', [
      integers('kernel_shape', [8, 8]),
      integers('strides', [8, 8]),
    ]),
    nodeOf('Resize', ['p', '', 'scales'], 'u'),
    { ...nodeOf('Add', ['x', 'u'], 'sum'), name: 'skip\u001b[2J' },
    nodeOf('Mul', ['sum', 'half'], 'rgb'),
  ],
};

test('an open size is measured: what it costs, and whether it runs', async t => {
  const open = { input: [1, 3, null, null], output: [1, 1, null, null] };
  const size = { width: 160, height: 96 };
  const found = await probe(t, open, { ...STATED, size });
  t.like(found.graph, { dynamic: false, inputWidth: 160, inputHeight: 96 });
  t.true(found.loadedBytes > 30e6 && found.peakBytes >= found.loadedBytes && found.seconds > 0);
  t.true((await probe(t, open, { ...STATED, size, multipleOf: 32 })).graph.dynamic);
  const refused = probe(t, IN_EIGHTHS, { ...STATED, size: { width: 100, height: 100 } });
  const expected = /^it does not run at 100x100: Add "skip\\u001b\[2J": /;
  await rejectsWith(t, refused, isModelError('prepare', expected));
});

test('a graph of any size is tried with narrow pictures too, and reports the shortest side that runs', async t => {
  const size = { width: 256, height: 256 };
  const facts: Facts = { ...STATED, fit: 'short-side', size, multipleOf: 32 };
  const reflects = encodeTrap({ kind: 'reflects' });
  t.is((await probe(t, reflects, facts)).shortestSide, 64);
  t.is((await probe(t, IN_EIGHTHS, { ...facts, multipleOf: 8 })).shortestSide, 8);
  // Other fits have one size.
  t.is((await probe(t, reflects, { ...facts, fit: 'stretch' })).shortestSide, undefined);
});

/** The mask is flat before its Reshape, so the mended convolution gets three sides, not four. */
function maskOfThreeSides(): Graph {
  const stock = stockDeformable({ outputs: 1 });
  const flat = nodeOf('Reshape', ['mask', 'flat.shape'], 'mask.flat');
  const nodes = stock.nodes.flatMap(node => {
    const readsMask = node.outputs[0] === 'mask.taps';
    if (!readsMask) return [node];
    const [, shape = ''] = node.inputs;
    return [flat, { ...node, inputs: ['mask.flat', shape] }];
  });
  const shape = int64Tensor([1, 9, 9 * 7], [3]);
  const initialisers = new Map([...stock.initialisers, ['flat.shape', shape] as const]);
  return { ...stock, nodes, initialisers };
}

test('a graph that runs is measured as it is where its mended copy does not run', async t => {
  const graph = maskOfThreeSides();
  const file = join(await temporaryFolder(t), 'flat.onnx');
  const bytes = Buffer.concat([...encodeModel(graph)]);
  await writeFile(file, bytes);
  // There is something to mend, and the mended graph does not run.
  await using copy = await openMendedCopy(file);
  t.true(copy.isMended);
  const mended = probeGraph(copy.path, STATED, { asItIs: true });
  await rejectsWith(t, mended, isModelError('prepare', /DeformConv/));
  const found = await probeGraph(file, STATED);
  t.is(found.mended, undefined);
  t.like(found.graph, { inputWidth: 7, inputHeight: 9 });
});

/** Half of the matte is the trimap's. Without one the index is out of bounds. */
const WITH_TRIMAP = {
  constants: {
    ...{ from: int64Tensor([0], [1]), to: int64Tensor([3], [1]), axis: int64Tensor([1], [1]) },
    ...{ fourth: int64Tensor([3], [1]), half: scalar(0.5) },
  },
  before: [
    nodeOf('Slice', ['x', 'from', 'to', 'axis'], 'rgb'),
    nodeOf('Gather', ['x', 'fourth'], 'trimap', [integer('axis', 1)]),
  ],
  after: [
    MATTE,
    nodeOf('Add', ['matte', 'trimap'], 'both'),
    nodeOf('Mul', ['both', 'half'], 'alpha'),
  ],
};

test('a graph of four channels is shown trimaps, and measured as what refines a matte', async t => {
  for (const [channels, facts] of [
    [4, {}],
    [null, { trimap: true }],
  ] as const) {
    const found = await probe(
      t,
      { ...WITH_TRIMAP, input: [1, channels, 48, 48] },
      { ...STATED, ...facts },
    );
    t.true(found.graph.trimap);
    // Far from its edge the matte is the drawn one.
    t.deepEqual(await alphasOf(found), [255, 0]);
  }
  t.is((await probe(t, { input: [1, null, 48, 48] })).graph.trimap, undefined);
});

test('an answer that is no matte is refused', async t => {
  const zero = { constants: { zero: scalar(0) } };
  const constant = [nodeOf('Mul', ['logits', 'zero'], 'n'), nodeOf('Sigmoid', ['n'], 'alpha')];
  const places = {
    ...{ output: [4, 1, null], outputType: ElementType.int64 },
    constants: { axis: int64Tensor([1], [1]) },
    after: [
      nodeOf('NonZero', ['logits'], 'found'),
      nodeOf('Unsqueeze', ['found', 'axis'], 'alpha'),
    ],
  };
  const everywhere = { sizes: int64Tensor([1, 1, 8192, 8192], [4]) };
  const huge = [
    nodeOf('ReduceMax', ['logits'], 'most'),
    nodeOf('Expand', ['most', 'sizes'], 'alpha'),
  ];
  const open = [null, null, null, null];
  for (const [graph, expected] of [
    [{ after: constant, ...zero }, /^its output is 0\.500 everywhere; check the mean/],
    [{ after: [nodeOf('Log', ['logits'], 'alpha')] }, /values that are not numbers/],
    [places, /output is int64 4x1x2304: no matte/],
    [{ after: huge, constants: everywhere, output: open }, /over 33554432 values/],
  ] as const satisfies readonly (readonly [WarmGraph, RegExp])[]) {
    await rejectsWith(t, probe(t, graph), isModelError('prepare', expected));
  }
});

test('a graph that fails is refused with its cause, within bounds of memory and time', async t => {
  const GIB = 1024 ** 3;
  const large = { sizes: int64Tensor([1, 1, 2 ** 15, 2 ** 15], [4]) };
  const bomb: WarmGraph = {
    constants: large,
    after: [
      nodeOf('ReduceMax', ['logits'], 'most'),
      nodeOf('Expand', ['most', 'sizes'], 'huge'),
      nodeOf('ReduceMax', ['huge'], 'one'),
      nodeOf('Add', ['logits', 'one'], 'sum'),
      nodeOf('Sigmoid', ['sum'], 'alpha'),
    ],
  };
  const outside = (name: string) => encodeWithData(name);
  for (const [graph, kind, expected, limits = {}] of [
    [
      bomb,
      'prepare',
      /running the graph takes more memory than the 1\.0 GiB \(--memory-max\)/,
      { memoryMaxBytes: GIB },
    ],
    [{}, 'prepare', /did not end within 0 s: it was loading the graph/, { timeoutMs: 20 }],
    [{ after: [nodeOf('Bespoke', ['logits'], 'alpha')] }, 'prepare', /does not load: .*Bespoke/],
    [Buffer.from('<!doctype html>'), 'prepare', /not an ONNX file, but a web page/],
    [encodeWarm({}).subarray(0, 90), 'prepare', /does not load: it is no ONNX file, or is cut off/],
    [
      outside('../weights'),
      'prepare',
      /weights are in "\.\.\/weights", which is no file of its own/,
    ],
    [outside('/proc/self/environ'), 'prepare', /which is no file of its own folder/],
    [outside('graph.onnx'), 'prepare', /which is the graph itself/],
    [outside('weights'), 'prepare', /which is not there: fetch it too/],
  ] as const satisfies readonly Refused[]) {
    await rejectsWith(t, probe(t, graph, STATED, limits), isModelError(kind, expected));
  }
  const gone = probeGraph(join(await temporaryFolder(t), 'gone.onnx'), STATED);
  await rejectsWith(t, gone, isModelError('disk', /gone\.onnx/));
  const stopped = AbortSignal.timeout(100);
  await t.throwsAsync(probe(t, {}, STATED, { signal: stopped }), { name: 'TimeoutError' });
});

type Refused = readonly [WarmGraph | Uint8Array, ModelErrorKind, RegExp, ProbeLimits?];

function encodeWithData(file: string): Buffer {
  const model = ModelProto.decode(encodeWarm({}));
  const warm = model.graph?.initializer.find(({ name }) => name === 'warm');
  assert.ok(warm?.rawData);
  const entries = { location: file, offset: '0', length: String(warm.rawData.length) };
  warm.externalData = Object.entries(entries).map(([key, value]) => ({ key, value }));
  warm.dataLocation = TensorProto_DataLocation.EXTERNAL;
  warm.rawData = undefined;
  return Buffer.from(ModelProto.encode(model).finish());
}
