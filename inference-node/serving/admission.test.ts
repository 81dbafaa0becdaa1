import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { ConfigError } from '@matting/program/config-error.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { countedMegapixels } from '@matting/proto/contract/picture-memory.ts';
import ava from 'ava';
import { pino } from 'pino';
import {
  Admission,
  computeMegapixelBudget,
  ENGINES_MAX,
  enginesAtMost,
  enginesInMemory,
  type Permit,
  readMemoryLimitBytes,
  requireMegapixelBudget,
} from './admission.ts';
import { type DrainSteps, drainNode } from './drain.ts';
import { type NodeState, NodeStatus } from './node-state.ts';
import { FakeEnginePool, FakePicturePool, StageGates } from './test/fake-pools.ts';

const CLOSE_GRACE_MS = 5000;
const test = ava.serial;

const LIMITS = { imagesMax: 3, megapixelsMax: 60, megapixelsAloneMax: 100 };
const megapixels = (count: number) => ({ megapixels: count, fileBytes: 1000 });

function refusal(admission: Admission, request: Parameters<Admission['admit']>[0]) {
  try {
    admission.admit(request);
  } catch (error) {
    assert.ok(error instanceof ContractError);
    return error.code;
  }
  return assert.fail('it was admitted');
}

test('Admission › refuses when its slots are taken', t => {
  const admission = new Admission(LIMITS);
  const permits: Permit[] = [1, 2, 3].map(count => admission.admit(megapixels(count)));
  t.deepEqual(
    permits.map(({ queuePosition }) => queuePosition),
    [0, 1, 2],
  );
  t.is(refusal(admission, megapixels(1)), 'NODE_OVERLOADED');
  permits[1]?.release();
  t.is(admission.admit(megapixels(1)).queuePosition, 2);
});

test('Admission › refuses what does not fit next to the others', t => {
  const admission = new Admission(LIMITS);
  admission.admit(megapixels(50));
  t.is(admission.snapshot().megapixelsFree, 10);
  t.is(refusal(admission, megapixels(11)), 'NODE_SHORT_OF_MEMORY');
  admission.admit(megapixels(10));
});

test('Admission › takes an image over the whole budget while it is alone, and nothing else with it', t => {
  const admission = new Admission(LIMITS);
  t.is(admission.snapshot().megapixelsFree, 100);
  const large = admission.admit(megapixels(100));
  t.is(admission.snapshot().megapixelsFree, 0);
  t.is(refusal(admission, megapixels(1)), 'NODE_SHORT_OF_MEMORY');
  large.release();
  const small = admission.admit(megapixels(1));
  t.is(refusal(admission, megapixels(100)), 'NODE_SHORT_OF_MEMORY');
  small.release();
  admission.admit(megapixels(100));
});

test('Admission › sends an image that it can never hold to another node', t => {
  const admission = new Admission({ ...LIMITS, megapixelsAloneMax: 80 });
  t.is(refusal(admission, megapixels(81)), 'NODE_INCAPABLE');
  t.is(refusal(admission, megapixels(100)), 'NODE_INCAPABLE');
  admission.admit(megapixels(80));
});

test('Admission › bounds the bytes of the files together', t => {
  const admission = new Admission(LIMITS);
  admission.admit({ megapixels: 1, fileBytes: 512 * 1024 * 1024 - 10 });
  t.is(refusal(admission, { megapixels: 1, fileBytes: 11 }), 'NODE_SHORT_OF_MEMORY');
  admission.admit({ megapixels: 1, fileBytes: 10 });
});

test('Admission › gives a permit back once, however often it is released', t => {
  const admission = new Admission(LIMITS);
  let changes = 0;
  const stop = admission.onChange(() => {
    changes += 1;
  });
  const kept = admission.admit(megapixels(7));
  const permit = admission.admit(megapixels(5));
  for (let i = 0; i < 3; i += 1) permit.release();
  t.is(changes, 3);
  const { images, megapixels: inUse, fileBytes } = admission.snapshot();
  t.deepEqual([images, inUse, fileBytes], [1, 7, 1000]);
  stop();
  kept.release();
  t.is(changes, 3);
});

