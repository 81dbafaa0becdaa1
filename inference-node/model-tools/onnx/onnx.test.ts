/** ONNX Runtime runs graphs before and after the passes. */
import assert from 'node:assert/strict';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { loadManifest } from '@matting/serving/models/manifest.ts';
import { RGB_INPUT } from '@matting/serving/models/prepared-model.ts';
import {
  decodeModel,
  ElementType,
  float32Tensor,
  type Graph,
  type GraphNode,
  integer,
  integers,
  nodeOf,
  sortTopologically,
  tensorNumbers,
  widenHalf,
} from '@matting/serving/onnx/graph.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { AttributeProto, ModelProto, ValueInfoProto } from '@matting/serving/test/onnx-messages.ts';
import {
  alphaOf,
  drawCheckPicture,
  lacksInt8,
  loadModel,
  planesOf,
  runOnce,
} from '@matting/serving/test/run-graph.ts';
import { at } from '@matting/test-support/at.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { prepareGraph } from '../preparing/prepare.ts';
import {
  graphBytes,
  largestDifference,
  measureRanges,
  prepareTinyGraph,
  runGraph,
  tinyGraph,
} from '../test/tiny-graph.ts';
import { planQuantisation } from './plan-quantisation.ts';
import { type Quantisation, quantise, scaleOfRange } from './quantise.ts';
import {
  bytesAtBothEnds,
  keepOutput,
  liftConstants,
  OPSET_OF_INT8,
  type PixelFormat,
  raiseOpset,
  removeUnused,
  resizeInHalf,
  setInputSize,
  widenToFloat32,
} from './rewrites.ts';

const skipsInt8 = await lacksInt8();
if (skipsInt8) console.error('skipped: this CPU has no instruction for products of bytes');
const SIDE = 64;
/** ONNX Runtime may add in another order if a shape is fixed or a node removed. */
const ROUNDING = 1e-6;

const square = (side: number) => ({ width: side, height: side });

function operators(graph: Graph): readonly string[] {
  return [...new Set(graph.nodes.map(node => node.opType))].sort();
}

const isPrepareError = (pattern: RegExp) => isModelError('prepare', pattern);

test('bytes that are not a graph are refused with the name of their file', t => {
  const bytes = graphBytes(tinyGraph({ side: 64 }));
  throwsWith(t, () => decodeModel(bytes.subarray(0, 900), 'cut.onnx'), isPrepareError(/cut\.onnx/));
  throwsWith(t, () => decodeModel(Buffer.from('hello'), 'text.onnx'), isPrepareError(/text\.onnx/));
  const empty = ModelProto.encode(ModelProto.fromPartial({ irVersion: 8n })).finish();
  throwsWith(t, () => decodeModel(empty, 'empty.onnx'), isPrepareError(/empty\.onnx/));
});

test('a graph with subgraphs, functions or a node without outputs is refused', t => {
  const model = ModelProto.decode(graphBytes(tinyGraph({ side: 64 })));
  at(model.graph!.node, 0).attribute = [
    AttributeProto.fromPartial({ name: 'then_branch', type: 5, g: { name: 'inner' } }),
  ];
  const branched = ModelProto.encode(model).finish();
  throwsWith(t, () => decodeModel(branched, 'if.onnx'), isPrepareError(/subgraphs/));
  const idle = ModelProto.decode(graphBytes(tinyGraph({ side: 64 })));
  at(idle.graph!.node, 0).output = [];
  const outputless = ModelProto.encode(idle).finish();
  throwsWith(t, () => decodeModel(outputless, 'idle.onnx'), isPrepareError(/has no output/));
  const functional = ModelProto.decode(graphBytes(tinyGraph({ side: 64 })));
  functional.functions = [{ name: 'f' }];
  const bytes = ModelProto.encode(functional).finish();
  throwsWith(t, () => decodeModel(bytes, 'functions.onnx'), isPrepareError(/functions/));
});

