import test from 'ava';
import onnxProto from 'onnx-proto';
import { at } from '../../../../test/support/at.ts';
import { throwsWith } from '../../../../test/support/throws.ts';
import {
  ElementType,
  type Graph,
  integer,
  nodeOf,
  sortTopologically,
} from '../../../src/models/onnx/graph.ts';
import { decodeModel } from '../../../src/models/onnx/model-file.ts';
import { liftConstants, prepareGraph } from '../../../src/models/onnx/passes/prepare-graph.ts';
import { keepOutput, removeUnused } from '../../../src/models/onnx/passes/remove-unused.ts';
import { setInputSize } from '../../../src/models/onnx/passes/set-input-size.ts';
import { widenToFloat32 } from '../../../src/models/onnx/passes/widen-to-float32.ts';
import { widenHalf } from '../../../src/models/onnx/tensor.ts';
import { isModelError } from '../is-model-error.ts';
import {
  graphBytes,
  largestDifference,
  prepareTinyGraph,
  runGraph,
  tinyGraph,
} from './tiny-graph.ts';

/** ONNX Runtime may add in another order where a shape is fixed or a node is removed. */
const ROUNDING = 1e-6;

const square = (side: number) => ({ width: side, height: side });

function operators(graph: Graph): readonly string[] {
  return [...new Set(graph.nodes.map(node => node.opType))].sort();
}

const isPrepareError = (pattern: RegExp) => isModelError('prepare', pattern);

test('bytes that are not a graph are refused with the name of their file', t => {
  const { ModelProto } = onnxProto.onnx;
  const bytes = graphBytes(tinyGraph({ side: 64 }));
  throwsWith(t, () => decodeModel(bytes.subarray(0, 900), 'cut.onnx'), isPrepareError(/cut\.onnx/));
  throwsWith(t, () => decodeModel(Buffer.from('hello'), 'text.onnx'), isPrepareError(/text\.onnx/));
  const empty = ModelProto.encode({ irVersion: 8 }).finish();
  throwsWith(t, () => decodeModel(empty, 'empty.onnx'), isPrepareError(/empty\.onnx/));
});

test('a graph with subgraphs, functions or a node without outputs is refused', t => {
  const { ModelProto } = onnxProto.onnx;
  const model = ModelProto.decode(graphBytes(tinyGraph({ side: 64 })));
  at(model.graph!.node!, 0).attribute = [{ name: 'then_branch', type: 5, g: { name: 'inner' } }];
  const branched = ModelProto.encode(model).finish();
  throwsWith(t, () => decodeModel(branched, 'if.onnx'), isPrepareError(/subgraphs/));
  const idle = ModelProto.decode(graphBytes(tinyGraph({ side: 64 })));
  at(idle.graph!.node!, 0).output = [];
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

test('a size the Resize targets do not divide into is refused', t => {
  const source = liftConstants(tinyGraph({ side: 64 }));
  const odd = { width: 64, height: 96 };
  throwsWith(
    t,
    () => setInputSize(source, { width: 64, height: 60 }, odd),
    isPrepareError(/would resize to/),
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
  // The same weights in single precision from the start: the same matte.
  const single = await runGraph(graphBytes(tinyGraph({ side: 64 })), 64);
  t.true(largestDifference(single, after) < ROUNDING);
});

test('for a GPU half precision and its casts stay, everything else is prepared', async t => {
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
      // What the exporter would have written for that size.
      const exported = tinyGraph({ side, sizes });
      const wanted = await runGraph(graphBytes(exported), side);
      t.true(largestDifference(wanted, await runGraph(graphBytes(prepared), side)) < ROUNDING);
    }
  });
}

test('a free input is fixed to the wanted size', async t => {
  const source = tinyGraph({ side: 64, sizes: 'computed', free: true });
  const wanted = await runGraph(graphBytes(source), 96);
  const prepared = await runGraph(graphBytes(prepareTinyGraph(source, 96)), 96);
  t.true(largestDifference(wanted, prepared) < ROUNDING);
});

test('width and height may differ', t => {
  const source = liftConstants(keepOutput('output')(tinyGraph({ side: 64 })));
  const sized = setInputSize(source, square(64), { width: 128, height: 96 });
  t.deepEqual(at(sized.outputs, 0).dims, [1, 1, 96, 128]);
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
  // From an odd address, as tensors lie in files.
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
  // Growing bits are growing numbers, up to infinity.
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
  const { ModelProto } = onnxProto.onnx;
  const model = ModelProto.decode(graphBytes(source));
  model.graph!.node!.reverse();
  // Like old exporters: every initialiser is an input too, and numbers are not raw.
  for (const tensor of model.graph!.initializer!) {
    const type = { tensorType: { elemType: tensor.dataType ?? null } };
    model.graph!.input!.push({ name: tensor.name ?? null, type });
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
  const { ModelProto } = onnxProto.onnx;
  const model = ModelProto.decode(graphBytes(tinyGraph({ side: 64 })));
  const tensor = at(model.graph!.initializer!, 0);
  const raw = Buffer.from(tensor.rawData!);
  const numbers = Array.from({ length: raw.length / 4 }, (_, at) => raw.readFloatLE(at * 4));
  tensor.rawData = null;
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
