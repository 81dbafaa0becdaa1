/** A node's pools on a host of GPUs, from the driver's list to engines that are ready. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import '@matting/test-support/tiny-plan-hook.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { createUniformRgb, encodeTinyModel } from '@matting/test-support/tiny-model.ts';
import { outlineOf } from '@matting/test-support/tiny-plan.ts';
import { encodeTrap, TRAP_PEAK_BYTES } from '@matting/test-support/trap-model.ts';
import sharp from 'sharp';
import { describeMachine } from './engine/choice/answer-picture.ts';
import { runtimeTools } from './engine/choice/compare-runtimes.ts';
import { NodeMetrics } from './metrics.ts';
import { loadManifest } from './models/manifest.ts';
import type { OpenedPool, Pools } from './open-pools.ts';
import type { ImageResult, RunnablePlan } from './pipeline.ts';
import { prepareRuntime } from './prepared/cpu-runtime.ts';
import { detectInstructionSet } from './prepared/instruction-set.ts';
import { describePrepared, type MakePrepared } from './prepared/load-prepared.ts';
import { preparedPath, writeSidecar } from './prepared/prepared-cache.ts';
import { runtimeVersion } from './providers/provider-files.ts';
import type { SelectablePlan, Selectables } from './selectables/selectables.ts';
import type { PoolSettings } from './start/pool-settings.ts';
import { type AddedFolders, addGraph, addTinyModel } from './test/added-model.ts';
import { collectLog, gpuFacts, nothingToMake, openGpuHost } from './test/gpu-host.ts';
import { isWithoutOpenvino, openvinoHere } from './test/openvino.ts';
import { poolSettings } from './test/pool-settings.ts';

// The import comes after the hook.
const { openPools } = await import('./open-pools.ts');

const BOOM = 'CUDA failure 700: an illegal memory access was encountered';
const GPUS = [gpuFacts('one'), gpuFacts('two', { index: 1, memoryBytes: 160_000 * 1024 * 1024 })];

interface HostOptions {
  readonly env?: Record<string, string>;
  readonly faults?: readonly string[];
  /** false: the model was never run on these GPUs. */
  readonly answered?: boolean;
  readonly make?: MakePrepared;
  readonly added?: readonly string[];
  readonly prepare?: (folders: AddedFolders) => Promise<void>;
}

async function open(context: ExecutionContext, options: HostOptions) {
  const { env = {}, faults = [], answered = true, make = nothingToMake, added = [] } = options;
  const host = await openGpuHost(context, GPUS);
  await host.fault(...faults);
  const config: PoolSettings = {
    ...poolSettings({ MATTING_MODEL_DIR: host.folder, MATTING_PICTURE_WORKERS: '1', ...env }),
    childEnv: host.childEnv,
  };
  const { modelDir, addedModelsDir } = config.modelSettings;
  if (answered) await recordAnswer(modelDir);
  for (const name of added) await addTinyModel({ addedModelsDir, modelDir }, name);
  await options.prepare?.({ addedModelsDir, modelDir });
  const { log, lines } = collectLog();
  const opened: OpenedPool[] = [];
  context.teardown(() => Promise.all(opened.map(({ pool }) => pool.close(0))));
  const ending = new AbortController().signal;
  const fail = (error: Error) => assert.fail(error);
  const metrics = new NodeMetrics();
  const given = { config, log, metrics, outline: await outlineOf(), make };
  const parts = { ...given, ending, opened, fail };
  return { pools: openPools(parts), lines, host };
}

/** The tiny plan's model, and that it answered rightly on the GPUs of these tests. */
async function recordAnswer(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const machines = [`a GPU, driver 580, cuda, ONNX Runtime ${runtimeVersion()}`];
  const file = encodeTinyModel({ kind: 'paced', tripsMax: 30 });
  const sha256 = createHash('sha256').update(file).digest('hex');
  const record = { sha256, machines };
  const of = path.join(folder, 'tiny-paced-32x32.onnx.answers.json');
  await writeFile(of, JSON.stringify(record));
}

test('a node takes one GPU of several, with as many engines as are asked for', async t => {
  const { pools, lines } = await open(t, { env: { MATTING_ENGINES: '2' } });
  const { device, provider, plan, admission } = await pools;
  t.deepEqual([provider.selected, device?.facts.id], ['cuda', 'GPU-one']);
  t.is(plan.runs[0]?.engines.snapshot().engines, 2);
  t.is(admission.snapshot().imagesMax, 2);
  device?.lose('it is gone');
  const line = lines.find(({ msg }) => msg === 'GPU is out: its engines end');
  t.deepEqual([line?.gpu, line?.reason], ['GPU-one', 'it is gone']);
  t.is(plan.runs[0]?.engines.snapshot().state, 'failed');
});

