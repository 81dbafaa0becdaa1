/** Which graphs take several pictures at once; prepare.test.ts runs them. */
import test, { type ExecutionContext } from 'ava';
import { at } from '../../../../test/support/at.ts';
import {
  ElementType,
  type Graph,
  type GraphNode,
  integer,
  integers,
  nodeOf,
} from '../../../src/models/onnx/graph.ts';
import { setBatch } from '../../../src/models/onnx/passes/set-batch.ts';
import { int64Tensor } from '../../../src/models/onnx/tensor.ts';

const SIDE = 8;

/** From `input`, one picture of three channels, to `output`. */
function graph(nodes: readonly GraphNode[], constants: Record<string, number[]> = {}): Graph {
  const value = (name: string, channels: number) => ({
    name,
    elementType: ElementType.float32,
    dims: [1, channels, SIDE, SIDE],
  });
  const tensors = Object.entries(constants).map(
    ([name, values]) => [name, int64Tensor(values, [values.length])] as const,
  );
  return {
    irVersion: 8,
    opsets: [{ domain: '', version: 13 }],
    nodes,
    initialisers: new Map(tensors),
    inputs: [value('input', 3)],
    outputs: [value('output', 3)],
  };
}

function refused(
  t: ExecutionContext,
  nodes: readonly GraphNode[],
  constants?: Record<string, number[]>,
): void {
  const { name, opType } = at(nodes, nodes.length - 1);
  const message = `the graph cannot take 4 pictures at once: ${name} (${opType}) may mix them`;
  t.throws(() => setBatch(graph(nodes, constants), 4), { name: 'ModelError', message });
}

test('inputs, outputs and the targets of Resize have the number; the graph is not changed', t => {
  const source = graph([nodeOf('Resize', ['input', '', '', 'sizes'], 'output')], {
    sizes: [1, 3, SIDE, SIDE],
  });
  const batched = setBatch(source, 4);
  t.deepEqual(batched.inputs[0]?.dims, [4, 3, SIDE, SIDE]);
  t.deepEqual(batched.outputs[0]?.dims, [4, 3, SIDE, SIDE]);
  t.deepEqual(batched.initialisers.get('sizes'), int64Tensor([4, 3, SIDE, SIDE], [4]));
  t.deepEqual(source.initialisers.get('sizes'), int64Tensor([1, 3, SIDE, SIDE], [4]));
});

test('shapes that follow what there is follow the number of pictures', t => {
  const batched = setBatch(
    graph([nodeOf('Shape', ['input'], 'shape'), nodeOf('Reshape', ['input', 'shape'], 'output')]),
    8,
  );
  t.is(batched.nodes.length, 2);
});

test('what may mix pictures is refused by its name', t => {
  // Scales of all pictures together: one would change the other's matte.
  refused(t, [nodeOf('DynamicQuantizeLinear', ['input'], 'output')]);
  refused(t, [nodeOf('Softmax', ['input'], 'output', [integer('axis', 0)])]);
  refused(t, [nodeOf('ReduceMean', ['input'], 'output')]);
  refused(t, [nodeOf('Concat', ['input', 'input'], 'output', [integer('axis', 0)])]);
  refused(t, [nodeOf('Transpose', ['input'], 'output', [integers('perm', [1, 0, 2, 3])])]);
  refused(t, [{ ...nodeOf('Relu', ['input'], 'output'), domain: 'com.example' }]);
  const bounds = { starts: [0], ends: [1], first: [0], channels: [1] };
  refused(t, [nodeOf('Slice', ['input', 'starts', 'ends', 'first'], 'output')], bounds);
  refused(t, [nodeOf('Slice', ['input', 'starts', 'ends'], 'output')], bounds);
  t.truthy(
    setBatch(
      graph([nodeOf('Slice', ['input', 'starts', 'ends', 'channels'], 'output')], bounds),
      4,
    ),
  );
});

test('axes that are counted from the end are those that they are from the start', t => {
  const concat = (axis: number) => nodeOf('Concat', ['input'], 'output', [integer('axis', axis)]);
  const gather = (axis: number) =>
    nodeOf('Gather', ['input', 'order'], 'output', [integer('axis', axis)]);
  const slice = (axes: string) => nodeOf('Slice', ['input', 'starts', 'ends', axes], 'output');
  const constants = { starts: [0], ends: [1], order: [2, 1, 0], first: [-4], second: [-3] };
  for (const first of [concat(-4), gather(-4), slice('first')]) refused(t, [first], constants);
  for (const later of [concat(-3), concat(-1), gather(-3), slice('second')]) {
    t.truthy(setBatch(graph([later], constants), 4));
  }
  // Of how many axes nothing is known.
  const unknown = nodeOf('Round', ['input'], 'unknown');
  const ofUnknown = (last: GraphNode) => {
    const inputs = last.inputs.map(name => (name === 'input' ? 'unknown' : name));
    return [unknown, { ...last, inputs }];
  };
  for (const later of [concat(-1), gather(-3), slice('second')]) {
    refused(t, ofUnknown(later), constants);
  }
  t.truthy(setBatch(graph(ofUnknown(concat(1)), constants), 4));
});

test('a target of Resize that does not name every axis in its place is refused, and is not changed', t => {
  const resize = (...attributes: GraphNode['attributes']) => [
    nodeOf('Resize', ['input', '', '', 'sizes'], 'output', attributes),
  ];
  refused(t, resize(integers('axes', [2, 3])), { sizes: [SIDE, SIDE] });
  refused(t, resize(integers('axes', [3, 2, 1, 0])), { sizes: [SIDE, SIDE, 3, 1] });
  refused(t, resize(), { sizes: [SIDE, SIDE] });
});

test('a shape for one picture in the graph is refused, one that copies the number is not', t => {
  const reshape = [nodeOf('Reshape', ['input', 'shape'], 'output')];
  refused(t, reshape, { shape: [1, 3, SIDE, SIDE] });
  refused(t, reshape, { shape: [-1, 3, SIDE, SIDE] });
  t.truthy(setBatch(graph(reshape, { shape: [0, 3, SIDE, SIDE] }), 4));
});
