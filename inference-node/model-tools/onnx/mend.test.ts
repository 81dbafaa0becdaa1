/** Deformable convolutions as gathers, and graphs that only look like them. */
import {
  decodeModel,
  ElementType,
  float32Tensor,
  type Graph,
  type GraphNode,
  int64Tensor,
  integer,
  integers,
  nodeOf,
  type Tensor,
  tensorNumbers,
  text,
} from '@matting/serving/onnx/graph.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { runOnNoise, type StockOptions, stockDeformable } from '../test/stock-deformable.ts';
import { largestDifference } from '../test/tiny-graph.ts';
import { compareBlocks, DIFFERENCES_OUTPUT } from './compare-blocks.ts';
import { mendDeformableConvolutions } from './mend.ts';

type Change = (graph: Graph) => Graph;

const changed =
  (output: string, change: (node: GraphNode) => Partial<GraphNode>): Change =>
  graph => ({
    ...graph,
    nodes: graph.nodes.map(node =>
      node.outputs[0] === output ? { ...node, ...change(node) } : node,
    ),
  });

const stored =
  (name: string, change: (tensor: Tensor) => Tensor): Change =>
  graph => ({
    ...graph,
    initialisers: new Map(
      [...graph.initialisers].map(([key, tensor]) => [key, key === name ? change(tensor) : tensor]),
    ),
  });

const numbers = (name: string, values: readonly number[]): Change =>
  stored(name, ({ elementType, dims }) =>
    elementType === ElementType.int64 ? int64Tensor(values, dims) : float32Tensor(values, dims),
  );

const set = (output: string, ...attributes: GraphNode['attributes']) =>
  changed(output, node => ({
    attributes: [
      ...node.attributes.filter(({ name }) => !attributes.some(other => other.name === name)),
      ...attributes,
    ],
  }));

const reads = (output: string, ...inputs: readonly string[]) => changed(output, () => ({ inputs }));

const leaves =
  (name: string): Change =>
  graph => ({
    ...graph,
    outputs: [...graph.outputs, { name, elementType: ElementType.float32, dims: [] }],
  });

const readTwice: Change = graph => ({
  ...leaves('also')(graph),
  nodes: [...graph.nodes, nodeOf('ReduceMax', ['sum'], 'also')],
});

/** Half a pixel at one point of one tap. */
const unevenBase = stored('base', tensor => {
  const values = [...(tensorNumbers(tensor) ?? [])];
  return float32Tensor(values.with(200, (values[200] ?? 0) + 0.5), tensor.dims);
});

