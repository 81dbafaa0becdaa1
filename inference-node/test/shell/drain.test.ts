import test from 'ava';
import { pino } from 'pino';
import { CLOSE_GRACE_MS, type DrainSteps, drainNode } from '../../src/drain.ts';

const log = pino({ level: 'silent' });

/** Steps that write down when they were taken; the images are in until `finish`. */
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

test('announces at once and waits for what is in', async t => {
  const { steps, taken, finish } = recordSteps();
  const drained = drainNode(steps, { hurry: never, log });
  await turn();
  t.deepEqual(taken, ['announce']);
  finish();
  await drained;
  t.deepEqual(taken, ['announce', 'abort', `children ${CLOSE_GRACE_MS}`, 'deregister', 'servers']);
});

test('hurried on its way ends what is in and gives the children no time', async t => {
  const hurry = new AbortController();
  const { steps, taken } = recordSteps();
  const drained = drainNode(steps, { hurry: hurry.signal, log });
  await turn();
  hurry.abort();
  await drained;
  t.deepEqual(taken, ['announce', 'abort', 'children 0', 'deregister', 'servers']);
});

test('hurried from the start waits for nothing', async t => {
  const { steps, taken } = recordSteps();
  await drainNode(steps, { hurry: AbortSignal.abort(), log });
  t.is(taken[1], 'abort');
  t.is(taken[2], 'children 0');
});

test('ends what takes too long', async t => {
  const { steps, taken } = recordSteps();
  await drainNode(steps, { hurry: never, log, finishMaxMs: 20 });
  t.deepEqual(taken.slice(0, 2), ['announce', 'abort']);
});

test('takes every step though one fails', async t => {
  const { steps, taken, finish } = recordSteps({
    closeChildren: () => Promise.reject(new Error('stuck')),
    deregister: () => Promise.reject(new Error('nobody there')),
  });
  finish();
  await drainNode(steps, { hurry: never, log });
  t.deepEqual(taken, ['announce', 'abort', 'servers']);
});

test('leaves children behind that do not die, and names them', async t => {
  const lines: { pid?: number; kind?: string; level: number }[] = [];
  const told = pino({}, { write: line => void lines.push(JSON.parse(line)) });
  const { steps, taken, finish } = recordSteps({
    closeChildren: () => new Promise(() => undefined),
    childrenLeft: () => [
      { kind: 'engine', pid: 4711 },
      { kind: 'picture worker', pid: 4712 },
    ],
  });
  finish();
  await drainNode(steps, { hurry: AbortSignal.abort(), log: told, killMaxMs: 20 });
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

test('hurried while children have their time kills them, and leaves none waiting', async t => {
  const hurry = new AbortController();
  const asked: number[] = [];
  const closing = Promise.withResolvers<void>();
  const { steps, taken, finish } = recordSteps({
    closeChildren: async graceMs => {
      asked.push(graceMs);
      if (graceMs > 0) hurry.abort();
      else closing.resolve();
      await closing.promise;
    },
  });
  finish();
  await drainNode(steps, { hurry: hurry.signal, log });
  t.deepEqual(asked, [CLOSE_GRACE_MS, 0]);
  t.deepEqual(taken.slice(-2), ['deregister', 'servers']);
});

test('ends though a server does not close', async t => {
  const { steps, finish } = recordSteps({ closeServers: () => new Promise(() => undefined) });
  finish();
  await t.notThrowsAsync(drainNode(steps, { hurry: never, log, serversMaxMs: 20 }));
});
