import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Database } from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { removeFrom, setIn } from '@matting/database/test/rows.ts';
import { useTestDatabase } from '@matting/test-support/database.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { sql } from 'kysely';
import {
  assertBalanced,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  onStores,
  running,
  runningOf,
  storesOn,
  submitted,
  successOf,
} from '../fixtures.ts';

const test = ava.serial;

onStores(test, 'the ledger', (test, { dialect, database, stores }) => {
  test('grants once a reference, and says so when the amount differs', async t => {
    const account = await fundedAccount(stores, 0);
    t.deepEqual(await stores.ledger.grant(account, 10, 'order 1'), {
      kind: 'entered',
      balances: { available: 10, reserved: 0 },
    });
    t.deepEqual(await stores.ledger.grant(account, 10, 'order 1'), {
      kind: 'already-entered',
      balances: { available: 10, reserved: 0 },
    });
    t.deepEqual(await stores.ledger.grant(account, 11, 'order 1'), {
      kind: 'reference-conflict',
      amount: 10,
    });
    t.is((await stores.ledger.grant(account, 10, 'ORDER 1')).kind, 'entered');
    t.is((await stores.ledger.grant(randomUUID(), 1, 'x')).kind, 'unknown-account');
    t.is(await stores.ledger.balances(randomUUID()), undefined);
    await assertBalanced(stores);
  });

  test('revokes all of it or nothing, never below zero available', async t => {
    const account = await fundedAccount(stores, 3);
    await submitted(stores, newJob(account));
    t.deepEqual(await stores.ledger.revoke(account, 3, 'refund'), {
      kind: 'insufficient-credits',
      balances: { available: 2, reserved: 1 },
    });
    t.is((await stores.ledger.revoke(account, 2, 'refund')).kind, 'entered');
    t.is((await stores.ledger.revoke(account, 2, 'refund')).kind, 'already-entered');
    t.is((await stores.ledger.revoke(account, 1, 'first')).kind, 'insufficient-credits');
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
    await assertBalanced(stores);
  });

  test('reserves a credit of each job in flight, up to the bound and no further', async t => {
    const account = await fundedAccount(stores, 10);
    const submit = () => stores.queue.submit(newJob(account), { jobsInFlightMax: 2 });
    const kinds = [await submit(), await submit(), await submit()].map(({ kind }) => kind);
    t.deepEqual(kinds, ['created', 'created', 'too-many-in-flight']);
    t.deepEqual(await stores.ledger.balances(account), { available: 8, reserved: 2 });
    await assertBalanced(stores);
  });

  test('refuses a malformed amount or reference', async t => {
    const account = await fundedAccount(stores, 1);
    for (const amount of [0, -1, 0.5, Number.NaN, 2 ** 53, 1_000_000_001]) {
      await t.throwsAsync(stores.ledger.grant(account, amount, 'x'), { message: /amount/ });
    }
    for (const reference of ['', ' x', 'x ', 'é', 'a\nb', 'x'.repeat(129)]) {
      await t.throwsAsync(stores.ledger.grant(account, 1, reference), { message: /reference/ });
    }
    t.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
  });

  const entry = (account: string, job: string, kind: 'reserve' | 'charge' | 'release') =>
    database.kysely
      .insertInto('ledger_entries')
      .values({
        id: randomUUID(),
        account_id: account,
        job_id: job,
        kind,
        slot: kind === 'reserve' ? 'reserve' : 'settle',
        reference: job,
        amount: 1,
        created_at: database.nowMs,
      })
      .execute();
  const isDuplicate = (error: unknown) => databaseErrorKind(error) === 'duplicate';

  test('the schema › forbids a second reserve, a second charge, and charge with release', async t => {
    const { account, job, claim } = await runningOf(stores, 2);
    await rejectsWith(t, entry(account, job.id, 'reserve'), isDuplicate);
    await stores.queue.succeed(claim, successOf(claim));
    await rejectsWith(t, entry(account, job.id, 'charge'), isDuplicate);
    await rejectsWith(t, entry(account, job.id, 'release'), isDuplicate);
    await assertBalanced(stores);
  });

  test('the schema › forbids balances below zero, amounts of nothing, kinds in the wrong slot', async t => {
    const account = await fundedAccount(stores, 1);
    const accounts = database.kysely.updateTable('accounts').where('id', '=', account);
    await t.throwsAsync(accounts.set({ available: -1 }).execute());
    await t.throwsAsync(accounts.set({ reserved: -1 }).execute());
    const values = {
      id: randomUUID(),
      account_id: account,
      job_id: null,
      kind: 'grant' as const,
      slot: 'grant' as const,
      reference: 'r',
      amount: 1,
      created_at: 1,
    };
    const bad = [{ amount: 0 }, { slot: 'settle' as const }, { job_id: randomUUID() }];
    for (const wrong of bad) {
      const insert = database.kysely.insertInto('ledger_entries').values({ ...values, ...wrong });
      await t.throwsAsync(insert.execute());
    }
    await assertBalanced(stores);
  });

  test('the schema › forbids a job whose columns contradict its state', async t => {
    const { id } = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    const wrong = [
      { state: 'succeeded' as const },
      { finished_at: 1 },
      { state: 'running' as const },
      { input_blob: null },
      { lease_holder: 'somebody' },
      { queue_at: null },
      { failure_code: 'PROCESSING_FAILED' },
      { fence: -1 },
      { class: 'later' as 'sync' },
    ];
    for (const set of wrong) {
      const update = database.kysely.updateTable('jobs').set(set).where('id', '=', id);
      await t.throwsAsync(update.execute(), undefined, `${JSON.stringify(set)} was accepted`);
    }
  });

  test('the schema › keeps text and bytes as they are, and refuses values that it would cut', async t => {
    const name = 'Zoë 日本 😀';
    const account = await stores.accounts.create(name);
    t.is(account?.name, name);
    const tooLong = database.kysely.updateTable('nodes').set({ version: 'x'.repeat(65) });
    await stores.nodes.register(
      { nodeId: 'n', bootId: randomUUID(), address: 'a:1', httpAddress: '', version: '1' },
      1000,
    );
    if (dialect === 'mysql') await t.throwsAsync(tooLong.execute());
  });

  const brokenDatabases = useTestDatabase(test, dialect);

  async function problemsAfter(
    breakIt: (broken: Database, account: string) => Promise<unknown>,
  ): Promise<string> {
    const broken = await brokenDatabases.open();
    const own = storesOn(broken);
    const account = await fundedAccount(own, 5);
    const verdict = async () =>
      (await own.ledger.check())
        .filter(({ accountId }) => accountId === account)
        .map(({ problem }) => problem)
        .join('\n');
    const done = await running(own, newJob(account));
    await own.queue.succeed(done.claim, successOf(done.claim, { resultTtlMs: 0 }));
    const failed = await running(own, newJob(account));
    await own.queue.fail(failed.claim, IMAGE_FAULT);
    await submitted(own, newJob(account));
    assert.equal(await verdict(), '');
    await breakIt(broken, account);
    return verdict();
  }

  test('the check › finds a settlement of the wrong kind although every sum is right', async t => {
    const problems = await problemsAfter((broken, account) =>
      setIn(
        broken.kysely,
        'ledger_entries',
        { account_id: account, slot: 'settle' },
        { kind: sql`case kind when 'charge' then 'release' else 'charge' end` },
      ),
    );
    t.deepEqual(problems.split('\n').sort(), [
      'the job is failed, its ledger has reserve 1 and charge 1',
      'the job is succeeded, its ledger has reserve 1 and release 1',
    ]);
  });

  test('the check › finds an open job that was removed, and entries of nobody', async t => {
    const problems = await problemsAfter((broken, account) =>
      removeFrom(broken.kysely, 'jobs', { account_id: account, state: 'ready' }),
    );
    t.regex(problems, /reserved is 1, its open jobs hold 0/);
    const orphans = await problemsAfter((broken, account) =>
      removeFrom(broken.kysely, 'accounts', { id: account }),
    );
    t.regex(orphans, /an account that does not exist/);
  });
});