test('a graph without the wanted output, or with another input, is refused', t => {
  const source = tinyGraph({ side: 64 });
  throwsWith(t, () => keepOutput('matte')(source), isPrepareError(/no output matte.*output, side/));
  throwsWith(
    t,
    () =>
      prepareGraph(source, {
        inputName: 'picture',
        outputName: 'output',
        exported: square(64),
        wanted: square(64),
        precision: 'fp32',
      }),
    isPrepareError(/input is input, not picture/),
  );
});

test('an unknown operator prevents only another size', t => {
  const source = tinyGraph({ side: 64, sizes: 'computed' });
  const nodes = source.nodes.map(node =>
    node.opType === 'Relu' ? { ...node, opType: 'Mystery', domain: 'elsewhere' } : node,
  );
  const strange = { ...source, nodes };
  throwsWith(t, () => prepareTinyGraph(strange, 96), isPrepareError(/is not known/));
  t.true(operators(prepareTinyGraph(strange, 64)).includes('Mystery'));
});

test('side outputs are removed with what only they need, and the matte stays the same', async t => {
  const source = tinyGraph({ side: 64 });
  const pruned = keepOutput('output')(source);
  t.is(source.nodes.filter(node => node.opType === 'Resize').length, 2);
  t.is(pruned.nodes.filter(node => node.opType === 'Resize').length, 1);
  t.true(pruned.initialisers.size < source.initialisers.size);
  const before = await runGraph(graphBytes(source), 64);
  t.true(largestDifference(before, await runGraph(graphBytes(pruned), 64)) < ROUNDING);
});

test('half precision is widened, no cast is left, and the matte stays the same', async t => {
  const source = tinyGraph({ side: 64, half: true });
  const prepared = prepareTinyGraph(source, 64);
  t.deepEqual(operators(prepared), ['Concat', 'Conv', 'MaxPool', 'Relu', 'Resize', 'Sigmoid']);
  for (const tensor of prepared.initialisers.values()) {
    t.not(tensor.elementType, ElementType.float16);
  }
  const before = await runGraph(graphBytes(source), 64);
  const after = await runGraph(graphBytes(prepared), 64);
  t.true(largestDifference(before, after) < 2e-3);
  const single = await runGraph(graphBytes(tinyGraph({ side: 64 })), 64);
  t.true(largestDifference(single, after) < ROUNDING);
});

test('preparing for a GPU keeps half precision and its casts', async t => {
  const source = tinyGraph({ side: 64, half: true });
  const prepared = prepareTinyGraph(source, 64, 'fp16');
  t.true(operators(prepared).includes('Cast'));
  t.false(operators(prepared).includes('Shape'));
  const before = await runGraph(graphBytes(source), 64);
  t.true(largestDifference(before, await runGraph(graphBytes(prepared), 64)) < 1e-3);
});

for (const sizes of ['literal', 'computed'] as const) {
  test(`${sizes} Resize targets become constants of the wanted size`, async t => {
    const source = tinyGraph({ side: 64, sizes });
    for (const side of [64, 96, 160]) {
      const prepared = prepareTinyGraph(source, side);
      t.false(operators(prepared).some(name => /Shape|Slice|Gather|Constant/.test(name)));
      t.deepEqual(at(prepared.inputs, 0).dims, [1, 3, side, side]);
      t.deepEqual(at(prepared.outputs, 0).dims, [1, 1, side, side]);
      // As the exporter would have written it.
      const exported = tinyGraph({ side, sizes });
      const wanted = await runGraph(graphBytes(exported), side);
      t.true(largestDifference(wanted, await runGraph(graphBytes(prepared), side)) < ROUNDING);
    }
  });
}

