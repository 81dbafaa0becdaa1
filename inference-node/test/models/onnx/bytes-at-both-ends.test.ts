/** The graph's own conversion of bytes against that beside it, to the byte, in ONNX Runtime. */
import assert from 'node:assert/strict';
import test from 'ava';
import { EngineSession } from '../../../src/engine/child/engine-session.ts';
import { createPlaneTables, fillAlpha, fillPlanes } from '../../../src/engine/child/graph-ends.ts';
import { InferenceSession, Tensor } from '../../../src/engine/child/onnx-runtime.ts';
import { PROBE_SPEC } from '../../../src/engine/choice/probe-graph.ts';
import { loadManifest } from '../../../src/models/manifest.ts';
import { ElementType, type Graph, nodeOf } from '../../../src/models/onnx/graph.ts';
import {
  bytesAtBothEnds,
  type PixelFormat,
} from '../../../src/models/onnx/passes/bytes-at-both-ends.ts';
import { keepOutput } from '../../../src/models/onnx/passes/remove-unused.ts';
import { resizeInHalf } from '../../../src/models/onnx/passes/resize-in-half.ts';
import type { ImageSize } from '../../../src/models/onnx/passes/set-input-size.ts';
import { float32Tensor } from '../../../src/models/onnx/tensor.ts';
import { RGB_INPUT } from '../../../src/models/prepared-model.ts';
import { drawCheckPicture } from '../../../src/models/preparing/check-picture.ts';
import { graphBytes, largestDifference, runGraph, tinyGraph } from './tiny-graph.ts';

const SIDE = 16;
/** Between numbers near 1 of half precision. */
const HALF_STEP = 2 ** -11;
const FORMAT: PixelFormat = {
  normalisation: { mean: [128, 128, 128], std: [256, 256, 256] },
  colourOrder: 'rgb',
  activation: 'none',
};

function value(name: string, channels: number, width: number, height: number) {
  return { name, elementType: ElementType.float32, dims: [1, channels, height, width] };
}

/** Answers with these numbers, whatever it is given. */
function answering(matte: readonly number[], width: number, height: number): Graph {
  const zero = float32Tensor([0], []);
  const nodes = [
    // The sum is kept as one number, so that the input is used.
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

/** The answer of a session on this graph, for the picture. */
async function alphaOf(graph: Graph, format: PixelFormat, rgb: Uint8Array, size: ImageSize) {
  const { session } = await EngineSession.load(
    {
      ...PROBE_SPEC,
      ...format,
      provider: 'cpu',
      allowCpuNodes: true,
      inputWidth: size.width,
      inputHeight: size.height,
    },
    graphBytes(graph),
  );
  const [alpha = []] = await session.run([rgb]);
  return Uint8Array.from(alpha);
}

/** The float32 next to a number, so many steps away. */
function stepped(number: number, steps: number): number {
  const float = Float32Array.of(number);
  const bits = new Int32Array(float.buffer);
  bits[0] = (bits[0] ?? 0) + steps;
  return float[0] ?? Number.NaN;
}

test('each byte becomes the same float as beside the graph', async t => {
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
      const session = await InferenceSession.create(graphBytes(inner));
      const feeds = { [RGB_INPUT]: new Tensor('uint8', rgb, [1, side, side, 3]) };
      const { input } = await session.run(feeds);
      const planes = new Float32Array(rgb.length);
      fillPlanes(rgb, planes, createPlaneTables(normalisation, colourOrder));
      t.deepEqual(input?.data, planes);
      await session.release();
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
  const size = { width: numbers.length, height: 1 };
  const expected = new Uint8ClampedArray(numbers.length);
  t.truthy(fillAlpha(Float32Array.from(numbers), expected, 'none'));
  const graph = bytesAtBothEnds(FORMAT, size)(answering(numbers, size.width, size.height));
  const rgb = new Uint8Array(3 * numbers.length).fill(100);
  t.deepEqual(await alphaOf(graph, FORMAT, rgb, size), new Uint8Array(expected));
});

test('a matte that is not all numbers is refused', async t => {
  const size = { width: 4, height: 2 };
  const rgb = new Uint8Array(24);
  for (const activation of ['none', 'sigmoid'] as const) {
    const format = { ...FORMAT, activation };
    const graph = answering([0, 1, 0, 1, Number.NaN, 0, 1, 0], 4, 2);
    await t.throwsAsync(alphaOf(bytesAtBothEnds(format, size)(graph), format, rgb, size), {
      message: /values that are not numbers/,
    });
  }
});

test('what is no matte yet is made one', async t => {
  const numbers = Array.from({ length: 64 }, (_, index) => (index - 32) / 4);
  const format: PixelFormat = { ...FORMAT, activation: 'sigmoid' };
  const size = { width: 64, height: 1 };
  const expected = new Uint8ClampedArray(64);
  t.truthy(fillAlpha(Float32Array.from(numbers), expected, 'sigmoid'));
  const graph = bytesAtBothEnds(format, size)(answering(numbers, 64, 1));
  const alpha = await alphaOf(graph, format, new Uint8Array(192), size);
  t.deepEqual(alpha, new Uint8Array(expected));
});

test('a whole graph answers the same bytes from bytes as from floats', async t => {
  const size = { width: SIDE, height: SIDE };
  const rgb = drawCheckPicture(SIDE, SIDE);
  for (const half of [false, true]) {
    const graph = keepOutput('output')(tinyGraph({ side: SIDE, half }));
    const named = { ...FORMAT, inputName: 'input', outputName: 'output' };
    const floats = await alphaOf(graph, named, rgb, size);
    const bytes = await alphaOf(bytesAtBothEnds(FORMAT, size)(graph), FORMAT, rgb, size);
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
  // Without half precision of its own, ONNX Runtime rounds where a cast tells it to.
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
