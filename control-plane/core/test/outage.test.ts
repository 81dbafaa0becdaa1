import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { openDatabase } from '@matting/database/connect.ts';
import { type Database, transact } from '@matting/database/database.ts';
import { DatabasePair, pairSkipReason } from '@matting/database/test/database-pair.ts';
import { DatabaseProxy } from '@matting/database/test/database-proxy.ts';
import { at } from '@matting/test-support/at.ts';
import { SILENT_LOG, skipReason, useTestDatabase } from '@matting/test-support/database.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { sql } from 'kysely';
import type { Stores } from '../stores.ts';
import {
  assertBalanced,
  fundedAccount,
  HOUR_MS,
  newJob,
  resultOf,
  running,
  series,
  storesOn,
  submitted,
  successOf,
} from './fixtures.ts';
import { until } from './harness.ts';
import { runCli } from './support/cli.ts';

const test = ava.serial;
const onServer = test.skipIf(skipReason('mysql') !== false);
const onPair = test.skipIf(pairSkipReason !== false);

const isUnavailable = { code: 'SERVICE_UNAVAILABLE', retryable: true };

const QUOTA_ASK = { limit: 600, block: 10, advance: 10, windowStartMs: 0 };
const LIMITS = { jobsInFlightMax: 100 };
const isReadOnly = {
  code: 'SERVICE_UNAVAILABLE',
  retryable: true,
  message: /read-only/,
};

async function connectionIdOf(db: Database['kysely']): Promise<number> {
  const { rows } = await sql<{ id: number }>`select connection_id() as id`.execute(db);
  return at(rows, 0).id;
}

const databases = useTestDatabase(test, 'mysql');
let proxy: DatabaseProxy;
let database: Database;
let stores: Stores;
const warnings: unknown[] = [];

test.before(async () => {
  if (skipReason('mysql')) return;
  proxy = new DatabaseProxy(databases.url());
  await proxy.open();
  const log = { ...SILENT_LOG, warn: (...args: unknown[]) => warnings.push(args) };
  database = await openDatabase(proxy.url, { log });
  stores = storesOn(database);
});
test.after.always(async () => {
  await database?.close();
  await proxy?.close();
});

function addCredits(db: Database['kysely'], account: string, credits: number) {
  const accounts = db.updateTable('accounts').where('id', '=', account);
  return accounts.set(eb => ({ available: eb('available', '+', credits) })).execute();
}

onServer('a connection killed in the middle of a transaction costs a second round', async t => {
  const account = await fundedAccount(stores, 1);
  let rounds = 0;
  await transact(database, async tx => {
    await addCredits(tx, account, 10);
    if (++rounds === 1) {
      const id = await connectionIdOf(tx);
      const direct = await databases.open();
      await sql.raw(`kill ${id}`).execute(direct.kysely);
    }
    await addCredits(tx, account, -10);
  });
  t.is(rounds, 2);
  await assertBalanced(stores);
});

/** After 0.6 s its statements ask for 1 s whether the server still answers. */
async function openImpatient(t: ExecutionContext): Promise<Database> {
  const impatient = await openDatabase(proxy.url, { log: SILENT_LOG, statementMsMax: 6000 });
  t.teardown(async () => {
    proxy.setSilent(false);
    await impatient.close();
  });
  return impatient;
}

onServer('a server that answers nobody holds no caller, and is asked again alone', async t => {
  const own = storesOn(await openImpatient(t));
  const job = newJob(await fundedAccount(stores, 1));
  proxy.setSilent(true);
  const isRefused = ({ code, cause }: Error & { readonly code?: string }) =>
    code === isUnavailable.code && (cause as { code?: string }).code === 'SERVER_SILENT';
  await rejectsWith(t, own.queue.submit(job, LIMITS), isRefused);
  const { taken } = proxy;
  const others = Array.from({ length: 50 }, () => rejectsWith(t, own.check(), isRefused));
  await Promise.all(others);
  t.true(proxy.taken < taken + 16, 'the others opened no connection of the pool');
  proxy.setSilent(false);
  const isBack = () =>
    own.check().then(
      () => true,
      () => false,
    );
  await until(isBack, 'the end of the silence');
  await submitted(own, job);
  await assertBalanced(own);
});

onServer('a statement that waits at a server that answers others goes on', async t => {
  const account = await fundedAccount(stores, 1);
  const impatient = await openImpatient(t);
  let waiting: Promise<unknown> | undefined;
  await transact(database, async tx => {
    await addCredits(tx, account, 10);
    const { taken } = proxy;
    waiting = transact(impatient, waiter => addCredits(waiter, account, -10));
    await until(() => proxy.taken > taken + 2, 'questions to the server');
  });
  await t.notThrowsAsync(async () => waiting);
  await storesOn(impatient).check();
  await assertBalanced(stores);
});

onServer('in an outage all calls answer SERVICE_UNAVAILABLE and change nothing', async t => {
  const account = await fundedAccount(stores, 2);
  const open = await running(stores, newJob(account));
  const job = newJob(account);
  await proxy.close();
  const calls = [
    stores.check(),
    stores.queue.submit(job, LIMITS),
    stores.jobs.find(job.id),
    stores.queue.renew(open.claim, 1000),
    stores.queue.succeed(open.claim, successOf(open.claim)),
    stores.queue.listClaimable(1),
    stores.apiKeys.list(),
    stores.nodes.listLive(),
  ];
  const outcomes = await Promise.allSettled(calls);
  for (const outcome of outcomes) {
    t.is(outcome.status, 'rejected');
    const { code, retryable } = (outcome as PromiseRejectedResult).reason;
    t.deepEqual({ code, retryable }, isUnavailable);
  }
  t.true(warnings.length > 0, 'the outage was logged');
  await proxy.open();
  await stores.check();
  await submitted(stores, job);
  const result = resultOf(open.claim);
  t.true(await stores.queue.succeed(open.claim, successOf(open.claim, { result })));
  await assertBalanced(stores);
});