const GB = 1_000_000_000;
const ISNET = { inputWidth: 1024, inputHeight: 1024, precision: 'fp32' } as const;
const ISNET_INT8 = { ...ISNET, precision: 'int8' } as const;
const U2NETP = { inputWidth: 320, inputHeight: 320, precision: 'fp32' } as const;

type EngineModel = typeof ISNET | typeof ISNET_INT8 | typeof U2NETP;

const rows: [string, number, EngineModel[], [number, number] | undefined][] = [
  // 42 MB a megapixel, of 0.6 of the limit shared and 0.85 alone, after the engines.
  ['one ISNet in 4 GB', 4 * GB, [ISNET], [34, 58]],
  ['one ISNet in 2 GB', 2 * GB, [ISNET], [12, 18]],
  ['one ISNet in int8 in 2 GB', 2 * GB, [ISNET_INT8], [15, 26]],
  ['two ISNets in 4 GB', 4 * GB, [ISNET, ISNET], [12, 36]],
  ['u2netp in 1 GB', 1 * GB, [U2NETP], [12, 14]],
  ['one ISNet in 24 GB', 24 * GB, [ISNET], [320, 167]],
  ['no room beside the engine', 1.2 * GB, [ISNET], undefined],
];
for (const [name, memoryLimitBytes, engines, expected] of rows) {
  test(`computeMegapixelBudget › ${name}`, t => {
    const budget = computeMegapixelBudget({ memoryLimitBytes, engines });
    const found = budget && [budget.megapixelsMax, budget.megapixelsAloneMax];
    t.deepEqual(found, expected);
  });
}

test('computeMegapixelBudget › takes an ordinary photo wherever it starts at all', t => {
  for (let limit = 0.5 * GB; limit < 8 * GB; limit += 0.05 * GB) {
    const budget = computeMegapixelBudget({
      memoryLimitBytes: limit,
      engines: [ISNET],
    });
    if (budget === undefined) continue;
    t.true(budget.megapixelsMax >= 12 && budget.megapixelsAloneMax >= 12);
  }
});

test('memory › an operator learns what leaves no room', t => {
  t.throws(() => requireMegapixelBudget({ memoryLimitBytes: 1.2 * GB, engines: [ISNET] }), {
    instanceOf: ConfigError,
    message: /MATTING_NODE_MEMORY_PERCENT must be a part of more .* 1200 MB .* needs 1695 MB; /,
  });
});

test('memory › counts an image by its pixels, one that takes more memory as larger', t => {
  const jpeg = { inputFormat: 'jpeg', outputFormat: 'png', resultKind: 'cutout' } as const;
  const jxl = { ...jpeg, outputFormat: 'jxl' } as const;
  t.is(countedMegapixels({ ...jpeg, pixels: 12_000_000 }), 12);
  t.is(countedMegapixels({ ...jpeg, pixels: undefined }), 100);
  const below = countedMegapixels({ ...jxl, pixels: 30_000_000 });
  const above = countedMegapixels({ ...jxl, pixels: 100_000_000 });
  t.true(below > 30 && below < 40, `${below}`);
  t.true(above > 160 && above < 170, `${above}`);
  const largest = { ...jxl, inputFormat: undefined, pixels: undefined };
  const most = computeMegapixelBudget({ memoryLimitBytes: 64 * GB, engines: [ISNET] });
  t.true(countedMegapixels(largest) <= (most?.megapixelsAloneMax ?? 0));
});

const each = (models: readonly EngineModel[]) => (engines: number) =>
  models.flatMap(model => Array<EngineModel>(engines).fill(model));