test('a free input is fixed to the wanted size; width and height may differ, where all divide', async t => {
  const source = tinyGraph({ side: 64, sizes: 'computed', free: true });
  const wanted = await runGraph(graphBytes(source), 96);
  const prepared = await runGraph(graphBytes(prepareTinyGraph(source, 96)), 96);
  t.true(largestDifference(wanted, prepared) < ROUNDING);
  const lifted = liftConstants(keepOutput('output')(tinyGraph({ side: 64 })));
  const sized = setInputSize(lifted, square(64), { width: 128, height: 96 });
  t.deepEqual(at(sized.outputs, 0).dims, [1, 1, 96, 128]);
  const whole = liftConstants(tinyGraph({ side: 64 }));
  const odd = () => setInputSize(whole, { width: 64, height: 60 }, { width: 64, height: 96 });
  throwsWith(t, odd, isPrepareError(/would resize to/));
});

test('a cast that makes an output is removed, one from an integer stays', async t => {
  const source = liftConstants(tinyGraph({ side: 64 }));
  const cast = (input: string, output: string, to: number) =>
    nodeOf('Cast', [input], output, [integer('to', to)]);
  const { float16, float32, int64 } = ElementType;
  const output = (name: string) => ({ name, elementType: float32, dims: [1, null, null, null] });
  const graph: Graph = {
    ...source,
    nodes: [
      ...source.nodes,
      cast('output', 'half', float16),
      cast('half', 'again', float32),
      cast('input', 'same', float32),
      cast('input', 'whole', int64),
      cast('whole', 'counted', float32),
    ],
    outputs: ['output', 'again', 'same', 'counted'].map(output),
  };
  const widened = removeUnused(widenToFloat32(graph, [1, 3, 64, 64]));
  const bytes = graphBytes(widened);
  const matte = await runGraph(bytes, 64, 'output');
  t.true(largestDifference(matte, await runGraph(bytes, 64, 'again')) < ROUNDING);
  const input = await runGraph(bytes, 64, 'same');
  t.is(input.length, 3 * 64 * 64);
  t.true(input.some(value => value !== Math.trunc(value)));
  const counted = await runGraph(bytes, 64, 'counted');
  t.true(counted.every(value => value === Math.trunc(value)));
  t.is(widened.nodes.filter(node => node.opType === 'Cast').length, 2);
});

test('every half-precision value is widened exactly', t => {
  const bits = Uint16Array.from({ length: 65536 }, (_, half) => half);
  // Odd, as tensors lie in files.
  const shifted = new Uint8Array(bits.byteLength + 1);
  shifted.set(new Uint8Array(bits.buffer), 1);
  const data = shifted.subarray(1);
  const wide = widenHalf({ elementType: ElementType.float16, dims: [65536], data });
  const floats = new Float32Array(wide.data.buffer, wide.data.byteOffset, 65536);
  const spotted: readonly [bits: number, value: number][] = [
    [0x0000, 0],
    [0x8000, -0],
    [0x0001, 2 ** -24],
    [0x03ff, 1023 * 2 ** -24],
    [0x0400, 2 ** -14],
    [0x3555, 0.333251953125],
    [0xc000, -2],
    [0x7bff, 65504],
    [0x7c00, Number.POSITIVE_INFINITY],
    [0xfc00, Number.NEGATIVE_INFINITY],
  ];
  for (const [half, value] of spotted) t.truthy(Object.is(floats[half], value), half.toString(16));
  t.truthy(Number.isNaN(floats[0x7c01]) && Number.isNaN(floats[0xffff]));
  for (let half = 1; half <= 0x7c00; half += 1) t.true(at(floats, half) > at(floats, half - 1));
});

test('a pass changes neither the graph it is given nor its tensors', t => {
  const source = tinyGraph({ side: 64, half: true });
  const before = graphBytes(source);
  prepareTinyGraph(source, 96);
  t.true(before.equals(graphBytes(source)));
});

