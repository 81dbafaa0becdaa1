import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { MetricSet } from '@matting/program/metric-set.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { at } from '@matting/test-support/at.ts';
import ava from 'ava';
import { Admission } from './admission.ts';
import { NodeMetrics, registerGauges } from './metrics.ts';
import { NodeStatus, openHttpEndpoints } from './node-state.ts';
import { type ImageOrder, type ImageResult, Pipeline, type PlanRun } from './pipeline.ts';
import { FakeEnginePool, FakePicturePool, StageGates, TINY_MODEL } from './test/fake-pools.ts';
import { MatteCaller, openTestNode, untilIdle } from './test/test-node.ts';

const test = ava.serial;

let status: NodeStatus;
let endpoints: Awaited<ReturnType<typeof openHttpEndpoints>>;
let info: object | undefined;

test.beforeEach(async () => {
  status = new NodeStatus();
  const { registry } = new NodeMetrics();
  info = undefined;
  endpoints = await openHttpEndpoints({
    host: '127.0.0.1',
    port: 0,
    status,
    registry,
    info: () => info,
    ownHosts: ['node-7.example'],
  });
});

test.afterEach.always(() => endpoints.close());

async function get(path: string, init?: RequestInit) {
  const answer = await fetch(`http://127.0.0.1:${endpoints.port}${path}`, init);
  return { status: answer.status, text: await answer.text(), headers: answer.headers };
}

test('the HTTP side › has nothing else, and takes nothing', async t => {
  t.is((await get('/')).status, 404);
  t.is((await get('/metrics/../secret')).status, 404);
  t.is((await get('/livez', { method: 'POST', body: 'x' })).status, 405);
});

test('the HTTP side › is ready only while the node serves', async t => {
  t.is((await get('/livez')).status, 200);
  t.is((await get('/readyz')).status, 503);
  const engines = new FakeEnginePool(new StageGates());
  status.attach([engines], new FakePicturePool(new StageGates()));
  t.is((await get('/readyz?probe=1')).status, 200);
  engines.set({ enginesReady: 0 });
  t.is((await get('/readyz')).text, 'starting\n');
  engines.set({ enginesReady: 1 });
  status.drain('shutdown');
  const draining = await get('/readyz');
  t.deepEqual([draining.status, draining.text], [503, 'draining\n']);
  t.is((await get('/livez')).status, 200);
});

test('the HTTP side › tells what the node is', async t => {
  info = { plan: 'tiny' };
  t.deepEqual(JSON.parse((await get('/info')).text), { state: 'starting', plan: 'tiny' });
});

const SERVICE = { 'user-agent': 'matting-service/1 (image fetch)' };
const WHO: readonly [host: string, headers: Record<string, string>, status: number][] = [
  ['10.4.0.7:50052', {}, 200],
  ['node-1:50052', {}, 200],
  ['node-7.example:50052', {}, 200],
  ['evil.example:50052', {}, 403],
  ['node-7.example.evil.example', {}, 403],
  ['127.0.0.1', SERVICE, 403],
];

test('the HTTP side › tells figures to nobody who was led here by somebody else', async t => {
  const ask = async (path: string, headers: Record<string, string>) => {
    const sent = request({ port: endpoints.port, path, headers, agent: false }).end();
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    answer.resume();
    return answer.statusCode;
  };
  for (const [host, more, status] of WHO) {
    const headers = { host, ...more };
    for (const path of ['/metrics', '/info']) t.is(await ask(path, headers), status, host);
    t.is(await ask('/livez', headers), 200, 'a probe tells only that it lives');
  }
});

