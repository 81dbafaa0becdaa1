/** Graphs of a few nodes that find what is warm in a picture, at ends of every kind. */
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
import { checkPictures } from './check-pictures.ts';
import { openMendedCopy } from './mended-copy.ts';
import { NORMALISATIONS, type Probe, type ProbeLimits, type ProbeWishes } from './probe.ts';
import { probeGraph } from './probe-graph.ts';

type Dims = readonly (number | null)[];

interface WarmGraph {
  readonly input?: Dims;
  readonly inputType?: number;
  readonly output?: Dims;
  readonly outputType?: number;
  /** Nodes from `x` of the input's type to `rgb`, float32 [n, 3, h, w]. */
  readonly before?: readonly GraphNode[];
  /** Nodes from `logits`, float32 [n, 1, h, w], to `alpha`. */
  readonly after?: readonly GraphNode[];
  readonly constants?: Readonly<Record<string, Tensor>>;
}

const SIGMOID = nodeOf('Sigmoid', ['logits'], 'alpha');
const FROM_FLOATS = nodeOf('Identity', ['x'], 'rgb');

function encodeWarm({
  input = [1, 3, 48, 48],
  inputType = ElementType.float32,
  output = [1, 1, 48, 48],
  outputType = ElementType.float32,
  before = [FROM_FLOATS],
  after = [SIGMOID],
  constants = {},
}: WarmGraph): Buffer {
  const weights = {
    warm: float32Tensor([4, -2, -2], [1, 3, 1, 1]),
    bias: float32Tensor([-2], [1]),
    ...constants,
  };
  const graph = {
    ...{ irVersion: 8, opsets: [{ domain: '', version: 17 }] },
    nodes: [...before, nodeOf('Conv', ['rgb', 'warm', 'bias'], 'logits'), ...after],
    initialisers: new Map(Object.entries(weights)),
    inputs: [{ name: 'x', elementType: inputType, dims: input }],
    outputs: [{ name: 'alpha', elementType: outputType, dims: output }],
  };
  return Buffer.concat([...encodeModel(graph)]);
}

const size = { width: 16, height: 16 };
const SMALL = { ...size, rgba: new Uint32Array(16 * 16).fill(0xff4080ff), translucent: false };
const IMAGENET = { normalisation: NORMALISATIONS[0] };
/** A cut-out by each normalisation of a picture as large as the drawn ones takes two seconds. */
const ONE: ProbeWishes = { ...IMAGENET, picture: SMALL };

async function probe(
  t: ExecutionContext,
  graph: WarmGraph | Uint8Array,
  wishes = ONE,
  limits: ProbeLimits = { asItIs: true },
): Promise<Probe> {
  const file = join(await temporaryFolder(t), 'graph.onnx');
  await writeFile(file, graph instanceof Uint8Array ? graph : encodeWarm(graph));
  return await probeGraph(file, wishes, { childEnv: CACHE_ENV, ...limits });
}

/** A constant beside the graph's own, by its name. */
const scalar = (value: number) => float32Tensor([value], []);
const AS_FLOATS = [nodeOf('Cast', ['x'], 'rgb', [integer('to', ElementType.float32)])];
const FROM_NHWC = [nodeOf('Transpose', ['x'], 'rgb', [integers('perm', [0, 3, 1, 2])])];
const MATTE = nodeOf('Sigmoid', ['logits'], 'matte');
const times = (factor: string) => [MATTE, nodeOf('Mul', ['matte', factor], 'alpha')];

test('a graph that is mended when it is prepared is measured as it will run', async t => {
  // The stock form takes 1.6 GB and more.
  const stock = stockDeformable({ outputs: 1, channels: 64, height: 256, width: 256 });
  const bytes = Buffer.concat([...encodeModel(stock)]);
  const limits = { memoryMaxBytes: 1300 * 1024 ** 2 };
  const { mended, peakBytes } = await probe(t, bytes, ONE, limits);
  t.true(mended);
  t.true(peakBytes < 1e9, `${peakBytes}`);
  const asItIs = probe(t, bytes, ONE, { ...limits, asItIs: true });
  await rejectsWith(t, asItIs, isModelError('prepare', /takes more memory than the 1\.3 GiB/));
});

