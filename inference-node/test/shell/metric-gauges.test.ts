/** A plan that holds one model at several sizes: no engine of it hides another. */
import test from 'ava';
import { Registry } from 'prom-client';
import { Admission } from '../../src/admission.ts';
import { registerGauges } from '../../src/metrics.ts';
import { Pipeline, type PlanRun } from '../../src/pipeline.ts';
import { FakeEnginePool, FakePicturePool, StageGates, TINY_MODEL } from '../grpc/fake-pools.ts';

const LABELS = [
  { model: 'twice', input_size: '1024', role: 'subject' },
  { model: 'twice', input_size: '768', role: 'opinion' },
  { model: 'twice', input_size: '512', role: 'second_look' },
] as const;
const ROLES = { subject: 'subject', opinion: 'opinion', second_look: 'secondLook' } as const;

/** Engines whose every number is another: 1, 2 and 3, and tenfold and hundredfold of it. */
function createRun({ input_size, role }: (typeof LABELS)[number], index: number): PlanRun {
  const engines = new FakeEnginePool(new StageGates());
  const n = index + 1;
  const numbers = { engines: n, enginesReady: 10 * n, enginesStuck: 100 * n };
  const more = { queued: 10_000 * n, imagesARunMax: 2 * n };
  engines.set({ ...numbers, running: 1000 * n, ...more });
  engines.metrics = () => ({
    runsByImages: { 1: n, 4: 10 * n },
    runs: { succeeded: n, failed: 10 * n, lost: 100 * n, dropped: 1000 * n },
    deaths: {
      load: n,
      idle: 10 * n,
      run: 100 * n,
      watchdog: 1000 * n,
      fault: 10_000 * n,
      device: 0,
    },
    busyS: n,
    loadMs: 1000 * n,
    warmMs: 10_000 * n,
  });
  engines.processes = () => [{ engine: 0, pid: n, residentBytes: n }];
  const side = Number(input_size);
  const fallback = role === 'subject' && { precisionFallback: 'no VNNI' };
  const size = { inputWidth: side, inputHeight: side, sha256: `${n}` };
  const model = { ...TINY_MODEL, ...size, model: 'twice', ...fallback };
  return { model, engines, role: ROLES[role] };
}

async function readAll() {
  const registry = new Registry();
  const pictures = new FakePicturePool(new StageGates());
  const limits = { imagesMax: 1, megapixelsMax: 100, megapixelsAloneMax: 100 };
  registerGauges(
    {
      admission: new Admission(limits),
      pipeline: new Pipeline(pictures),
      pictures,
      plan: { name: 'a plan', runs: LABELS.map(createRun) },
      version: '1',
      provider: { requested: 'cpu', selected: 'cpu', fallbacks: [] },
      devices: [],
    },
    registry,
  );
  const read = async (name: string) => {
    const metric = await registry.getSingleMetric(`matting_node_${name}`)?.get();
    return metric?.values ?? [];
  };
  return { registry, read };
}

test('each engine of a model is a series of its own, with its own number', async t => {
  const { read } = await readAll();
  const factors = {
    engines: 1,
    engines_ready: 10,
    engines_stuck: 100,
    engines_running: 1000,
    engine_queue_images: 10_000,
    engine_run_images_max: 2,
    engine_load_seconds: 1,
    engine_warmup_seconds: 10,
    engine_busy_seconds_total: 1,
  };
  for (const [name, factor] of Object.entries(factors)) {
    const values = (await read(name)).map(({ labels, value }) => ({ labels, value }));
    const expected = LABELS.map((labels, index) => ({ labels, value: factor * (index + 1) }));
    t.deepEqual(values, expected, name);
  }
});

test('so are the ends of runs and engines, their memory and their precision', async t => {
  const { read } = await readAll();
  const cases = [
    ['engine_runs_total', 'outcome', 'lost', [100, 200, 300]],
    ['engine_runs_by_images_total', 'images', '4', [10, 20, 30]],
    ['engine_deaths_total', 'cause', 'watchdog', [1000, 2000, 3000]],
    ['engine_resident_memory_bytes', 'engine', '0', [1, 2, 3]],
    ['precision_fallback', 'selected', 'fp32', [1, 0, 0]],
  ] as const;
  for (const [name, label, wanted, numbers] of cases) {
    const values = (await read(name)).filter(({ labels }) => labels[label] === wanted);
    const more = { [label]: wanted };
    t.deepEqual(
      values.map(({ labels, value }) => ({ labels, value })),
      LABELS.map((labels, index) => ({ labels: { ...labels, ...more }, value: numbers[index] })),
      name,
    );
  }
  t.is((await read('info')).length, LABELS.length);
});

test('no metric of models leaves out what tells them apart', async t => {
  const { registry } = await readAll();
  for (const metric of await registry.getMetricsAsArray()) {
    const { labelNames = [] } = metric as { labelNames?: string[] };
    if (!labelNames.includes('model')) continue;
    t.deepEqual(
      ['input_size', 'role'].filter(label => !labelNames.includes(label)),
      [],
      metric.name,
    );
  }
});