test('memory › holds as many engines as leave the pictures their room', t => {
  t.is(enginesInMemory(1 * GB, each([ISNET])), 0);
  t.is(enginesInMemory(4 * GB, each([ISNET])), 1);
  t.is(enginesInMemory(4 * GB, each([ISNET_INT8])), 2);
  t.is(enginesInMemory(4 * GB, each([ISNET_INT8, ISNET])), 1);
  t.is(enginesInMemory(64 * GB, each([ISNET_INT8])), 44);
  t.is(enginesInMemory(256 * GB, each([ISNET_INT8])), ENGINES_MAX);
  const halved = (engines: number) => [
    ...each([ISNET_INT8])(engines),
    ...each([ISNET])(Math.ceil(engines / 2)),
  ];
  t.is(enginesInMemory(10 * GB, each([ISNET_INT8, ISNET])), 2);
  t.is(enginesInMemory(10 * GB, halved), 3);
});

test('memory › counts an engine by its measured peak, and never opens more than leave a photo', t => {
  const measured = { ...ISNET, peakBytes: 3 * GB };
  t.is(enginesInMemory(16 * GB, each([measured])), 2);
  t.is(enginesAtMost(16 * GB, each([measured])), 4);
  t.is(enginesAtMost(2 * GB, each([measured])), 0);
  t.is(computeMegapixelBudget({ memoryLimitBytes: 4 * GB, engines: [measured] }), undefined);
});

test('memory › the memory limit of this process is that of the machine or less', t => {
  const limit = readMemoryLimitBytes();
  t.true(limit > 0 && limit <= totalmem());
  t.is(readMemoryLimitBytes(25), limit / 4);
});

const log = pino({ level: 'silent' });

/** Records the steps; images are in until `finish`. */
function recordSteps(overrides: Partial<DrainSteps> = {}) {
  const taken: string[] = [];
  const finished = Promise.withResolvers<void>();
  const steps: DrainSteps = {
    announce: () => taken.push('announce'),
    untilIdle: () => finished.promise,
    abortCalls: () => {
      taken.push('abort');
      finished.resolve();
    },
    closeChildren: async graceMs => {
      taken.push(`children ${graceMs}`);
    },
    childrenLeft: () => [],
    deregister: async () => {
      taken.push('deregister');
    },
    closeServers: async () => {
      taken.push('servers');
    },
    ...overrides,
  };
  return { steps, taken, finish: () => finished.resolve() };
}

const never = new AbortController().signal;
const turn = () => new Promise(resolve => setImmediate(resolve));

test('a drain › announces at once and waits for what is in', async t => {
  const { steps, taken, finish } = recordSteps();
  const drained = drainNode(steps, { hurry: never, log });
  await turn();
  t.deepEqual(taken, ['announce']);
  finish();
  await drained;
  t.deepEqual(taken, ['announce', 'abort', `children ${CLOSE_GRACE_MS}`, 'deregister', 'servers']);
});

test('a drain › hurried on its way ends what is in and gives the children no time', async t => {
  const hurry = new AbortController();
  const { steps, taken } = recordSteps();
  const drained = drainNode(steps, { hurry: hurry.signal, log });
  await turn();
  hurry.abort();
  await drained;
  t.deepEqual(taken, ['announce', 'abort', 'children 0', 'deregister', 'servers']);
});

test('a drain › ends what takes too long', async t => {
  const { steps, taken } = recordSteps();
  await drainNode(steps, { hurry: never, log, finishMaxMs: 20 });
  t.deepEqual(taken.slice(0, 2), ['announce', 'abort']);
});

test('a drain › takes every step though one fails', async t => {
  const { steps, taken, finish } = recordSteps({
    closeChildren: () => Promise.reject(new Error('stuck')),
    deregister: () => Promise.reject(new Error('nobody there')),
  });
  finish();
  await drainNode(steps, { hurry: never, log });
  t.deepEqual(taken, ['announce', 'abort', 'servers']);
});

