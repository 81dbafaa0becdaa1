/** A primary that is demoted under a pool of connections: the pool follows the address. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { SILENT_LOG } from '../../../../test/support/database.ts';
import { type Database, openDatabase } from '../../../src/store/database/connect.ts';
import {
  type DatabaseErrorKind,
  databaseErrorKind,
} from '../../../src/store/database/database-errors.ts';
import { transact } from '../../../src/store/database/transact.ts';
import { until } from '../../services/dispatch/harness.ts';
import { runCli } from '../../support/cli.ts';
import {
  assertBalanced,
  fundedAccount,
  HOUR_MS,
  newJob,
  storesOn,
  submitted,
} from '../fixtures.ts';
import { DatabasePair, pairSkipReason } from './database-pair.ts';

const QUOTA_ASK = { limit: 600, block: 10, advance: 10, windowStartMs: 0 };
const LIMITS = { jobsInFlightMax: 100 };
const isReadOnly = {
  code: 'SERVICE_UNAVAILABLE',
  retryable: true,
  message: 'the database is read-only',
};

describe('what a server that is no primary says', () => {
  const kinds: [errno: number, kind: DatabaseErrorKind, where: string][] = [
    [1036, 'read-only', 'innodb_read_only'],
    [1047, 'read-only', 'a Galera node outside the majority'],
    [1290, 'read-only', 'read_only, super_read_only'],
    [1792, 'read-only', 'transaction_read_only'],
    [1836, 'read-only', 'innodb_read_only'],
    [1874, 'read-only', 'innodb_read_only'],
    [2003, 'connection', 'a router without a primary'],
    [3032, 'connection', 'offline mode'],
    [3100, 'connection', 'Group Replication, commit of unknown end'],
    [3101, 'conflict', 'Group Replication, certification'],
  ];
  for (const [errno, kind, where] of kinds) {
    it(`${errno} is ${kind}: ${where}`, () => {
      assert.equal(databaseErrorKind(Object.assign(new Error(where), { errno })), kind);
    });
  }
});

describe('a primary that is demoted', { skip: pairSkipReason }, () => {
  let pair: DatabasePair;
  let database: Database;

  before(async () => {
    pair = await DatabasePair.create();
  });
  beforeEach(async () => {
    database = await openDatabase(pair.url, { log: SILENT_LOG });
  });
  afterEach(async () => {
    await database.close();
    await pair.switchBack();
  });
  after(() => pair?.close());

  for (const demotion of ['read_only = 1', 'tx_read_only = 1']) {
    it(`by ${demotion} is left by the whole pool with the first write it refuses`, async () => {
      const stores = storesOn(database);
      const account = await fundedAccount(stores, 10);
      // Many connections, all of them to the first.
      const jobs = Array.from({ length: 8 }, () => newJob(account));
      await Promise.all(jobs.map(job => submitted(stores, job)));
      assert.ok((await pair.first.connections()) > 1);
      await pair.demoteFirst(demotion);
      // That one holds for new sessions alone.
      if (demotion.startsWith('tx_')) await breakConnections(pair);

      await Promise.all([
        assert.rejects(stores.jobs.submit(newJob(account), LIMITS), isReadOnly),
        assert.rejects(stores.check(), isReadOnly),
        assertCommandSaysSo(pair.url, account),
        assert.rejects(stores.nodes.heartbeat('node', randomUUID(), HOUR_MS), isReadOnly),
        assert.rejects(stores.rateQuotas.lease(account, 'reads', QUOTA_ASK), isReadOnly),
      ]);
      const { id } = at(jobs, 0);
      assert.equal((await stores.jobs.find(id))?.id, id, 'reads go on');

      pair.promoteSecond();
      await submitted(stores, newJob(account));
      await stores.check();
      const { granted } = await stores.rateQuotas.lease(account, 'reads', QUOTA_ASK);
      assert.equal(granted, 10);
      assert.equal((await stores.nodes.heartbeat('node', randomUUID(), HOUR_MS)).known, false);
      assert.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 9 });
      const readOnce = () => Promise.all(jobs.map(job => stores.jobs.find(job.id)));
      await until(async () => {
        await readOnce();
        return (await pair.first.connections()) === 0;
      }, 'that nobody is left at the old primary');
      await assertBalanced(storesOn(pair.second.database));
    });
  }

  it('takes nothing of an open transaction, which runs again as a whole elsewhere', async () => {
    const stores = storesOn(database);
    const account = await fundedAccount(stores, 1);
    let rounds = 0;
    await transact(database, async tx => {
      await tx
        .updateTable('accounts')
        .set(eb => ({ available: eb('available', '+', 10) }))
        .where('id', '=', account)
        .execute();
      if (++rounds > 1) return;
      // Waits for no open transaction, but refuses its commit.
      await pair.demoteFirst();
      pair.promoteSecond();
    });
    assert.equal(rounds, 2);
    assert.deepEqual(await stores.ledger.balances(account), { available: 11, reserved: 0 });
    const old = await storesOn(pair.first.database).ledger.balances(account);
    assert.deepEqual(old, { available: 1, reserved: 0 }, 'nothing of it stayed behind');
  });

  it('leaves readers their connections while there is no primary', async () => {
    const stores = storesOn(database);
    const account = await fundedAccount(stores, 1);
    await pair.demoteFirst();
    await Promise.allSettled(
      Array.from({ length: 20 }, () => stores.jobs.submit(newJob(account), LIMITS)),
    );
    assert.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
  });
});

/** So that sessions begin anew, under what is now the server's default. */
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
  assert.match(err, /^matting: the database is read-only: .*(--read-only|READ ONLY).*\n$/m);
}