test('ends of every kind, and what turns an output into a matte, are found out', async t => {
  const axis = int64Tensor([0], [1]);
  for (const [graph, facts, inputs] of [
    [
      { inputType: ElementType.float16, before: AS_FLOATS },
      { activation: 'none' },
      { inputType: 'float16' },
    ],
    [
      {
        ...{ input: [1, 32, 48, 3], output: [1, 1, 32, 48], before: FROM_NHWC },
        after: [nodeOf('Identity', ['logits'], 'alpha')],
      },
      { activation: 'sigmoid' },
      { layout: 'nhwc', inputWidth: 48, inputHeight: 32 },
    ],
    [
      {
        ...{ input: [3, 48, 48], output: [48, 48], constants: { axis } },
        before: [nodeOf('Unsqueeze', ['x', 'axis'], 'rgb')],
        after: [nodeOf('Tanh', ['logits'], 'map'), nodeOf('Squeeze', ['map'], 'alpha')],
      },
      { activation: 'signed' },
      { layout: 'chw' },
    ],
    [{ after: times('by'), constants: { by: scalar(255) } }, { activation: 'scale255' }, {}],
    [{ after: [MATTE, nodeOf('Sigmoid', ['matte'], 'alpha')] }, { activation: 'logit' }, {}],
    [
      { after: [nodeOf('Neg', ['logits'], 'n'), nodeOf('Sigmoid', ['n'], 'alpha')] },
      { activation: 'none', inverted: true },
      {},
    ],
    [
      {
        after: [
          nodeOf('Neg', ['logits'], 'n'),
          nodeOf('Concat', ['n', 'logits'], 'alpha', [integer('axis', 1)]),
        ],
        output: [1, 2, 48, 48],
      },
      { activation: 'softmax' },
      {},
    ],
  ] as const satisfies readonly (readonly [WarmGraph, object, object])[]) {
    const found = await probe(t, graph);
    const inverted = 'inverted' in facts ? true : undefined;
    t.like(found, { constant: false, inverted, ...facts });
    t.like(found.graph, { dynamic: false, inputName: 'x', outputName: 'alpha', ...inputs });
    t.deepEqual(found.warnings, []);
  }
});

test('who wishes no normalisation gets a cut-out by each', async t => {
  const found = await probe(t, {}, {});
  t.like(found, { activation: 'none', constant: false, warnings: [] });
  t.deepEqual(
    found.shown,
    NORMALISATIONS.map(({ of }) => of),
  );
  t.is(found.cutouts.length, NORMALISATIONS.length);
});

/** Halved three times and back, and added to itself: only a multiple of 8 is as large as before. */
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

test('an open size is measured: what it costs, and which sides run', async t => {
  const open = { input: [1, 3, null, null], output: [1, 1, null, null] };
  const found = await probe(t, open, { ...ONE, size: { width: 160, height: 96 } });
  t.like(found, { multipleOf: 1, provider: 'cpu' });
  t.like(found.graph, { dynamic: true, inputWidth: 160, inputHeight: 96 });
  t.true(found.loadedBytes > 30e6 && found.peakBytes >= found.loadedBytes && found.seconds > 0);
  const refused = probe(t, IN_EIGHTHS, { size: { width: 100, height: 100 } });
  const said = /multiples of 8: it does not run at 100x100: Add "skip\\u001b\[2J": /;
  await rejectsWith(t, refused, isModelError('settings', said));
});

test('a graph of any size is tried with narrow pictures too: the least side that runs is told', async t => {
  const size = { width: 256, height: 256 };
  const own = { ...ONE, normalisation: BYTES };
  const wishes: ProbeWishes = { ...own, fit: 'short-side', activation: 'none', size };
  const reflects = encodeTrap({ kind: 'reflects' });
  t.like(await probe(t, reflects, wishes), { multipleOf: 32, shortestSide: 64 });
  t.like(await probe(t, IN_EIGHTHS, { ...ONE, fit: 'short-side' }), {
    multipleOf: 8,
    shortestSide: 8,
  });
  // Every picture has the same sides under another fit.
  const { fit: _, ...stretched } = wishes;
  t.is((await probe(t, reflects, stretched)).shortestSide, undefined);
  // Squares, and what is nearly square, are all that it runs with.
  const crop = nodeOf('Slice', ['x', 'from', 'to', 'axes'], 'window');
  const squares: WarmGraph = {
    ...{ input: [1, 3, null, null], output: [1, 1, null, null] },
    constants: {
      ...{ from: int64Tensor([-200, -200], [2]), to: int64Tensor([9999, 9999], [2]) },
      ...{ axes: int64Tensor([2, 3], [2]), window200: int64Tensor([1, 3, 200, 200], [4]) },
      zero: scalar(0),
    },
    before: [
      crop,
      nodeOf('Reshape', ['window', 'window200'], 'fixed'),
      nodeOf('ReduceMax', ['fixed'], 'most', [integer('keepdims', 0)]),
      nodeOf('Mul', ['most', 'zero'], 'nothing'),
      nodeOf('Add', ['x', 'nothing'], 'rgb'),
    ],
  };
  const side = { width: 220, height: 220 };
  const found = await probe(t, squares, { ...wishes, activation: 'sigmoid', size: side });
  t.is(found.shortestSide, 220);
  t.regex(found.warnings.join(), /it fails with narrow pictures: the service refuses them/);
});

