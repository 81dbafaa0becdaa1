import {
  ElementType,
  float32Tensor,
  type Graph,
  integer,
  integers,
  nodeOf,
  text,
} from '@matting/serving/onnx/graph.ts';
import { Random } from '@matting/test-support/random.ts';
import test from 'ava';
import { graphBytes, largestDifference, runGraph } from '../test/tiny-graph.ts';
import { transposeToOneChannel } from './one-channel.ts';

const SIDE = 11;
type Attributes = Parameters<typeof nodeOf>[3];

function convolution(
  dims: readonly number[],
  attributes: Attributes,
  more: readonly string[] = [],
): Graph {
  const random = new Random(dims.length);
  const count = dims.reduce((product, dim) => product * dim, 1);
  const weights = Array.from({ length: count }, () => random.below(256) / 128 - 1);
  const value = (name: string, channels: number | null) => {
    return { name, elementType: ElementType.float32, dims: [1, channels, null, null] };
  };
  return {
    irVersion: 8,
    opsets: [{ domain: '', version: 13 }],
    nodes: [nodeOf('Conv', ['input', 'weights', ...more], 'output', attributes)],
    initialisers: new Map([
      ['weights', float32Tensor(weights, dims)],
      ['bias', float32Tensor([0.25], [1])],
    ]),
    inputs: [{ ...value('input', 3), dims: [1, 3, SIDE, SIDE] }],
    outputs: [value('output', null)],
  };
}

const kinds = (graph: Graph) => graph.nodes.map(({ opType }) => opType);

test('a convolution to one channel answers the same as a transposed one', async t => {
  const ones = integers('strides', [1, 1]);
  for (const [dims, attributes, more] of [
    [[1, 3, 3, 3], [integers('pads', [1, 1, 1, 1]), ones], ['bias']],
    [[1, 3, 3, 3], [integers('dilations', [1, 1]), integer('group', 1)], []],
    [[1, 3, 5, 2], [integers('pads', [0, 1, 4, 0])], ['bias']],
    [[1, 3, 1, 4], [text('auto_pad', 'NOTSET')], []],
  ] as const) {
    const graph = convolution(dims, attributes, more);
    const found = transposeToOneChannel(graph);
    t.deepEqual(kinds(found), ['ConvTranspose']);
    t.false(found.initialisers.has('weights'));
    const answers = await Promise.all([graph, found].map(one => runGraph(graphBytes(one), SIDE)));
    const [wanted = new Float32Array(), answer = new Float32Array()] = answers;
    t.true(wanted.length > 0 && Math.max(...wanted) - Math.min(...wanted) > 0.5);
    t.true(largestDifference(wanted, answer) < 1e-5, dims.join('x'));
  }
});

test('other convolutions stay as they are', t => {
  for (const [dims, attributes] of [
    [[2, 3, 3, 3], []],
    [[1, 3, 1, 1], []],
    [[1, 3, 3], []],
    [[1, 3, 3, 3], [integers('strides', [2, 1])]],
    [[1, 3, 3, 3], [integers('dilations', [1, 2])]],
    [[1, 1, 3, 3], [integer('group', 3)]],
    [[1, 3, 3, 3], [integers('pads', [1, 1, 3, 1])]],
    [[1, 3, 3, 3], [text('auto_pad', 'SAME_UPPER')]],
  ] as const) {
    t.deepEqual(kinds(transposeToOneChannel(convolution(dims, attributes))), ['Conv']);
  }
  const graph = convolution([1, 3, 3, 3], []);
  const bytes = { elementType: ElementType.int8, dims: [1, 3, 3, 3], data: new Uint8Array(27) };
  const narrow = { ...graph, initialisers: new Map([['weights', bytes]]) };
  t.deepEqual(kinds(transposeToOneChannel(narrow)), ['Conv']);
});