test('reading and writing keep a graph, whatever the order of its nodes', async t => {
  const source = tinyGraph({ side: 64, half: true });
  const model = ModelProto.decode(graphBytes(source));
  model.graph!.node.reverse();
  // Old exporters list every initialiser as an input, and write numbers not raw.
  for (const tensor of model.graph!.initializer) {
    const type = { tensorType: { elemType: tensor.dataType } };
    model.graph!.input.push(ValueInfoProto.fromPartial({ name: tensor.name, type }));
  }
  const read = decodeModel(ModelProto.encode(model).finish(), 'reversed.onnx');
  t.deepEqual(
    read.inputs.map(input => input.name),
    ['input'],
  );
  const wanted = await runGraph(graphBytes(source), 64);
  t.true(largestDifference(wanted, await runGraph(graphBytes(read), 64)) < ROUNDING);
});

test('tensors stored as typed numbers are read, others are refused', t => {
  const model = ModelProto.decode(graphBytes(tinyGraph({ side: 64 })));
  const tensor = at(model.graph!.initializer, 0);
  const raw = Buffer.from(tensor.rawData!);
  const numbers = Array.from({ length: raw.length / 4 }, (_, at) => raw.readFloatLE(at * 4));
  tensor.rawData = undefined;
  tensor.floatData = numbers;
  const read = decodeModel(ModelProto.encode(model).finish(), 'typed.onnx');
  t.true(raw.equals(read.initialisers.get(tensor.name!)!.data));
  tensor.floatData = numbers.slice(1);
  const short = ModelProto.encode(model).finish();
  throwsWith(t, () => decodeModel(short, 'short.onnx'), isPrepareError(/weights/));
});

test('nodes that form a circle have no order', t => {
  const node = (inputs: string[], output: string) => nodeOf('Add', inputs, output);
  t.is(sortTopologically([node(['b'], 'a'), node(['a'], 'b')]), null);
  const sorted = sortTopologically([node(['b', 'c'], 'd'), node(['a'], 'c'), node(['a'], 'b')]);
  t.is(sorted?.at(-1)?.outputs[0], 'd');
});

/** Pictures of runGraph lie in [-1, 1]. */
const INPUT = { scale: 1 / 127, zeroPoint: 128 };

function float32(options: { readonly half?: boolean } = {}): Graph {
  return prepareTinyGraph(tinyGraph({ side: SIDE, ...options }));
}

async function quantisationOf(graph: Graph, more: Partial<Quantisation> = {}) {
  const { measured } = planQuantisation(graph, { inputIsExact: true });
  const ranges = await measureRanges(graph, measured, SIDE);
  return { ranges, float32: new Set<string>(), input: INPUT, ...more };
}

function convolutions(graph: Graph): readonly GraphNode[] {
  return graph.nodes.filter(({ opType }) => opType === 'Conv');
}

test('a value without a range, and an opset without scales per channel, are refused', async t => {
  const graph = float32();
  const quantisation = await quantisationOf(graph);
  const ranges = new Map([...quantisation.ranges].slice(1));
  const lacking = isPrepareError(/the ranges do not have/);
  throwsWith(t, () => quantise(graph, { ...quantisation, ranges }), lacking);
  const old = { ...graph, opsets: [{ domain: '', version: 11 }] };
  throwsWith(t, () => quantise(old, quantisation), isPrepareError(/needs opset 13/));
});

test('an opset is raised only where every operator keeps its meaning', t => {
  const graph = { ...float32(), opsets: [{ domain: '', version: 11 }] };
  t.deepEqual(raiseOpset(graph, OPSET_OF_INT8).opsets, [{ domain: '', version: 13 }]);
  const changed = {
    ...graph,
    nodes: graph.nodes.with(0, { ...at(graph.nodes, 0), opType: 'Softmax' }),
  };
  throwsWith(t, () => raiseOpset(changed, OPSET_OF_INT8), isPrepareError(/it has a Softmax/));
  const older = { ...graph, opsets: [{ domain: '', version: 9 }] };
  throwsWith(t, () => raiseOpset(older, OPSET_OF_INT8), isPrepareError(/older than 11/));
  const newer = { ...graph, opsets: [{ domain: '', version: 15 }] };
  t.is(raiseOpset(newer, OPSET_OF_INT8), newer);
});