test('a drain › leaves children that do not die, and names them', async t => {
  const lines: { pid?: number; kind?: string; level: number }[] = [];
  const log = pino({}, { write: line => void lines.push(JSON.parse(line)) });
  const { steps, taken, finish } = recordSteps({
    closeChildren: () => new Promise(() => undefined),
    childrenLeft: () => [
      { kind: 'engine', pid: 4711 },
      { kind: 'picture worker', pid: 4712 },
    ],
  });
  finish();
  await drainNode(steps, { hurry: AbortSignal.abort(), log: log, killMaxMs: 20 });
  t.deepEqual(taken, ['announce', 'abort', 'deregister', 'servers']);
  const left = lines.filter(({ kind }) => kind !== undefined);
  t.deepEqual(
    left.map(({ kind, pid, level }) => [kind, pid, level]),
    [
      ['engine', 4711, 50],
      ['picture worker', 4712, 50],
    ],
  );
});

test('a drain › hurried while children have their time kills them, and leaves none waiting', async t => {
  const hurry = new AbortController();
  const graces: number[] = [];
  const closing = Promise.withResolvers<void>();
  const { steps, taken, finish } = recordSteps({
    closeChildren: async graceMs => {
      graces.push(graceMs);
      if (graceMs > 0) hurry.abort();
      else closing.resolve();
      await closing.promise;
    },
  });
  finish();
  await drainNode(steps, { hurry: hurry.signal, log });
  t.deepEqual(graces, [CLOSE_GRACE_MS, 0]);
  t.deepEqual(taken.slice(-2), ['deregister', 'servers']);
});

test('a drain › ends though a server does not close', async t => {
  const { steps, finish } = recordSteps({ closeServers: () => new Promise(() => undefined) });
  finish();
  await t.notThrowsAsync(drainNode(steps, { hurry: never, log, serversMaxMs: 20 }));
});

let status: NodeStatus;
let seen: NodeState[];
let pictures: FakePicturePool;

test.beforeEach(() => {
  status = new NodeStatus();
  seen = [];
  pictures = new FakePicturePool(new StageGates());
  status.onChange(state => seen.push(state));
});

function pool(enginesReady = 1): FakeEnginePool {
  const engines = new FakeEnginePool(new StageGates());
  engines.set({ enginesReady, state: enginesReady > 0 ? 'ready' : 'starting' });
  return engines;
}

test('the state › starts until every model has an engine', t => {
  const [one, two] = [pool(1), pool(0)];
  t.is(status.state, 'starting');
  status.attach([one, two], pictures);
  t.is(status.state, 'starting');
  two.set({ enginesReady: 1, state: 'ready' });
  one.set({ enginesReady: 0 });
  one.set({ enginesReady: 1 });
  t.deepEqual(seen, ['serving', 'starting', 'serving']);
});

test('the state › tells a change once', t => {
  const engines = pool();
  status.attach([engines], pictures);
  engines.set({ running: 1 });
  engines.set({ running: 0 });
  status.drain('command');
  status.drain('command');
  t.deepEqual(seen, ['serving', 'draining']);
});

test('the state › lets the control plane take its own order back, and no other', t => {
  status.attach([pool()], pictures);
  status.drain('command');
  status.undrain();
  t.is(status.state, 'serving');
  status.drain('command');
  status.drain('shutdown');
  status.undrain();
  t.is(status.state, 'draining');
});

test('the state › has failed for good when one pool has, draining or not', t => {
  const [one, two] = [pool(), pool()];
  status.attach([one, two], pictures);
  two.set({ state: 'failed', enginesReady: 0 });
  status.drain('shutdown');
  t.is(status.state, 'failed');
  t.deepEqual(seen, ['serving', 'failed']);
});

test('the state › says why it has failed, by engines or by picture workers', t => {
  const engines = pool();
  status.attach([engines], pictures);
  t.is(status.failure, undefined);
  pictures.fail('a worker does not die');
  t.deepEqual([status.state, status.failure], ['failed', 'a worker does not die']);
  engines.set({ state: 'failed', failure: 'an engine does not die', enginesReady: 0 });
  t.is(status.failure, 'an engine does not die');
  t.deepEqual(seen, ['serving', 'failed']);
});
