import { syncBuiltinESMExports } from 'node:module';
import timersPromises from 'node:timers/promises';
import { unwritable } from '@matting/storage/blob-store.ts';
import ava from 'ava';
import sinon from 'sinon';
import { ReadinessService } from './readiness.ts';

const test = ava.serial;

function service(
  state: { database?: Error | undefined; routable: boolean; nowMs: number },
  changes: Partial<ConstructorParameters<typeof ReadinessService>[0]> = {},
) {
  const failures: unknown[] = [];
  let checks = 0;
  const readiness = new ReadinessService(
    {
      checkDatabase: async () => {
        checks += 1;
        if (state.database) throw state.database;
      },
      checkStorage: async () => undefined,
      hasBeenRoutable: () => state.routable,
      now: () => state.nowMs,
      ...changes,
    },
    failed => failures.push(failed.map(({ cause }) => cause)),
  );
  return { readiness, failures, checks: () => checks };
}

test('readiness › needs database, storage and a node seen once', async t => {
  const state = { routable: false, nowMs: 0, database: new Error('away') as Error | undefined };
  const { readiness, failures } = service(state);
  t.deepEqual(await readiness.check(), {
    ready: false,
    causes: ['database', 'no-node-yet'],
  });
  await readiness.check();
  t.deepEqual(failures, [['database', 'no-node-yet']], 'once');
  state.database = undefined;
  state.routable = true;
  state.nowMs = 1000;
  t.deepEqual(await readiness.check(), { ready: true });
  readiness.startDraining();
  t.deepEqual(await readiness.check(), { ready: false, causes: ['draining'] });
  t.deepEqual(failures.slice(1), [[], ['draining']]);
});

test('readiness › names a full storage', async t => {
  const full = Object.assign(new Error('no room'), { code: 'ENOSPC' });
  const state = { routable: true, nowMs: 0 };
  const { readiness } = service(state, { checkStorage: () => Promise.reject(unwritable(full)) });
  t.deepEqual(await readiness.check(), { ready: false, causes: ['storage-full'] });
});

test('readiness › checks at most once a second', async t => {
  const state = { routable: true, nowMs: 0 };
  const { readiness, checks } = service(state);
  await Promise.all([readiness.check(), readiness.check(), readiness.check()]);
  t.is(checks(), 1);
});

test('readiness › does not wait for ever', async t => {
  const timeUp = Promise.withResolvers<boolean>();
  const waits = sinon.stub(timersPromises, 'setTimeout').callsFake(() => timeUp.promise);
  // Without it modules keep the function that they imported.
  syncBuiltinESMExports();
  t.teardown(() => {
    waits.restore();
    syncBuiltinESMExports();
  });
  const { readiness } = service(
    { routable: true, nowMs: 0 },
    { checkDatabase: () => new Promise(() => undefined) },
  );
  const checked = readiness.check();
  t.deepEqual(
    waits.args.map(([ms]) => ms),
    [2000, 2000],
  );
  timeUp.resolve(false);
  t.deepEqual(await checked, { ready: false, causes: ['database'] });
});