test('axes given as an attribute become an input', async t => {
  const graph = tinyGraph({ side: SIDE, sizes: 'computed' });
  // An attribute in the older opset.
  const axes = integers('axes', [0]);
  const nodes = graph.nodes.map(node =>
    node.opType === 'Unsqueeze'
      ? { ...node, inputs: node.inputs.slice(0, 1), attributes: [axes] }
      : node,
  );
  const known = new Set(nodes.map(({ opType }) => opType));
  t.true(known.has('Unsqueeze'));
  // Shape arithmetic that is not on the list of operators.
  const carried = nodes.filter(({ opType }) => opType !== 'Constant' && opType !== 'Cast');
  const old = { ...graph, nodes: carried, opsets: [{ domain: '', version: 11 }] };
  const raised = raiseOpset(old, OPSET_OF_INT8);
  for (const node of raised.nodes.filter(({ opType }) => opType === 'Unsqueeze')) {
    t.deepEqual(node.attributes, []);
    const tensor = raised.initialisers.get(at(node.inputs, 1));
    t.deepEqual(tensor && tensorNumbers(tensor), [0]);
  }
});

test.skipIf(skipsInt8)(
  'the quantised matte differs from the float32 one only by its steps',
  async t => {
    for (const half of [false, true]) {
      const graph = float32({ half });
      const quantised = quantise(graph, await quantisationOf(graph));
      const wanted = await runGraph(graphBytes(graph), SIDE);
      const found = await runGraph(graphBytes(quantised), SIDE);
      const spread = Math.max(...wanted) - Math.min(...wanted);
      t.true(spread > 0.1, 'the tiny model gives a matte');
      t.true(largestDifference(wanted, found) < 0.02);
    }
  },
);

test('the convolution of the logits keeps its weights, and so do those that the ranges name', async t => {
  const graph = float32();
  const quantisation = await quantisationOf(graph);
  const quantised = quantise(graph, quantisation);
  const keptOf = (made: Graph) =>
    convolutions(made)
      .filter(({ inputs }) => graph.initialisers.has(at(inputs, 1)))
      .map(({ outputs }) => outputs[0]);
  const [first, , logits] = convolutions(graph).map(({ outputs }) => at(outputs, 0));
  t.is(convolutions(quantised).length, 3);
  t.is(logits, graph.nodes.find(({ opType }) => opType === 'Sigmoid')?.inputs[0]);
  t.deepEqual(keptOf(quantised), [logits]);
  const named = quantise(graph, { ...quantisation, float32: new Set([first ?? '']) });
  t.deepEqual(keptOf(named), [first, logits]);
  const maker = quantised.nodes.find(({ outputs }) => outputs[0] === 'output');
  t.not(maker?.opType, 'DequantizeLinear');
});

test('a value that only a float32 convolution reads stays float32, one that others read does not', t => {
  const graph = float32();
  const deep = at(convolutions(graph), 1);
  const plan = (names: readonly string[]) =>
    planQuantisation(graph, { inputIsExact: true, float32: new Set(names) });
  const pooled = at(deep.inputs, 0);
  t.true(plan([]).sharing.has(pooled));
  t.false(plan(deep.outputs).sharing.has(pooled));
  t.deepEqual(plan(deep.outputs).measured, plan([]).measured);
});

test.skipIf(skipsInt8)(
  'the first convolution stays float32 if the picture is not in whole steps',
  async t => {
    const graph = float32();
    const quantisation = await quantisationOf(graph, { input: undefined });
    const quantised = quantise(graph, quantisation);
    const [first] = convolutions(quantised);
    t.deepEqual(first?.inputs, at(convolutions(graph), 0).inputs);
    const found = await runGraph(graphBytes(quantised), SIDE);
    t.true(largestDifference(await runGraph(graphBytes(graph), SIDE), found) < 0.02);
  },
);