const NEAR_MISSES: readonly (readonly [cause: RegExp, change: Change])[] = [
  [/a Sum of four/, reads('sum', 'tl.term', 'br.term', 'bl.term')],
  [/four corners once/, reads('sum', 'tl.term', 'br.term', 'bl.term', 'bl.term')],
  [/the weight of its corner/, reads('tl.term', 'br.weight', 'tl.value')],
  [/the weight of its corner/, reads('tl.product', 'l.d', 'b.d')],
  [/a weight of y and x/, reads('tl.product', 'l.d', 'r.d')],
  [/1 - d/, numbers('t.1', [2])],
  [/Sub makes/, reads('b.d', 'floor', 'b.d.0', 'b.d.1', 'b.d.2')],
  [/d = p - floor/, reads('d', 'offset.taps', 'floor')],
  [/same ends/, numbers('t.end', [9])],
  [/ends at the border/, graph => ['t', 'b'].reduce((g, y) => numbers(`${y}.end`, [9])(g), graph)],
  [/a clip from 0/, numbers('r.from', [1])],
  [/the next pixel/, numbers('b.one', [2])],
  [/y, then x/, reads('tl.indices', 'tl.l', 'tl.t')],
  [/indices of y and x/, set('tl.indices', integer('axis', 2))],
  [/a slice along axis 3/, numbers('l.whole.2', [2])],
  [/a slice of y or x/, numbers('l.whole.1', [3])],
  [/a cast to int64/, set('whole', integer('to', ElementType.int32))],
  [/Floor makes/, changed('floor', () => ({ opType: 'Ceil' }))],
  [/Floor makes/, changed('floor', () => ({ domain: 'com.example' }))],
  [/batch_dims 2/, set('tr.gathered', integer('batch_dims', 1))],
  [/a Transpose by 01342/, set('tr.five', integers('perm', [0, 1, 4, 3, 2]))],
  [/a Transpose by 0132/, set('tr.turned', integers('perm', [0, 1, 2, 3]))],
  [/a Transpose by 014253/, set('turned', integers('perm', [0, 1, 2, 4, 3, 5]))],
  [/a border of 0/, changed('padded', ({ inputs }) => ({ inputs: [...inputs, 't.1'] }))],
  [/a border of a constant/, set('padded', text('mode', 'reflect'))],
  [/a border of a constant/, set('padded', text('mode', 'edge'))],
  [/a border of at least 1/, numbers('pads', [0, 0, 1, 0, 0, 0, 1, 2])],
  [/even padding/, numbers('pads', [0, 0, 2, 1, 0, 0, 1, 1])],
  [/pads of height and width/, numbers('pads', [0, 1, 1, 1, 0, 0, 1, 1])],
  [/a base grid of taps/, unevenBase],
  [/a constant base grid/, reads('p', 'offset.taps', 'offset.taps')],
  [/rows of outputs/, stored('base', tensor => doubledRows(tensor))],
  [/offset\.taps of the shape/, numbers('offset.taps.shape', [1, 1, 2, 9, 9, 7])],
  [/mask\.taps of the shape/, numbers('mask.taps.shape', [1, 9, 1, 1, 9, 7])],
  [/kh \* kw taps/, numbers('by-taps.shape', [1, 4, 9, 3, 9, 7])],
  [/strides are its kernel/, set('conv', integers('strides', [1, 1]))],
  [/without dilation/, set('conv', integers('dilations', [2, 2]))],
  [/without pads/, set('conv', integers('pads', [1, 1, 1, 1]))],
  [/weights \[4,2,3,3\]/, set('conv', integer('group', 2))],
  [/one reader of sum/, readTwice],
  [/one reader of laid-out/, leaves('laid-out')],
];

/** As for a stride of 2. */
function doubledRows(tensor: Tensor): Tensor {
  const values = tensorNumbers(tensor) ?? [];
  const [, , , , h = 1, w = 1] = tensor.dims;
  const doubled = values.map((value, at) =>
    Math.floor(at / (h * w)) % 2 === 0 ? value + (Math.floor(at / w) % h) : value,
  );
  return float32Tensor(doubled, tensor.dims);
}

test('a block that differs in anything stays as it is, with its cause', t => {
  t.is(mendDeformableConvolutions(stockDeformable()).blocks.length, 1);
  for (const [cause, change] of NEAR_MISSES) {
    const graph = change(stockDeformable());
    const mended = mendDeformableConvolutions(graph);
    t.is(mended.graph, graph, `${cause}`);
    t.is(mended.refused[0]?.sum, 'sum');
    t.regex(mended.refused[0]?.cause ?? '', cause);
  }
});

const STOCK: readonly StockOptions[] = [
  {},
  { kernel: 1 },
  { kernel: 7, height: 12, width: 16 },
  { stride: 2, height: 12 },
  { dilation: 2 },
  { mask: false, bias: true },
  { patch: true, opset: 19 },
  { pictures: 2, offsetGroups: 2, bias: true },
  { pictures: 2, offsetGroups: 2, group: 2, kernel: 1, stride: 2 },
  { offsetGroups: 4, group: 4, mask: false },
];

/** The largest value is 20, over sums of 200 products. */
const ROUNDING = 1e-4;

