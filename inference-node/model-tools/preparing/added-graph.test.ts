import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { ModelManifest } from '@matting/serving/models/manifest.ts';
import {
  decodeModel,
  float32Tensor,
  type Graph,
  int64Tensor,
  integer,
  nodeOf,
} from '@matting/serving/onnx/graph.ts';
import type { PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';
import { preparedDirectory } from '@matting/serving/prepared/prepared-cache.ts';
import { weightsPath } from '@matting/serving/prepared/weights-cache.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { TINY_LICENCE } from '@matting/test-support/tiny-model.ts';
import test, { type ExecutionContext } from 'ava';
import { sha256 } from '../test/fake-registry.ts';
import { type StockOptions, stockDeformable } from '../test/stock-deformable.ts';
import { graphBytes } from '../test/tiny-graph.ts';
import { type PrepareOptions, prepareModel } from './prepare.ts';

const NO_ENGINE = {
  machine: 'a test',
  answer: () => Promise.reject(new Error('no engine here')),
};

type Step = PrepareProgress['step'];

async function openModel(t: ExecutionContext, graph: Graph) {
  const cacheDir = await temporaryFolder(t);
  const bytes = graphBytes(graph);
  const [, , height = 0, width = 0] = graph.inputs[0]?.dims.map(Number) ?? [];
  const file = { name: 'stock.onnx', bytes: bytes.length, sha256: sha256(bytes) };
  const sides = { min: Math.min(width, height), max: Math.max(width, height) };
  const manifest: ModelManifest = {
    ...{ name: 'stock', version: '1.0.0', description: 'A test’s.', source: { type: 'file' } },
    files: [file],
    graph: {
      ...{ file: file.name, precision: 'fp32', inputName: 'input', outputName: 'output' },
      ...{ inputWidth: width, inputHeight: height, dynamic: false },
    },
    precisions: ['fp32'],
    inputSize: { default: sides.min, listed: [sides.min], multipleOf: 1, ...sides },
    ...{ normalisation: { mean: [128, 128, 128], std: [64, 64, 64] }, colourOrder: 'rgb' },
    ...{ activation: 'sigmoid', licence: TINY_LICENCE },
  };
  const path = weightsPath(cacheDir, manifest, file);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, bytes);
  const steps: PrepareProgress[] = [];
  return {
    ...{ cacheDir, manifest, path, steps },
    files: () => readdir(preparedDirectory(cacheDir, manifest)),
    prepare: (more: Partial<PrepareOptions> = {}) =>
      prepareModel({
        ...{ manifest, cacheDir, provider: 'cpu', instructionSet: 'x64-test' },
        answering: NO_ENGINE,
        onProgress: progress => steps.push(progress),
        ...more,
      }),
    took: (step: Step) => steps.some(progress => progress.step === step),
  };
}

const reasonOf = (steps: readonly PrepareProgress[], wanted: Step) =>
  steps.map(step => (step.step === wanted && 'reason' in step ? step.reason : '')).join('');

const MATTE: StockOptions = { outputs: 1, height: 20, width: 24 };

/** Rounding becomes another matte. */
function magnified(): Graph {
  const graph = stockDeformable(MATTE);
  return {
    ...graph,
    nodes: [
      ...graph.nodes.map(node =>
        node.outputs[0] === 'output'
          ? { ...node, name: 'small', outputs: ['small'] as const }
          : node,
      ),
      nodeOf('Mul', ['small', 'large'], 'scaled'),
      nodeOf('Sin', ['scaled'], 'output'),
    ],
    initialisers: new Map([...graph.initialisers, ['large', float32Tensor([1e9], [])]]),
  };
}

/** Offsets of half the channels and twice the rows, which only Reshape makes fit. */
function folded(): Graph {
  const graph = stockDeformable(MATTE);
  const nodes = graph.nodes.map(node =>
    node.outputs[0] === 'offset.taps'
      ? { ...node, inputs: ['folded', ...node.inputs.slice(1)] }
      : node,
  );
  const made = nodes.findIndex(({ outputs }) => outputs[0] === 'offset');
  return {
    ...graph,
    nodes: nodes.toSpliced(made + 1, 0, nodeOf('Reshape', ['offset', 'fold'], 'folded')),
    initialisers: new Map([...graph.initialisers, ['fold', int64Tensor([1, 9, 40, 24], [4])]]),
  };
}

/** Two channels cancel each other and leave rounding, in which the forms differ. */
function cancelled(): Graph {
  const graph = stockDeformable({ ...MATTE, channels: 2, kernel: 1 });
  const nodes = graph.nodes.map(node =>
    node.outputs[0] === 'padded' ? { ...node, inputs: ['planes', 'pads'] } : node,
  );
  const at = nodes.findIndex(({ outputs }) => outputs[0] === 'padded');
  const planes = [
    nodeOf('Gather', ['picture', 'first'], 'one', [integer('axis', 1)]),
    nodeOf('Mul', ['one', 'thirds'], 'planes'),
  ];
  const initialisers = new Map(graph.initialisers)
    .set('first', int64Tensor([0], [1]))
    .set('thirds', float32Tensor([1, 1 / 3], [1, 2, 1, 1]))
    .set('weights', float32Tensor([1, -3], [1, 2, 1, 1]));
  return { ...graph, nodes: nodes.toSpliced(at, 0, ...planes), initialisers };
}

test('a graph whose mended form answers otherwise, or cannot be compared, runs as it is', async t => {
  for (const [graph, reason] of [
    [magnified(), /matte differs by \d+ levels/],
    [folded(), /could not be compared: .*offset/i],
    [cancelled(), /^1 of 1 parts .* answer otherwise$/],
  ] as const) {
    const model = await openModel(t, graph);
    const prepared = await model.prepare();
    t.regex(reasonOf(model.steps, 'keep'), reason);
    t.is(prepared.path, model.path);
    t.is((await model.files()).filter(name => !name.endsWith('.json')).length, 0);
    model.steps.splice(0);
    t.deepEqual(await model.prepare(), prepared);
    t.false(model.took('rewrite'), 'it is not tried again');
  }
});

test('a mended graph is used once it answers as its stock form', async t => {
  const model = await openModel(t, stockDeformable(MATTE));
  for (const provider of ['cpu', 'cuda'] as const) {
    model.steps.splice(0);
    const prepared = await model.prepare({ provider });
    t.is(dirname(prepared.path), preparedDirectory(model.cacheDir, model.manifest));
    t.is(reasonOf(model.steps, 'keep'), '');
    t.is(reasonOf(model.steps, 'mended'), '', 'its matte was compared too');
    const { nodes } = decodeModel(await readFile(prepared.path), prepared.path);
    t.true(nodes.some(({ opType }) => opType === 'DeformConv'));
    t.like(prepared, { provider, activation: 'sigmoid', outputName: 'output' });
    model.steps.splice(0);
    t.deepEqual(await model.prepare({ provider }), prepared);
    t.false(model.took('rewrite'));
  }
  const files = (await model.files()).filter(name => name.startsWith('.'));
  t.deepEqual(files, [], 'nothing is left of the comparison');
});

test('only the blocks are compared if the stock form needs more memory than it gets', async t => {
  const graph = stockDeformable({ outputs: 1, channels: 64, height: 256, width: 256 });
  const model = await openModel(t, graph);
  const prepared = await model.prepare({ memoryMaxBytes: 900 * 1024 ** 2 });
  t.regex(
    reasonOf(model.steps, 'mended'),
    /^the whole was not compared: .* more memory than 0\.9 GiB/,
  );
  t.not(prepared.path, model.path);
});