test('the HTTP side › ends a connection on which many requests come before their answers', async t => {
  const socket = connect(endpoints.port, '127.0.0.1');
  socket.on('error', () => undefined).resume();
  socket.write('GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(16 + 1));
  await once(socket, 'close');
  t.is((await get('/livez')).status, 200);
});

test('endpoints › metrics keep to the naming rules, and tell what happened', async t => {
  const node = await openTestNode({ model: { precisionFallback: 'no VNNI' } });
  await new MatteCaller(node).serve('12345');
  await untilIdle(node);
  const text = await node.metrics.registry.metrics();
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)];
  for (const [, name = '', type] of types.filter(([, name]) => name?.startsWith('matting_'))) {
    t.regex(name, /^matting_node_[a-z_]+$/);
    t.is(name.endsWith('_total'), type === 'counter', name);
    t.notRegex(name, /_(ms|milliseconds|mb|kb|minutes)(_|$)/);
  }
  const lines = text.split('\n').map(line => line.split(/ (?=\S+$)/));
  const value = (series: string) => Number(lines.find(([name]) => name === series)?.[1]);
  const ok = 'matting_node_images_total{outcome="succeeded",code="",output_format="png"}';
  t.is(value(ok), 1);
  t.is(value('matting_node_received_bytes_total'), 5);
  t.is(value('matting_node_sent_bytes_total'), node.pictures.result.length);
  t.is(value('matting_node_state{state="serving"}'), 1);
  const tiny = 'model="tiny",input_size="4",role="subject"';
  t.is(value(`matting_node_engine_runs_total{${tiny},outcome="succeeded"}`), 1);
  t.is(value('matting_node_stage_duration_seconds_count{stage="infer"}'), 1);
  await node.close();
});

// One model at several sizes: no engine of it hides another.

const LABELS = [
  { model: 'twice', input_size: '1024', role: 'subject' },
  { model: 'twice', input_size: '768', role: 'opinion' },
  { model: 'twice', input_size: '512', role: 'second_look' },
] as const;
const ROLES = { subject: 'subject', opinion: 'opinion', second_look: 'secondLook' } as const;