test('auto falls to the CPU where a model cannot be checked, and says why', async t => {
  const { pools, lines } = await open(t, { answered: false });
  const { provider, device } = await pools;
  t.deepEqual([provider.requested, provider.selected, device], ['auto', 'cpu', undefined]);
  t.regex(provider.fallbacks[0]?.reason ?? '', /there is no answer to hold its own against/);
  t.true(lines.some(({ msg }) => msg === 'provider fell back'));
});

async function openAdded(context: ExecutionContext, provider: string, ...added: string[]) {
  const addedModelsDir = await temporaryFolder(context);
  const env = { MATTING_EXECUTION_PROVIDER: provider, MATTING_ADDED_MODELS_DIR: addedModelsDir };
  const { pools, host } = await open(context, { env, added, make: async () => undefined });
  return { ...(await pools), host };
}

function named({ list }: Selectables, name: string): SelectablePlan {
  const found = list.find(one => one.name === name);
  assert(found, `${name} may be named`);
  return found;
}

async function runOf({ runs }: SelectablePlan): Promise<number | undefined> {
  const rgb = createUniformRgb(32, 32, 100);
  const signal = new AbortController().signal;
  return (await runs[0]?.engines.run({ rgb, priority: 'sync', signal }))?.alpha[0];
}

test('an added model is found, loaded when it is wanted, and answers', async t => {
  const { selectables, admission } = await openAdded(t, 'cpu', 'mine');
  t.deepEqual(
    selectables.list.map(({ name }) => name),
    ['tiny', 'mine'],
  );
  const mine = named(selectables, 'mine');
  const before = admission.snapshot().megapixelsMax;
  const leave = selectables.roomFor(mine, 1).enter();
  t.true(admission.snapshot().megapixelsMax < before);
  await mine.ready?.();
  t.is(await runOf(mine), 100);
  leave();
  t.is(selectables.processes().length, 1);
  await selectables.close(0);
  t.deepEqual(selectables.processes(), []);
});

const MEASURED = { peakBytes: TRAP_PEAK_BYTES, loadedBytes: 1e8, seconds: 0.01, provider: 'cpu' };

/** A picture of one brightness as a PNG through the whole pipeline; the middle of its mask. */
async function maskOf({ pipeline }: Pools, plan: RunnablePlan, brightness: number) {
  const background = { r: brightness, g: brightness, b: brightness };
  const image = await sharp({ create: { width: 64, height: 64, channels: 3, background } })
    .png()
    .toBuffer();
  const sent: ImageResult[] = [];
  const exchange = {
    receive: async () => ({ image }),
    stageBegan: () => undefined,
    send: async (result: ImageResult) => void sent.push(result),
  };
  const order = {
    ...({ plan, declared: undefined, priority: 'sync', outputFormat: 'png' } as const),
    ...({ resultKind: 'mask', refinement: false, foregroundEstimation: false } as const),
  };
  await pipeline.process(order, exchange, new AbortController().signal);
  const { data } = await sharp(sent[0]?.file).raw().toBuffer({ resolveWithObject: true });
  return data[data.length / 2];
}

test('added graphs that fail on a white picture cost no other picture anything', async t => {
  const addedModelsDir = await temporaryFolder(t);
  const env = {
    ...{ MATTING_EXECUTION_PROVIDER: 'cpu', MATTING_ADDED_MODELS_DIR: addedModelsDir },
    MATTING_PICTURE_WORKERS: '2',
  };
  const traps = {
    expands: encodeTrap({ kind: 'expands', expandBytes: 2e9 }),
    enlarges: encodeTrap({ kind: 'enlarges', enlargePx: 12_000 }),
  };
  const { pools: opening } = await open(t, {
    ...{ env, make: async () => undefined },
    prepare: async folders => {
      for (const [name, bytes] of Object.entries(traps)) {
        await addGraph(folders, name, bytes, { measured: MEASURED });
      }
    },
  });
  const pools = await opening;
  const { selectables, plan, pictures } = pools;
  const [{ pid } = {}] = plan.runs[0]?.engines.processes() ?? [];
  const workers = pictures.processes().map(worker => worker.pid);
  for (const name of Object.keys(traps)) {
    const trap = named(selectables, name);
    const leave = selectables.roomFor(trap, 1).enter();
    const refused = t.throwsAsync(maskOf(pools, trap, 255), { code: 'PROCESSING_FAILED' });
    // The own plan's model takes its time over what is bright: it is in an engine meanwhile.
    const beside = await Promise.all([maskOf(pools, plan, 250), maskOf(pools, plan, 240)]);
    t.deepEqual(beside, [250, 240]);
    await refused;
    t.is(await maskOf(pools, trap, 100), 100, 'the model serves on');
    leave();
  }
  t.is(plan.runs[0]?.engines.processes()[0]?.pid, pid);
  t.deepEqual(
    pictures.processes().map(worker => worker.pid),
    workers,
  );
  for (const { residentBytes = 0 } of selectables.processes()) {
    t.true(residentBytes < 3 * TRAP_PEAK_BYTES, `${residentBytes}`);
  }
});