const BYTES = { mean: [0, 0, 0], std: [255, 255, 255] } as const;

/** The mask is flat before its Reshape: mended, the convolution gets three sides of it, not four. */
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
  // The premise: there is something to mend, and what comes of it does not run.
  await using copy = await openMendedCopy(file);
  t.true(copy.isMended);
  const mended = probeGraph(copy.path, {}, { asItIs: true });
  await rejectsWith(t, mended, isModelError('prepare', /DeformConv/));
  const found = await probeGraph(file, { ...ONE, activation: 'sigmoid' });
  t.is(found.mended, undefined);
  t.like(found.graph, { inputWidth: 7, inputHeight: 9 });
});

test('requested facts stand, and a warning names those that the values contradict', async t => {
  const normalisation = { mean: [124, 116, 104], std: [58, 57, 57] } as const;
  const logits = { after: [nodeOf('Identity', ['logits'], 'alpha')] };
  const wrong = await probe(t, logits, { ...ONE, activation: 'none', normalisation });
  t.is(wrong.activation, 'none');
  t.deepEqual(wrong.shown, ['what was asked for']);
  t.is(wrong.cutouts.length, 1);
  t.regex(wrong.warnings.join(), /^--activation none stands .* from -\d.* to \d.* fit sigmoid$/);
  const bytes = { inputType: ElementType.uint8, before: [...AS_FLOATS], after: [MATTE, ROUND] };
  const itself = await probe(t, bytes, { ...ONE, normalisation });
  t.like(itself.graph, { inputType: 'uint8' });
  t.regex(itself.warnings.join(), /normalises by itself: --mean and --std are without effect/);
  t.deepEqual((await probe(t, bytes, { picture: SMALL })).shown, ['ImageNet']);
});

/** Half of the matte is the trimap's; the index is out of bounds where there is none. */
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
  for (const channels of [4, null]) {
    const found = await probe(t, { ...WITH_TRIMAP, input: [1, channels, 48, 48] }, IMAGENET);
    t.like(found, { activation: 'none', constant: false, inverted: undefined, warnings: [] });
    t.true(found.graph.trimap);
    const { data } = await sharp(found.cutouts[0]).raw().toBuffer({ resolveWithObject: true });
    const alphaAt = (x: number, y: number) => data[4 * (y * 640 + x) + 3] ?? -1;
    // Far from the person's edge it is the drawn matte's.
    t.deepEqual([alphaAt(320, 220), alphaAt(50, 50)], [255, 0]);
  }
  t.is((await probe(t, { input: [1, null, 48, 48] })).graph.trimap, undefined);
  const { picture } = checkPictures()[0];
  const own = probe(t, { ...WITH_TRIMAP, input: [1, 4, 48, 48] }, { picture });
  await rejectsWith(t, own, isModelError('settings', /of a picture of your own there is none/));
});

const ROUND = nodeOf('Identity', ['matte'], 'alpha');

test('one value everywhere is no matte, and of several outputs the chosen one is named', async t => {
  const constant = [nodeOf('Mul', ['logits', 'zero'], 'n'), nodeOf('Sigmoid', ['n'], 'alpha')];
  const found = await probe(t, { after: constant, constants: { zero: scalar(0) } });
  t.true(found.constant);
  t.is(found.activation, undefined);
  t.regex(found.warnings.join(), /its output is 0\.500 everywhere: no matte/);
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
  for (const [graph, kind, said, limits = {}] of [
    [
      bomb,
      'prepare',
      /running the graph takes more memory than the 1\.0 GiB \(--memory-max\)/,
      { memoryMaxBytes: GIB },
    ],
    [{}, 'prepare', /did not end within 0 s: it was loading the graph/, { timeoutMs: 20 }],
    [{ after: [nodeOf('Log', ['logits'], 'alpha')] }, 'prepare', /values that are not numbers/],
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
    await rejectsWith(t, probe(t, graph, ONE, limits), isModelError(kind, said));
  }
  const gone = probeGraph(join(await temporaryFolder(t), 'gone.onnx'));
  await rejectsWith(t, gone, isModelError('disk', /gone\.onnx/));
  const stopped = AbortSignal.timeout(100);
  await t.throwsAsync(probe(t, {}, {}, { signal: stopped }), { name: 'TimeoutError' });
});

type Refused = readonly [WarmGraph | Uint8Array, ModelErrorKind, RegExp, ProbeLimits?];

/** The graph, whose weights are in another file. */
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