test.skipIf(skipsInt8)('a bias beside weights near zero does not overflow', async t => {
  const graph = float32();
  const first = at(convolutions(graph), 0);
  const [, weightsName = '', biasName = ''] = first.inputs;
  const weights = graph.initialisers.get(weightsName)!;
  const values = Array.from(new Float32Array(new Uint8Array(weights.data).buffer));
  const each = values.length / at(weights.dims, 0);
  // A folded batch normalisation leaves this for a channel that it shut off.
  const initialisers = new Map(graph.initialisers)
    .set(weightsName, float32Tensor(values.fill(1e-12, 0, each), weights.dims))
    .set(biasName, float32Tensor([0.9, -0.3, 0.2, 0.1], [4]));
  const shut = { ...graph, initialisers };
  const quantised = quantise(shut, await quantisationOf(shut));
  const found = await runGraph(graphBytes(quantised), SIDE);
  t.true(largestDifference(await runGraph(graphBytes(shut), SIDE), found) < 0.02);
});

test('a range becomes a scale that has an exact zero', t => {
  t.deepEqual(scaleOfRange([0, 255]), { scale: 1, zeroPoint: 0 });
  t.deepEqual(scaleOfRange([-255, 0]), { scale: 1, zeroPoint: 255 });
  t.is(scaleOfRange([-1, 3]).zeroPoint, 64);
  t.true(scaleOfRange([0, 0]).scale > 0);
});

/** Step of half precision near 1. */
const HALF_STEP = 2 ** -11;
const FORMAT: PixelFormat = {
  normalisation: { mean: [128, 128, 128], std: [256, 256, 256] },
  colourOrder: 'rgb',
  activation: 'none',
};

function value(name: string, channels: number, width: number, height: number) {
  return { name, elementType: ElementType.float32, dims: [1, channels, height, width] };
}

function answering(matte: readonly number[], width: number, height: number): Graph {
  const zero = float32Tensor([0], []);
  const nodes = [
    // Keeps the input in use.
    nodeOf('ReduceMax', ['input'], 'most'),
    nodeOf('Mul', ['most', 'zero'], 'nothing'),
    nodeOf('Add', ['matte', 'nothing'], 'output'),
  ];
  return {
    irVersion: 8,
    opsets: [{ domain: '', version: 11 }],
    nodes,
    initialisers: new Map([
      ['zero', zero],
      ['matte', float32Tensor(matte, [1, 1, height, width])],
    ]),
    inputs: [value('input', 3, width, height)],
    outputs: [value('output', 1, width, height)],
  };
}

async function answerOf(graph: Graph, format: PixelFormat, rgb: Uint8Array, size: Size) {
  const spec = { ...format, inputWidth: size.width, inputHeight: size.height };
  const { alpha } = await (await loadModel(spec, graphBytes(graph))).run(rgb);
  return Uint8Array.from(alpha);
}

function stepped(number: number, steps: number): number {
  const float = Float32Array.of(number);
  const bits = new Int32Array(float.buffer);
  bits[0] = (bits[0] ?? 0) + steps;
  return float[0] ?? Number.NaN;
}

test('each byte becomes the same float as outside of the graph', async t => {
  const side = 16;
  const rgb = Uint8Array.from(
    { length: 3 * side * side },
    (_, i) => (i + Math.floor(i / 256)) % 256,
  );
  const manifests = await Promise.all(
    ['isnet', 'modnet', 'u2netp'].map(name => loadManifest(name)),
  );
  const odd = { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375] } as const;
  for (const normalisation of [odd, ...manifests.map(each => each.normalisation)]) {
    for (const colourOrder of ['rgb', 'bgr'] as const) {
      const format: PixelFormat = { normalisation, colourOrder, activation: 'none' };
      const graph = bytesAtBothEnds(format, { width: side, height: side })(tinyGraph({ side }));
      const inner = { ...graph, outputs: [value('input', 3, side, side)] };
      const feeds = { [RGB_INPUT]: { data: rgb, dims: [1, side, side, 3] } };
      t.deepEqual(await runOnce(graphBytes(inner), feeds, 'input'), planesOf(rgb, format));
    }
  }
});

