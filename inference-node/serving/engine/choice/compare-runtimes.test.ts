import { readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { descendantsOf } from '@matting/test-support/processes.ts';
import { SmallDisk, skipWithoutMounts } from '@matting/test-support/small-disk.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { type TinyModelOptions, writeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava, { type ExecutionContext } from 'ava';
import { hashFile } from '../../models/cache-files.ts';
import { type PreparedModel, runtimeOf } from '../../models/prepared-model.ts';
import {
  ElementType,
  encodeModel,
  float32Tensor,
  type Graph,
  int64Tensor,
  integer,
  nodeOf,
} from '../../onnx/graph.ts';
import { prepareRuntime, recordedRuntime } from '../../prepared/cpu-runtime.ts';
import { isWithoutOpenvino, openvinoHere } from '../../test/openvino.ts';
import { ownClock } from '../../test/own-clock.ts';
import { ENDLESS_TRIPS } from '../../test/pool-harness.ts';
import { until, untilBusy } from '../../test/processes.ts';
import { roundsOf, runtimeTools } from './compare-runtimes.ts';

const COMPILE_MAX_MS = 120_000;
const test = ava.serial;
const byOpenvino = isWithoutOpenvino ? ava.skip : ava.serial;
const onSmallDisk = isWithoutOpenvino || skipWithoutMounts() !== false ? ava.skip : ava.serial;

const HERE = { machine: 'this one' };
const IMPORTED = path.join(import.meta.dirname, '../../test/hanging-import.ts');
const HANGING = { NODE_OPTIONS: `--import=${IMPORTED}` };
const CRASHING = { NODE_OPTIONS: '--import=data:text/javascript,process.abort()' };

const children = () => descendantsOf(process.pid).map(({ pid }) => pid);

interface Preparing {
  readonly wanted?: 'auto' | 'openvino';
  readonly childEnv?: Record<string, string>;
  readonly signal?: AbortSignal;
}

function prepare(model: PreparedModel, options: Preparing = {}) {
  const { wanted = 'auto', childEnv = CACHE_ENV, signal = new AbortController().signal } = options;
  const openvino = isWithoutOpenvino ? { version: '1', library: '/nowhere' } : openvinoHere();
  const runtimes = runtimeTools(childEnv);
  return prepareRuntime(model, { wanted, openvino, comparing: signal }, { ...HERE, runtimes });
}

async function openModel(t: ExecutionContext, options: TinyModelOptions = {}) {
  const folder = await temporaryFolder(t);
  return { folder, model: await writeTinyModel(folder, options) };
}

test('a share near to the one that decides takes more rounds, a run of seconds few', t => {
  t.deepEqual(
    [0.4, 0.87, 0.905, 0.913, 0.95, 1.1].map(share => roundsOf(60, share)),
    [5, 20, 20, 20, 20, 5],
  );
  t.is(roundsOf(800, 0.9), 2);
});

test('an engine that hangs while OpenVINO compiles ends with its bound, and by name', async t => {
  const clock = ownClock(t);
  const { folder, model } = await openModel(t);
  const before = children();
  const preparing = prepare(model, { childEnv: HANGING });
  await until('an engine', () => children().length > before.length);
  await clock.tickAsync(COMPILE_MAX_MS);
  t.is((await preparing).runtimeFallback, 'OpenVINO does not run it: it took over 120 s');
  t.deepEqual(children(), before);
  t.deepEqual(await readdir(folder), [path.basename(model.path)]);
});

test('an aborted caller ends the engine that compiles', async t => {
  const { model } = await openModel(t);
  const before = children();
  const caller = new AbortController();
  const preparing = prepare(model, { childEnv: HANGING, signal: caller.signal });
  await until('an engine', () => children().length > before.length);
  caller.abort(new Error('went away'));
  await t.throwsAsync(preparing, { message: 'went away' });
  t.deepEqual(children(), before);
});

test('a runtime that crashes each time is given up, and by name', async t => {
  const { model } = await openModel(t);
  const { runtimeFallback } = await prepare(model, { childEnv: CRASHING });
  t.regex(runtimeFallback ?? '', /the engines keep dying: the process ended: signal SIGABRT/);
  await t.throwsAsync(prepare(model, { childEnv: CRASHING, wanted: 'openvino' }), {
    message: /^tiny-mean \(MATTING_CPU_RUNTIME=openvino\): .*keep dying/,
  });
});

byOpenvino('a graph that OpenVINO runs without end is killed in native code', async t => {
  const clock = ownClock(t);
  const { model } = await openModel(t, { kind: 'paced', tripsMax: ENDLESS_TRIPS });
  // The check picture is bright enough for all trips.
  const normalisation = { mean: [-127, -127, -127], std: [255, 255, 255] } as const;
  const before = children();
  const preparing = prepare({ ...model, normalisation });
  await until('an engine', () => children().length > before.length);
  await untilBusy(children().find(pid => !before.includes(pid)) as number);
  await clock.tickAsync(COMPILE_MAX_MS);
  t.regex((await preparing).runtimeFallback ?? '', /took over 120 s/);
  t.deepEqual(children(), before);
});

/** Constants that become gigabytes once they are folded. */
const EXPANDING = {
  nodes: [
    nodeOf('Expand', ['one', 'shape'], 'ones'),
    nodeOf('ReduceMean', ['ones'], 'mean', [integer('keepdims', 0)]),
    nodeOf('Conv', ['input', 'mix'], 'matte'),
    nodeOf('Mul', ['matte', 'mean'], 'output'),
  ],
  initialisers: new Map([
    ['one', float32Tensor([1], [1])],
    ['shape', int64Tensor([1, 16, 10_000, 10_000], [4])],
    ['mix', float32Tensor([1 / 3, 1 / 3, 1 / 3], [1, 3, 1, 1])],
  ]),
};
const UNKNOWN = { nodes: [nodeOf('Unheard', ['input'], 'output')], initialisers: new Map() };

function encode(body: Pick<Graph, 'nodes' | 'initialisers'>): Buffer {
  const float32 = ElementType.float32;
  const graph: Graph = {
    ...{ irVersion: 8, opsets: [{ domain: '', version: 13 }] },
    ...body,
    inputs: [{ name: 'input', elementType: float32, dims: [1, 3, 32, 32] }],
    outputs: [{ name: 'output', elementType: float32, dims: [1, 1, 32, 32] }],
  };
  return Buffer.concat([...encodeModel(graph)]);
}

byOpenvino('a graph for which OpenVINO wants gigabytes does not get them, today', async t => {
  const { folder, model } = await openModel(t);
  await writeFile(model.path, encode(EXPANDING));
  const expanding = { ...model, sha256: await hashFile(model.path) };
  t.regex((await prepare(expanding)).runtimeFallback ?? '', /bad_alloc|Failed to allocate/);
  t.deepEqual(await readdir(folder), [path.basename(model.path)], 'it is tried again');
});

byOpenvino('a graph with an operator that OpenVINO does not know is not tried again', async t => {
  const { model } = await openModel(t);
  await writeFile(model.path, encode(UNKNOWN));
  const unknown = { ...model, sha256: await hashFile(model.path) };
  const { runtimeFallback } = await prepare(unknown);
  t.regex(runtimeFallback ?? '', /ov_core_read_model failed.*Unheard/);
  t.is((await prepare(unknown, { childEnv: CRASHING })).runtimeFallback, runtimeFallback);
});

byOpenvino(
  'two that prepare at once agree, and a start meanwhile loads all or nothing',
  async t => {
    const { folder, model } = await openModel(t);
    const wanted = 'openvino';
    const starts = new Set<string>();
    const both = Promise.all([prepare(model, { wanted }), prepare(model, { wanted })]);
    let isOver = false;
    void both.finally(() => (isOver = true)).catch(() => undefined);
    while (!isOver) {
      const options = { wanted: 'auto', openvino: openvinoHere() } as const;
      starts.add(runtimeOf(await recordedRuntime(model, options, HERE)));
    }
    const [first, second] = await both;
    t.truthy(first.openvino?.compiled);
    t.deepEqual(second, first);
    t.deepEqual(await prepare(model, { wanted }), first);
    t.true(starts.has('onnxruntime'));
    t.is((await readdir(folder)).length, 3, 'the graph, what was compiled, and the record');
  },
);

onSmallDisk(
  'a disk that fills while OpenVINO writes keeps nothing, and the cause is named',
  async t => {
    const disk = SmallDisk.mount('1m');
    t.teardown(() => disk.remove());
    const model = await writeTinyModel(disk.directory, { kind: 'paced', tripsMax: 30 });
    const { runtimeFallback } = await prepare(model);
    t.regex(runtimeFallback ?? '', /cannot write .*\.openvino-\w+: no space left on the device/);
    t.deepEqual(await readdir(disk.directory), [path.basename(model.path)]);
    disk.remount('size=32m');
    t.truthy((await prepare(model, { wanted: 'openvino' })).openvino?.compiled);
  },
);

onSmallDisk(
  'a folder that is only read keeps ONNX Runtime, and no engine starts for it',
  async t => {
    const disk = SmallDisk.mount('8m');
    t.teardown(() => disk.remove());
    const model = await writeTinyModel(disk.directory, { kind: 'paced', tripsMax: 30 });
    disk.remount('ro');
    const { runtimeFallback } = await prepare(model, { childEnv: HANGING });
    t.regex(runtimeFallback ?? '', /cannot write .*\.openvino-\w+: .*read-only/);
  },
);
