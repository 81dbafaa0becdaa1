import test from 'ava';
import { at } from '../../../../test/support/at.ts';
import { throwsWith } from '../../../../test/support/throws.ts';
import type { Graph, GraphNode } from '../../../src/models/onnx/graph.ts';
import {
  type Quantisation,
  quantise,
  scaleOfRange,
} from '../../../src/models/onnx/passes/quantise.ts';
import { OPSET_OF_INT8, raiseOpset } from '../../../src/models/onnx/passes/raise-opset.ts';
import { planQuantisation } from '../../../src/models/onnx/quantisation-plan.ts';
import { float32Tensor, tensorNumbers } from '../../../src/models/onnx/tensor.ts';
import {
  carriesInt8,
  detectInstructionSet,
} from '../../../src/models/preparing/instruction-set.ts';
import { isModelError } from '../is-model-error.ts';
import {
  graphBytes,
  largestDifference,
  measureRanges,
  prepareTinyGraph,
  runGraph,
  tinyGraph,
} from './tiny-graph.ts';

const SIDE = 64;
/** On other CPUs sums of products saturate, which is why nodes there run fp32. */
const lacksInt8 = !carriesInt8(await detectInstructionSet());
if (lacksInt8) console.error('skipped: this CPU has no instruction for products of bytes');
/** Scale of the pictures of runGraph, which lie in [-1, 1]. */
const INPUT = { scale: 1 / 127, zeroPoint: 128 };

function float32(options: { readonly half?: boolean } = {}): Graph {
  return prepareTinyGraph(tinyGraph({ side: SIDE, ...options }));
}

async function quantisationOf(graph: Graph, more: Partial<Quantisation> = {}) {
  const { measured } = planQuantisation(graph, { inputIsExact: true });
  const ranges = await measureRanges(graph, measured, SIDE);
  return { ranges, float32: new Set<string>(), input: INPUT, ...more };
}

const isPrepareError = (pattern: RegExp) => isModelError('prepare', pattern);

function convolutions(graph: Graph): readonly GraphNode[] {
  return graph.nodes.filter(({ opType }) => opType === 'Conv');
}

test('a value without a range is refused', async t => {
  const graph = float32();
  const quantisation = await quantisationOf(graph);
  const [, ...ranges] = quantisation.ranges;
  throwsWith(
    t,
    () => quantise(graph, { ...quantisation, ranges: new Map(ranges) }),
    isPrepareError(/the ranges do not have/),
  );
});

test('an opset without scales per channel is refused', async t => {
  const graph = float32();
  const old = { ...graph, opsets: [{ domain: '', version: 11 }] };
  const quantisation = await quantisationOf(graph);
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
  // In the older opset the axes are not a value of the graph but a part of the node.
  const axes = { name: 'axes', type: 7, ints: [0] };
  const nodes = graph.nodes.map(node =>
    node.opType === 'Unsqueeze'
      ? { ...node, inputs: node.inputs.slice(0, 1), attributes: [axes] }
      : node,
  );
  const known = new Set(nodes.map(({ opType }) => opType));
  t.true(known.has('Unsqueeze'));
  // Other operators of shape arithmetic are the same in both, but not on the list of operators.
  const carried = nodes.filter(({ opType }) => opType !== 'Constant' && opType !== 'Cast');
  const old = { ...graph, nodes: carried, opsets: [{ domain: '', version: 11 }] };
  const raised = raiseOpset(old, OPSET_OF_INT8);
  for (const node of raised.nodes.filter(({ opType }) => opType === 'Unsqueeze')) {
    t.deepEqual(node.attributes, []);
    const tensor = raised.initialisers.get(at(node.inputs, 1));
    t.deepEqual(tensor && tensorNumbers(tensor), [0]);
  }
});

test.skipIf(lacksInt8)(
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

test('only the convolution that makes logits keeps its weights', async t => {
  const graph = float32();
  const quantised = quantise(graph, await quantisationOf(graph));
  const kept = convolutions(quantised).filter(({ inputs }) =>
    graph.initialisers.has(at(inputs, 1)),
  );
  t.is(convolutions(quantised).length, 3);
  t.deepEqual(
    kept.map(({ outputs }) => outputs),
    [graph.nodes.find(({ opType }) => opType === 'Sigmoid')?.inputs],
  );
  // The matte itself never goes through bytes.
  const maker = quantised.nodes.find(({ outputs }) => outputs[0] === 'output');
  t.not(maker?.opType, 'DequantizeLinear');
});

test('a convolution that the ranges name stays float32', async t => {
  const graph = float32();
  const first = at(convolutions(graph), 0);
  const quantisation = await quantisationOf(graph, { float32: new Set(first.outputs) });
  const kept = convolutions(quantise(graph, quantisation)).filter(({ inputs }) =>
    graph.initialisers.has(at(inputs, 1)),
  );
  t.deepEqual(
    kept.map(({ outputs }) => outputs[0]),
    [first.outputs[0], at(convolutions(graph), 2).outputs[0]],
  );
});

test('a value that only a float32 convolution reads stays float32, one that others read does not', t => {
  const graph = float32();
  const deep = at(convolutions(graph), 1);
  const plan = (names: readonly string[]) =>
    planQuantisation(graph, { inputIsExact: true, float32: new Set(names) });
  const pooled = at(deep.inputs, 0);
  t.true(plan([]).sharing.has(pooled));
  t.false(plan(deep.outputs).sharing.has(pooled));
  // What was pooled is read by the Concat as well.
  t.deepEqual(plan(deep.outputs).measured, plan([]).measured);
});

test.skipIf(lacksInt8)(
  'where the picture is not in whole steps, the first convolution stays float32',
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

test.skipIf(lacksInt8)('a bias beside weights near zero does not overflow', async t => {
  const graph = float32();
  const first = at(convolutions(graph), 0);
  const [, weightsName = '', biasName = ''] = first.inputs;
  const weights = graph.initialisers.get(weightsName)!;
  const values = Array.from(new Float32Array(new Uint8Array(weights.data).buffer));
  const each = values.length / at(weights.dims, 0);
  // A folded batch normalisation leaves this of a channel that it shut off.
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