test('each number of a matte becomes the same byte, ties and their neighbours too', async t => {
  const numbers = [-1, -1e-9, -0, 1, 1.001, 2, 1e30, 1e-40];
  for (let level = 0; level <= 255; level += 1) {
    for (const number of [level / 255, (level + 0.5) / 255]) {
      for (let steps = number > 0 ? -3 : 0; steps <= 3; steps += 1) {
        numbers.push(stepped(number, steps));
      }
    }
  }
  const logits = Array.from({ length: 64 }, (_, index) => (index - 32) / 4);
  for (const [activation, given] of [
    ['none', numbers],
    ['sigmoid', logits],
  ] as const) {
    const format = { ...FORMAT, activation };
    const size = { width: given.length, height: 1 };
    const expected = alphaOf(given, activation);
    t.truthy(expected);
    const graph = bytesAtBothEnds(format, size)(answering(given, size.width, size.height));
    const rgb = new Uint8Array(3 * given.length).fill(100);
    t.deepEqual(await answerOf(graph, format, rgb, size), expected, activation);
  }
});

test('a matte that is not all numbers is refused', async t => {
  const size = { width: 4, height: 2 };
  const rgb = new Uint8Array(24);
  for (const activation of ['none', 'sigmoid'] as const) {
    const format = { ...FORMAT, activation };
    const graph = answering([0, 1, 0, 1, Number.NaN, 0, 1, 0], 4, 2);
    await t.throwsAsync(answerOf(bytesAtBothEnds(format, size)(graph), format, rgb, size), {
      message: /values that are not numbers/,
    });
  }
});

test('a whole graph answers the same bytes from bytes as from floats', async t => {
  const size = { width: SIDE, height: SIDE };
  const rgb = drawCheckPicture(SIDE, SIDE);
  for (const half of [false, true]) {
    const graph = keepOutput('output')(tinyGraph({ side: SIDE, half }));
    const named = { ...FORMAT, inputName: 'input', outputName: 'output' };
    const floats = await answerOf(graph, named, rgb, size);
    const bytes = await answerOf(bytesAtBothEnds(FORMAT, size)(graph), FORMAT, rgb, size);
    t.deepEqual(bytes, floats);
    t.true(new Set(floats).size > 4, 'not all the same');
  }
});

test('Resize takes half precision without casts, and resizes the same', async t => {
  const dims = [1, 3, 64, 64];
  const half = keepOutput('output')(tinyGraph({ side: 64, half: true }));
  const casts = ({ nodes }: Graph) => nodes.filter(({ opType }) => opType === 'Cast').length;
  const bare = resizeInHalf(half, dims);
  t.deepEqual([casts(half), casts(bare)], [4, 2]);
  const [before, after] = await Promise.all(
    [half, bare].map(graph => runGraph(graphBytes(graph), 64)),
  );
  assert.ok(before !== undefined && after !== undefined);
  // ONNX Runtime rounds only at casts here.
  t.true(largestDifference(before, after) < HALF_STEP);
});

test('casts that others read, or that make an output, stay', t => {
  const dims = [1, 3, 64, 64];
  const graph = tinyGraph({ side: 64, half: true });
  const resize = graph.nodes.find(({ opType }) => opType === 'Resize');
  assert.ok(resize !== undefined);
  const wide = resize.inputs[0] ?? '';
  const seen = { ...graph, outputs: [...graph.outputs, value(wide, 4, 32, 32)] };
  t.true(resizeInHalf(seen, dims).nodes.some(({ outputs }) => outputs[0] === wide));
  const [resized] = resize.outputs;
  const answered = { ...graph, outputs: [...graph.outputs, value(resized, 4, 64, 64)] };
  const kept = resizeInHalf(answered, dims).nodes.find(({ outputs }) => outputs[0] === resized);
  t.is(kept?.inputs[0], wide);
  const float32 = tinyGraph({ side: 64 });
  t.is(resizeInHalf(float32, dims).nodes.length, float32.nodes.length);
});