let pair: DatabasePair;
let pool: Database;

test.before(async () => {
  if (!pairSkipReason) pair = await DatabasePair.create(series);
});
const open = async () => {
  pool = await openDatabase(pair.url, { log: SILENT_LOG });
};
const switchBack = async () => {
  await pool.close();
  await pair.switchBack();
};
test.after.always(() => pair?.close());

for (const demotion of ['read_only = 1', 'tx_read_only = 1']) {
  onPair(
    `a primary that is demoted › by ${demotion} is left by the whole pool with the first write it refuses`,
    async t => {
      t.teardown(switchBack);
      await open();
      const stores = storesOn(pool);
      const account = await fundedAccount(stores, 10);
      // Several connections, all to the first.
      const jobs = Array.from({ length: 8 }, () => newJob(account));
      await Promise.all(jobs.map(job => submitted(stores, job)));
      t.true((await pair.first.connections()) > 1);
      await pair.demoteFirst(demotion);
      // tx_read_only holds for new sessions only.
      if (demotion.startsWith('tx_')) await breakConnections(pair);

      await Promise.all([
        rejectsWith(t, stores.queue.submit(newJob(account), LIMITS), isReadOnly),
        rejectsWith(t, stores.check(), isReadOnly),
        assertCommandSaysSo(pair.url, account),
        rejectsWith(t, stores.nodes.heartbeat('node', randomUUID(), HOUR_MS), isReadOnly),
        rejectsWith(t, stores.rateQuotas.lease(account, 'reads', QUOTA_ASK), isReadOnly),
      ]);
      const { id } = at(jobs, 0);
      t.is((await stores.jobs.find(id))?.id, id, 'reads go on');

      pair.promoteSecond();
      await submitted(stores, newJob(account));
      await stores.check();
      const { granted } = await stores.rateQuotas.lease(account, 'reads', QUOTA_ASK);
      t.is(granted, 10);
      t.false((await stores.nodes.heartbeat('node', randomUUID(), HOUR_MS)).known);
      t.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 9 });
      const readOnce = () => Promise.all(jobs.map(job => stores.jobs.find(job.id)));
      await until(async () => {
        await readOnce();
        return (await pair.first.connections()) === 0;
      }, 'that nobody is left at the old primary');
      await assertBalanced(storesOn(pair.second.database));
    },
  );
}

onPair(
  'a primary that is demoted › is left by a connection that nobody uses, within seconds',
  async t => {
    t.teardown(switchBack);
    await open();
    const held = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    const older = pool.kysely.connection().execute(async () => {
      held.resolve();
      await ended.promise;
    });
    await held.promise;
    await pair.demoteFirst();
    pair.promoteSecond();
    // The pool lends the connection that was returned last, so never the older one.
    await pool.kysely.connection().execute(async () => {
      ended.resolve();
      await older;
    });
    t.is(await pair.first.connections(), 1);
    await until(async () => {
      await storesOn(pool).jobs.find(randomUUID());
      return (await pair.first.connections()) === 0;
    }, 'that nobody is left at the old primary');
  },
);

onPair(
  'a primary that is demoted › takes nothing of an open transaction, which runs again as a whole elsewhere',
  async t => {
    t.teardown(switchBack);
    await open();
    const stores = storesOn(pool);
    const account = await fundedAccount(stores, 1);
    let rounds = 0;
    await transact(pool, async tx => {
      await addCredits(tx, account, 10);
      if (++rounds > 1) return;
      // Ignores open transactions, but refuses their commits.
      await pair.demoteFirst();
      pair.promoteSecond();
    });
    t.is(rounds, 2);
    t.deepEqual(await stores.ledger.balances(account), { available: 11, reserved: 0 });
    const old = await storesOn(pair.first.database).ledger.balances(account);
    t.deepEqual(old, { available: 1, reserved: 0 }, 'nothing of it stayed behind');
  },
);

onPair(
  'a primary that is demoted › leaves readers their connections while there is no primary',
  async t => {
    t.teardown(switchBack);
    await open();
    const stores = storesOn(pool);
    const account = await fundedAccount(stores, 1);
    await pair.demoteFirst();
    await Promise.allSettled(
      Array.from({ length: 20 }, () => stores.queue.submit(newJob(account), LIMITS)),
    );
    t.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
  },
);

/** New sessions take the server's new default. */
async function breakConnections(pair: DatabasePair): Promise<void> {
  await pair.proxy.close();
  await pair.proxy.open();
}

async function assertCommandSaysSo(url: string, account: string): Promise<void> {
  const { code, err } = await runCli(
    { MATTING_DATABASE_URL: url },
    'credits',
    'grant',
    account,
    '5',
  );
  assert.equal(code, 1);
  assert.match(err, /^matting: The .* is read-only\..*: .*(--read-only|READ ONLY).*\n$/m);
}
