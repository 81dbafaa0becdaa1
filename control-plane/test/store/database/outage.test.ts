/**
 * A MySQL or MariaDB server that goes away in the middle: nothing twice, nothing lost, a clear
 * answer.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { sql } from 'kysely';
import { at } from '../../../../test/support/at.ts';
import { SILENT_LOG, skipReason, useTestDatabase } from '../../../../test/support/database.ts';
import { type Database, openDatabase } from '../../../src/store/database/connect.ts';
import { transact } from '../../../src/store/database/transact.ts';
import type { Stores } from '../../../src/store/stores.ts';
import {
  assertBalanced,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  resultOf,
  running,
  storesOn,
  submitted,
} from '../fixtures.ts';
import { DatabaseProxy } from './database-proxy.ts';

const isUnavailable = { code: 'SERVICE_UNAVAILABLE', retryable: true };

async function placeOf(db: Database['kysely']): Promise<{ server: string; id: number }> {
  const { rows } = await sql<{ server: string; id: number }>`select connection_id() as id,
    concat(@@hostname, ':', @@port) as server`.execute(db);
  return at(rows, 0);
}

describe('a database that goes away', { skip: skipReason('mysql') }, () => {
  const databases = useTestDatabase('mysql');
  let proxy: DatabaseProxy;
  let database: Database;
  let stores: Stores;
  const warnings: unknown[] = [];

  before(async () => {
    proxy = new DatabaseProxy(databases.url());
    await proxy.open();
    const log = { ...SILENT_LOG, warn: (...args: unknown[]) => warnings.push(args) };
    database = await openDatabase(proxy.url, { log });
    stores = storesOn(database);
  });
  after(async () => {
    await database.close();
    await proxy.close();
  });

  it('a submission whose commit was not answered is made once, and is the caller’s', async () => {
    const account = await fundedAccount(stores, 3);
    const job = newJob(account);
    proxy.loseCommits(1);
    const created = await submitted(stores, job);
    assert.equal(proxy.lostCommits, 1);
    assert.equal(created.id, job.id);
    assert.deepEqual(await stores.ledger.balances(account), { available: 2, reserved: 1 });
    await assertBalanced(stores);
  });

  it('an ending whose commit was not answered is one ending', async () => {
    const account = await fundedAccount(stores, 2);
    const charged = await running(stores, newJob(account));
    const released = await running(stores, newJob(account));
    const lostBefore = proxy.lostCommits;
    proxy.loseCommits(1);
    const result = resultOf(charged.claim);
    assert.equal(await stores.jobs.succeed(charged.claim, result, HOUR_MS, {}), true);
    proxy.loseCommits(1);
    assert.equal(await stores.jobs.fail(released.claim, IMAGE_FAULT), true);
    assert.equal(proxy.lostCommits - lostBefore, 2);
    assert.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
    await assertBalanced(stores);
  });

  it('a grant and an account whose answers were lost are entered once', async () => {
    const account = await fundedAccount(stores, 0);
    proxy.loseCommits(1);
    const outcome = await stores.ledger.grant(account, 5, 'order');
    assert.equal(outcome.kind, 'already-entered');
    assert.deepEqual(await stores.ledger.balances(account), { available: 5, reserved: 0 });
  });

  it('a connection killed in the middle of a transaction costs a second round', async () => {
    const account = await fundedAccount(stores, 1);
    let rounds = 0;
    await transact(database, async tx => {
      await tx
        .updateTable('accounts')
        .set(eb => ({ available: eb('available', '+', 10) }))
        .where('id', '=', account)
        .execute();
      if (++rounds === 1) {
        const { server, id } = await placeOf(tx);
        // Connections have their numbers at one server; a cluster's address leads to several.
        for (let killed = false; !killed; ) {
          const direct = await databases.open();
          killed = (await placeOf(direct.kysely)).server === server;
          if (killed) await sql.raw(`kill ${id}`).execute(direct.kysely);
        }
      }
      await tx
        .updateTable('accounts')
        .set(eb => ({ available: eb('available', '-', 10) }))
        .where('id', '=', account)
        .execute();
    });
    assert.equal(rounds, 2);
    await assertBalanced(stores);
  });

  it('a server that no longer answers does not hold its callers', async () => {
    const impatient = await openDatabase(proxy.url, { log: SILENT_LOG, statementMsMax: 2000 });
    try {
      const own = storesOn(impatient);
      const account = await fundedAccount(own, 1);
      const job = newJob(account);
      proxy.setSilent(true);
      await assert.rejects(own.jobs.submit(job, { jobsInFlightMax: 10 }), isUnavailable);
      proxy.setSilent(false);
      await submitted(own, job);
      await assertBalanced(own);
    } finally {
      proxy.setSilent(false);
      await impatient.close();
    }
  });

  it('while it is away all calls say SERVICE_UNAVAILABLE, then all is as it was', async () => {
    const account = await fundedAccount(stores, 2);
    const open = await running(stores, newJob(account));
    const job = newJob(account);
    await proxy.close();
    const calls = [
      stores.check(),
      stores.jobs.submit(job, { jobsInFlightMax: 10 }),
      stores.jobs.find(job.id),
      stores.jobs.renew(open.claim, 1000),
      stores.jobs.succeed(open.claim, resultOf(open.claim), HOUR_MS, {}),
      stores.jobs.listClaimable(1),
      stores.apiKeys.list(),
      stores.nodes.listLive(),
    ];
    const outcomes = await Promise.allSettled(calls);
    for (const outcome of outcomes) {
      assert.equal(outcome.status, 'rejected');
      const { code, retryable } = (outcome as PromiseRejectedResult).reason;
      assert.deepEqual({ code, retryable }, isUnavailable);
    }
    assert.ok(warnings.length > 0, 'the outage was logged');
    await proxy.open();
    await stores.check();
    await submitted(stores, job);
    const result = resultOf(open.claim);
    assert.equal(await stores.jobs.succeed(open.claim, result, HOUR_MS, {}), true);
    await assertBalanced(stores);
  });
});