/** Every number differs: 1, 2 and 3, tenfold and hundredfold. */
function createRun({ input_size, role }: (typeof LABELS)[number], index: number): PlanRun {
  const engines = new FakeEnginePool(new StageGates());
  const n = index + 1;
  const numbers = { engines: n, enginesReady: 10 * n, enginesStuck: 100 * n };
  engines.set({ ...numbers, running: 1000 * n, queued: 10_000 * n });
  engines.metrics = () => ({
    runs: { succeeded: n, refused: 0, failed: 10 * n, lost: 100 * n, dropped: 1000 * n },
    deaths: {
      load: n,
      idle: 10 * n,
      run: 100 * n,
      watchdog: 1000 * n,
      fault: 10_000 * n,
      device: 0,
      shortage: 0,
      memory: 100_000 * n,
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
  const metrics = new MetricSet();
  const pictures = new FakePicturePool(new StageGates());
  const limits = { imagesMax: 1, megapixelsMax: 100, megapixelsAloneMax: 100 };
  const runs = LABELS.map(createRun);
  registerGauges(
    {
      admission: new Admission(limits),
      pipeline: new Pipeline(pictures),
      pictures,
      plan: { name: 'a plan', runs },
      version: '1',
      provider: { requested: 'cpu', selected: 'cpu', fallbacks: [] },
      device: undefined,
    },
    metrics,
  );
  const read = async (name: string) => {
    const metric = await metrics.registry.getSingleMetric(`matting_node_${name}`)?.get();
    return metric?.values ?? [];
  };
  return { registry: metrics.registry, read };
}

test('gauges › each engine of a model is a series of its own, with its own number', async t => {
  const { read } = await readAll();
  const factors = {
    engines: 1,
    engines_ready: 10,
    engines_stuck: 100,
    engines_running: 1000,
    engine_queue_images: 10_000,
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

test('gauges › so are the ends of runs and engines, their memory and their precision', async t => {
  const { read } = await readAll();
  const cases = [
    ['engine_runs_total', 'outcome', 'lost', [100, 200, 300]],
    ['engine_deaths_total', 'cause', 'watchdog', [1000, 2000, 3000]],
    ['engine_deaths_total', 'cause', 'memory', [100_000, 200_000, 300_000]],
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

function openPlan(
  otherRole: PlanRun['role'] = 'opinion',
  otherModel = 'second',
  extraRuns?: PlanRun['extraRuns'],
) {
  const pictures = new FakePicturePool(new StageGates());
  const make = (model: string, role: PlanRun['role']) => {
    const gates = new StageGates();
    const engines = new FakeEnginePool(gates);
    return { gates, engines, run: { model: { ...TINY_MODEL, model }, engines, role } };
  };
  const subject = make('first', 'subject');
  const opinion = make(otherModel, otherRole);
  const order: ImageOrder = {
    plan: { name: 'both', runs: [{ ...subject.run, extraRuns }, opinion.run] },
    declared: undefined,
    outputFormat: 'png',
    resultKind: 'cutout',
    refinement: true,
    foregroundEstimation: false,
    priority: 'sync',
  };
  const process = async (signal = new AbortController().signal) => {
    const sent: ImageResult[] = [];
    const timings = await new Pipeline(pictures).process(
      order,
      {
        receive: async () => ({ image: Buffer.from('a file') }),
        stageBegan: () => undefined,
        send: async result => void sent.push(result),
      },
      signal,
    );
    return { ...at(sent, 0), timings };
  };
  return { pictures, subject, opinion, process };
}

const names = (runs: readonly PlanRun[]) => runs.map(({ model }) => model.model);

test('a plan of several models › gives the picture worker every matte with its part, and the choices of the order', async t => {
  const { pictures, process } = openPlan();
  const result = await process();
  t.deepEqual(names(result.runs), ['first', 'second']);
  t.deepEqual(result.missing, []);
  const { mattes, refinement, foregroundEstimation } = at(pictures.finished, 0);
  t.deepEqual(
    mattes.map(({ role }) => role),
    ['subject', 'opinion'],
  );
  t.deepEqual([refinement, foregroundEstimation], [true, false]);
});

test('a plan of several models › has the picture resampled for the second one when that runs, as part of decoding', async t => {
  const { pictures, opinion, process } = openPlan();
  const { timings } = await process();
  const { inputWidth: width, inputHeight: height } = opinion.run.model;
  t.deepEqual(at(pictures.decoded, 0).modelInputs, [{ width, height }]);
  t.deepEqual(pictures.resampled, [{ width, height }]);
  t.is(timings.decodeMs, 4 + 8);
});

const passing = [
  'ENGINE_LOST',
  'NODE_FAULT',
  'NODE_UNAVAILABLE',
  'NODE_OVERLOADED',
  'PROCESSING_FAILED',
] as const;
for (const code of passing) {
  test(`a plan of several models › serves without an opinion that ends in ${code}, and says so`, async t => {
    const { pictures, opinion, process } = openPlan();
    opinion.gates.failOnce('infer', new ContractError(code, 'gone'));
    const result = await process();
    t.deepEqual(names(result.runs), ['first']);
    t.deepEqual(names(result.missing), ['second']);
    t.is(at(pictures.finished, 0).mattes.length, 1);
  });
}

test('a plan of several models › does not serve without the subject', async t => {
  const { subject, process } = openPlan();
  subject.gates.failOnce('infer', new ContractError('ENGINE_LOST', 'gone'));
  await t.throwsAsync(process(), { code: 'ENGINE_LOST' });
});

test('a plan of several models › takes a bug in an opinion for a bug', async t => {
  const { opinion, process } = openPlan();
  opinion.gates.failOnce('infer', new TypeError('a bug'));
  await t.throwsAsync(process(), { instanceOf: TypeError });
});

test('a second look › is taken of a picture in which the subject is unsure, and timed by itself', async t => {
  const { pictures, opinion: second, process } = openPlan('secondLook');
  const result = await process();
  t.deepEqual(names(result.runs), ['first', 'second']);
  t.deepEqual(
    at(pictures.finished, 0).mattes.map(({ role }) => role),
    ['subject', 'secondLook'],
  );
  t.is(second.engines.runs.length, 1);
  t.deepEqual([result.timings.inferMs, result.timings.secondLookMs], [2, 2]);
});

const UPPER_ROWS = new Uint8Array(16).fill(255, 0, 8);
const FAINT_UPPER_ROWS = new Uint8Array(16).fill(200, 0, 8);

test('a second look by the same model › is taken in a frame where the subject is quite unsure, and decides', async t => {
  const { pictures, subject, opinion: second, process } = openPlan('secondLook', 'first');
  subject.engines.alpha = FAINT_UPPER_ROWS;
  second.engines.alpha = UPPER_ROWS;
  const { runs, timings } = await process();
  t.deepEqual(
    runs.map(({ role }) => role),
    ['subject', 'secondLook'],
  );
  t.deepEqual([pictures.inputs, pictures.resampled], [[['framed', 4]], []]);
  const { mattes } = at(pictures.finished, 0);
  t.deepEqual(
    mattes.map(({ role, size: { width }, alpha }) => [role, width, at(alpha, 0)]),
    [
      ['subject', 3, 255],
      ['secondLook', 4, 200],
    ],
  );
  t.is(timings.secondLookMs, 2);
});

test('a second look by the same model › is taken of the picture as it is where the framed one is not believed', async t => {
  const { pictures, opinion: second, process } = openPlan('secondLook', 'first');
  second.engines.alpha = 255;
  const { runs, timings } = await process();
  t.is(runs.length, 2);
  const size = { width: 4, height: 4 };
  t.deepEqual([pictures.inputs, pictures.resampled], [[['framed', 4]], [size]]);
  t.deepEqual(
    at(pictures.finished, 0).mattes.map(({ role, size }) => [role, size.width]),
    [
      ['subject', 4],
      ['secondLook', 4],
    ],
  );
  t.is(second.engines.runs.length, 2);
  t.is(timings.secondLookMs, 4);
});

test('a second look by the same model › is taken in a frame too where every picture gets it', async t => {
  const { pictures, subject, opinion: second, process } = openPlan('subject', 'first');
  subject.engines.alpha = FAINT_UPPER_ROWS;
  second.engines.alpha = UPPER_ROWS;
  const { timings } = await process();
  t.deepEqual(pictures.inputs, [['framed', 4]]);
  t.deepEqual(
    at(pictures.finished, 0).mattes.map(({ role, size }) => [role, size.width]),
    [
      ['subject', 3],
      ['secondLook', 4],
    ],
  );
  t.deepEqual([timings.inferMs, timings.secondLookMs], [4, 0]);
});

test('a second look by the same model › that fails in a frame is missing, once', async t => {
  const { pictures, opinion: second, process } = openPlan('secondLook', 'first');
  second.gates.failOnce('infer', new ContractError('ENGINE_LOST', 'gone'));
  const { runs, missing } = await process();
  t.deepEqual([runs.length, missing.length, second.engines.runs.length], [1, 1, 1]);
  t.is(at(pictures.finished, 0).mattes.length, 1);
});

test('a second look by another model › is of the picture as it is', async t => {
  const { pictures, process } = openPlan('secondLook');
  await process();
  t.deepEqual(pictures.inputs, []);
});

test('a further run › is taken where the look is unsure, timed by itself, and is no loss', async t => {
  const wanted = [{ input: 'mirrored', unsureFrom: 0.13 }] as const;
  const { pictures, subject, process } = openPlan('secondLook', 'first', wanted);
  subject.engines.alpha = FAINT_UPPER_ROWS;
  pictures.choose = (_mattes, further) => ({
    mattes: [{ at: 0, role: 'subject' }],
    settled: further > 0,
  });
  const { timings, extraRuns: taken, missing } = await process();
  t.deepEqual([taken, missing], [['mirrored'], []]);
  t.deepEqual(pictures.inputs.at(-1), ['mirrored', 4]);
  t.deepEqual([timings.inferMs, timings.secondLookMs, timings.extraRunMs], [2, 4, 2]);
  subject.engines.alpha = 255;
  t.deepEqual((await process()).extraRuns, []);
});

test('a further run › that fails ends no image: the result says which model it lacks', async t => {
  const wanted = [{ input: 'mirrored', unsureFrom: 0 }] as const;
  const { pictures, subject, process } = openPlan('refine', 'first', wanted);
  pictures.choose = () => ({ mattes: [{ at: 0, role: 'subject' }], settled: false });
  subject.engines.alpha = FAINT_UPPER_ROWS;
  const run = subject.engines.run.bind(subject.engines);
  subject.engines.run = async request => {
    if (subject.engines.runs.length === 1) throw new ContractError('ENGINE_LOST', 'gone');
    return await run(request);
  };
  const { missing, extraRuns, runs } = await process();
  t.deepEqual([names(missing), extraRuns, names(runs)], [['first'], [], ['first', 'first']]);
});

for (const role of ['opinion', 'secondLook'] as const) {
  test(`a run of the role ${role} › costs nothing where the subject is sure, and is not missed`, async t => {
    const { pictures, subject, opinion: second, process } = openPlan(role);
    subject.engines.alpha = 255;
    const result = await process();
    t.deepEqual(names(result.runs), ['first']);
    t.deepEqual(result.missing, []);
    t.is(at(pictures.finished, 0).mattes.length, 1);
    t.is(second.engines.runs.length, 0);
    t.deepEqual(pictures.resampled, []);
    t.is(result.timings.secondLookMs, 0);
  });

  test(`engines of a role ${role} that are all down › are not waited for: the result says what it lacks`, async t => {
    const { pictures, opinion: other, process } = openPlan(role);
    other.engines.set({ enginesReady: 0 });
    other.gates.hold('infer');
    const result = await process();
    t.deepEqual(names(result.runs), ['first']);
    t.deepEqual(names(result.missing), ['second']);
    t.deepEqual([other.engines.runs.length, pictures.resampled.length], [0, 0]);
    t.is(result.timings.secondLookMs, 0);
  });

  test(`engines of a role ${role} that are all down › are not waited for either by a run that was queued when the last one died`, async t => {
    const { pictures, opinion: other, process } = openPlan(role);
    other.gates.hold('infer');
    const processed = process();
    await other.gates.reached('infer');
    other.engines.set({ enginesReady: 0 });
    const result = await processed;
    t.deepEqual(names(result.missing), ['second']);
    t.is(pictures.leasesOut, 0);
    t.is(other.engines.listenerCount, 0);
  });
}

test('a model that refines › is given the picture with the mattes of the others, and its own continues with theirs', async t => {
  const { pictures, opinion: second, process } = openPlan('refine');
  const result = await process();
  t.deepEqual(names(result.runs), ['first', 'second']);
  t.deepEqual([pictures.refined, pictures.resampled], [[['subject']], []]);
  t.is(at(second.engines.runs, 0).rgb.length, 4 * 4 * 4);
  t.deepEqual(
    at(pictures.finished, 0).mattes.map(({ role }) => role),
    ['subject', 'refine'],
  );
  t.is(result.timings.decodeMs, 4 + 8);
});

test('a model that refines › does not run where nothing is unsure, and is not missed', async t => {
  const { pictures, opinion: second, process } = openPlan('refine');
  pictures.nothingUnsure = true;
  const { runs, missing } = await process();
  t.deepEqual([names(runs), names(missing)], [['first'], []]);
  t.deepEqual([second.engines.runs.length, at(pictures.finished, 0).mattes.length], [0, 1]);
});

test('a model that refines › is missed where it is down or fails, and the rest is served', async t => {
  for (const isDown of [true, false]) {
    const { pictures, opinion: second, process } = openPlan('refine');
    if (isDown) second.engines.set({ enginesReady: 0 });
    else second.gates.failOnce('infer', new ContractError('NODE_FAULT', 'gone'));
    const { runs, missing } = await process();
    t.deepEqual([names(runs), names(missing)], [['first'], ['second']]);
    t.is(at(pictures.finished, 0).mattes.length, 1);
  }
});

test('a pipeline › waits for the engines of a subject, whatever they do', async t => {
  const { subject, process } = openPlan();
  subject.engines.set({ state: 'starting', enginesReady: 0 });
  const result = await process();
  t.deepEqual(names(result.runs), ['first', 'second']);
});