test('a model that does not run on the GPU takes nothing from the others', async t => {
  const { selectables, device, plan, host } = await openAdded(t, 'cuda', 'good', 'bad');
  const good = named(selectables, 'good');
  selectables.roomFor(good, 1).enter();
  await good.ready?.();
  t.is(await runOf(good), 100);
  await host.fault(...GPUS.map(({ id }) => `model ${id} ${BOOM}`));
  const bad = named(selectables, 'bad');
  selectables.roomFor(bad, 1).enter();
  await t.throwsAsync(async () => await bad.ready?.(), {
    message: 'The model could not be loaded.',
  });
  t.false(selectables.list.some(({ name }) => name === 'bad'));
  t.is(device?.outReason, undefined);
  t.is(plan.runs[0]?.engines.snapshot().enginesReady, 1);
});

/** Files that `models fetch` leaves of a shipped model if OpenVINO is faster on this machine. */
async function recordOpenvino({ addedModelsDir, modelDir }: AddedFolders, name: string) {
  const bytes = encodeTinyModel();
  const graph = {
    ...{ file: 'tiny.onnx', precision: 'fp32', inputName: 'input', outputName: 'output' },
    ...{ inputWidth: 32, inputHeight: 32 },
  };
  const inputSize = { default: 32, listed: [32], multipleOf: 32, min: 32, max: 32 };
  await addGraph({ addedModelsDir, modelDir }, name, bytes, { graph, inputSize });
  const manifest = await loadManifest(name, undefined, addedModelsDir);
  const key = {
    ...({ inputWidth: 32, inputHeight: 32, precision: 'fp32', provider: 'cpu' } as const),
    instructionSet: await detectInstructionSet(),
  };
  const file = preparedPath(modelDir, manifest, key);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, bytes);
  await writeSidecar(modelDir, manifest, key, bytes.length, sha256);
  const alpha = Buffer.alloc(32 * 32);
  const compare = async () => ({
    timeShare: 0.5,
    peakBytes: 3e8,
    alphas: { onnxruntime: alpha, openvino: alpha },
  });
  await prepareRuntime(
    describePrepared(manifest, key, file, sha256),
    { wanted: 'auto', openvino: openvinoHere(), comparing: new AbortController().signal },
    { machine: describeMachine(), runtimes: { ...runtimeTools({}), compare } },
  );
}

const byOpenvino = isWithoutOpenvino ? test.skip : test;

byOpenvino('a model that a request names runs on the runtime that was recorded for it', async t => {
  for (const [wanted, runtime] of [
    ['auto', 'openvino'],
    ['onnxruntime', 'onnxruntime'],
  ] as const) {
    const env = {
      ...{ MATTING_EXECUTION_PROVIDER: 'cpu', MATTING_CPU_RUNTIME: wanted },
      MATTING_ADDED_MODELS_DIR: await temporaryFolder(t),
      MATTING_PROVIDER_DIR: path.resolve(openvinoHere().library, '../..'),
    };
    const prepare = (folders: AddedFolders) => recordOpenvino(folders, 'shipped');
    const { pools, lines } = await open(t, { env, prepare });
    const { selectables } = await pools;
    const shipped = named(selectables, 'shipped');
    const leave = selectables.roomFor(shipped, 1).enter();
    await shipped.ready?.();
    t.is(await runOf(shipped), 100);
    leave();
    const ready = lines.find(line => line.msg === 'engine ready' && line.model === 'shipped');
    t.is(ready?.runtime, runtime);
  }
});