test('a mended graph answers as its stock form, also from beyond the border', async t => {
  for (const options of STOCK) {
    const graph = stockDeformable(options);
    const expected = await runOnNoise(graph);
    const mended = mendDeformableConvolutions(graph);
    t.is(mended.blocks.length, 1, JSON.stringify(options));
    t.false(mended.graph.nodes.some(({ opType }) => opType === 'GatherND'));
    t.deepEqual(
      [mended.graph.inputs, mended.graph.outputs],
      [graph.inputs, graph.outputs],
      'ends are as they were',
    );
    const difference = largestDifference(await runOnNoise(mended.graph), expected);
    t.true(difference < ROUNDING, `${JSON.stringify(options)}: ${difference}`);
  }
});

function withoutOffsets(graph: Graph): Graph {
  const made = graph.nodes.findIndex(({ outputs }) => outputs[0] === 'offset');
  const nodes: GraphNode[] = graph.nodes.map(node => ({
    ...node,
    inputs: node.inputs.map(name => (name === 'offset' ? 'still' : name)),
  }));
  return { ...graph, nodes: nodes.toSpliced(made + 1, 0, STILL) };
}

const STILL = nodeOf('Sub', ['offset', 'offset'], 'still');

test('a comparison tells the mended block whose offsets are gone from the right one', async t => {
  const graph = stockDeformable({ pictures: 2, offsetGroups: 2, height: 20 });
  const mended = mendDeformableConvolutions(graph);
  const wrong = { ...mended, graph: withoutOffsets(mended.graph) };
  const [far = 0] = await runOnNoise(compareBlocks(graph, wrong), DIFFERENCES_OUTPUT);
  t.true(far > 1000, `${far}`);
  const [near = 1] = await runOnNoise(compareBlocks(graph, mended), DIFFERENCES_OUTPUT);
  t.true(near < 0.1, `${near}`);
});

test('an opset that cannot be raised is refused, with what forbids it', t => {
  const refused = (graph: Graph, pattern: RegExp) =>
    throwsWith(t, () => mendDeformableConvolutions(graph), isModelError('prepare', pattern));
  refused(stockDeformable({ opset: 16 }), /opset 16 cannot be raised to 19: it is older than 17/);
  const odd = { ...nodeOf('GroupNormalization', ['output'], 'x') };
  const graph = stockDeformable();
  refused({ ...graph, nodes: [...graph.nodes, odd] }, /it has a GroupNormalization/);
});

test('operators that changed until opset 19 are raised with it', async t => {
  const graph = stockDeformable();
  const after = [
    nodeOf('ReduceMean', ['output'], 'mean', [integers('axes', [2, 3]), integer('keepdims', 1)]),
    {
      ...nodeOf('Split', ['mean'], 'low', [integer('axis', 1)]),
      outputs: ['low', 'high'] as const,
    },
    nodeOf('Sub', ['high', 'low'], 'ends'),
  ];
  const outputs = [{ name: 'ends', elementType: ElementType.float32, dims: [1, 2, 1, 1] }];
  const longer = { ...graph, nodes: [...graph.nodes, ...after], outputs };
  const mended = mendDeformableConvolutions(longer).graph;
  t.is(mended.opsets[0]?.version, 19);
  const difference = largestDifference(
    await runOnNoise(mended, 'ends'),
    await runOnNoise(longer, 'ends'),
  );
  t.true(difference < ROUNDING, `${difference}`);
});

test('a file of a million nodes is refused before they are read', t => {
  // Field 7 of the model is the graph, its field 1 an empty node.
  const nodes = Buffer.alloc(2_000_000, Buffer.of((1 << 3) | 2, 0));
  const graph = Buffer.concat([Buffer.of((7 << 3) | 2, 0x80, 0x89, 0x7a), nodes]);
  const pattern = /long\.onnx has 1000000 nodes/;
  throwsWith(t, () => decodeModel(graph, 'long.onnx'), isModelError('prepare', pattern));
});
