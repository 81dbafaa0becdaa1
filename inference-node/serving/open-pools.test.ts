import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import '@matting/test-support/tiny-plan-hook.ts';
import { encodeTinyModel } from '@matting/test-support/tiny-model.ts';
import { outlineOf } from '@matting/test-support/tiny-plan.ts';
import { until } from '@matting/test-support/waiting.ts';
import type { OpenedPool } from './open-pools.ts';
import { runtimeVersion } from './providers/provider-files.ts';
import type { PoolSettings } from './start/pool-settings.ts';
import { collectLog, gpuFacts, nothingToMake, openGpuHost } from './test/gpu-host.ts';
import { poolSettings } from './test/pool-settings.ts';

// After the hook.
const { openPools } = await import('./open-pools.ts');

const GPUS = [gpuFacts('one'), gpuFacts('two', { index: 1, memoryBytes: 160_000 * 1024 * 1024 })];

interface HostOptions {
  readonly env?: Record<string, string>;
  readonly idle?: Pick<PoolSettings, 'modelIdleMs'>;
  readonly faults?: readonly string[];
  /** false: the model never ran on these GPUs. */
  readonly answered?: boolean;
}

async function open(context: ExecutionContext, options: HostOptions) {
  const { env = {}, idle = {}, faults = [], answered = true } = options;
  const host = await openGpuHost(context, GPUS);
  await host.fault(...faults);
  const config: PoolSettings = {
    ...poolSettings({ MATTING_MODEL_DIR: host.folder, MATTING_PICTURE_WORKERS: '1', ...env }),
    ...idle,
    childEnv: host.childEnv,
  };
  if (answered) await recordAnswer(config.modelSettings.modelDir);
  const { log, lines } = collectLog();
  const opened: OpenedPool[] = [];
  context.teardown(() => Promise.all(opened.map(({ pool }) => pool.close(0))));
  const ending = new AbortController().signal;
  const fail = (error: Error) => assert.fail(error);
  const given = { config, log, outline: await outlineOf(), make: nothingToMake };
  const parts = { ...given, ending, opened, fail };
  return { pools: openPools(parts), lines, host };
}

async function recordAnswer(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const machines = [`a GPU, driver 580, cuda, ONNX Runtime ${runtimeVersion()}`];
  const file = encodeTinyModel({ kind: 'paced', tripsMax: 30 });
  const sha256 = createHash('sha256').update(file).digest('hex');
  const record = { sha256, machines };
  const of = path.join(folder, 'tiny-paced-32x32.onnx.answers.json');
  await writeFile(of, JSON.stringify(record));
}

test('a node takes one GPU of several, with as many engines as requested', async t => {
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

test('if CUDA does not run by the C interface, it runs by the binding, and a line says why', async t => {
  const env = { MATTING_CUDA_INTERFACE: 'c' };
  const { pools, lines } = await open(t, { env });
  const { provider, plan } = await pools;
  t.like(provider, { requested: 'auto', selected: 'cuda', fallbacks: [] });
  const [line, ...others] = lines.filter(({ msg }) => msg === 'the C interface is not used');
  t.regex(
    String(line?.reason),
    /^execution provider cuda does not run here: .*cannot open shared object file/,
  );
  t.is(others.length, 0);
  t.is(plan.runs[0]?.engines.metrics().deaths.load, 0);
  const onCpu = await open(t, { env: { ...env, MATTING_EXECUTION_PROVIDER: 'cpu' } });
  t.is((await onCpu.pools).provider.selected, 'cpu');
  t.false(onCpu.lines.some(({ msg }) => msg === 'the C interface is not used'));
});

test('a small machine ends engines that have no work, others stay', async t => {
  t.is(poolSettings({ MATTING_PROFILE: 'small' }).modelIdleMs, 300_000);
  t.is(poolSettings({}).modelIdleMs, undefined);
  for (const isEnded of [true, false]) {
    const idle = isEnded ? { idle: { modelIdleMs: 0 } } : {};
    const { pools } = await open(t, { env: { MATTING_EXECUTION_PROVIDER: 'cpu' }, ...idle });
    const { plan, selectable } = await pools;
    const engines = plan.runs[0]?.engines;
    assert.ok(engines);
    t.like(selectable, { name: 'tiny', kind: 'plan' });
    if (isEnded) await until('the engines to end', () => engines.processes().length === 0);
    t.is(engines.processes().length, isEnded ? 0 : 1);
    t.is(engines.snapshot().state, 'ready');
  }
});
