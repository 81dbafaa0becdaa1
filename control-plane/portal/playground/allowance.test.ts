import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  reread,
  SERVICE_FAULT,
  submitted,
  successOf,
} from '@matting/core/test/fixtures.ts';
import type { Claim, NewJob } from '@matting/core/test/internals.ts';
import { addTo, rowOf, rowsOf } from '@matting/database/test/rows.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import ava from 'ava';
import { onStores } from '../test/fixtures.ts';

const test = ava.serial;

onStores(test, 'the playground', (test, { database, stores, replica }) => {
  const others = replica();

  async function accountWithPlayground(): Promise<string> {
    const account = await fundedAccount(stores, 0);
    await stores.playground.internalKey(account);
    return account;
  }

  async function jobOf(account?: string, imagesMax = 20): Promise<NewJob> {
    const accountId = account ?? (await fundedAccount(stores, 0));
    const apiKeyId = await stores.playground.internalKey(accountId);
    const unpaidDayMs = await stores.playground.take(accountId, imagesMax);
    assert.ok(unpaidDayMs);
    return newJob(accountId, { apiKeyId, class: 'playground', unpaidDayMs });
  }

  async function opened(job: NewJob): Promise<Claim> {
    const claim = await claimed(stores, await submitted(stores, job));
    assert.ok(await stores.queue.admitted(claim));
    return claim;
  }

  const used = async (account: string) => (await stores.playground.usage(account)).used;

  async function entriesOf(account: string): Promise<number> {
    const rows = await rowsOf(database.kysely, 'ledger_entries', { account_id: account });
    return rows.length;
  }

  test('writes no ledger entry and moves no balance, however a job ends', async t => {
    const account = await fundedAccount(stores, 0);
    for (const failure of [undefined, IMAGE_FAULT, SERVICE_FAULT]) {
      const claim = await opened(await jobOf(account));
      const ended =
        failure === undefined
          ? await stores.queue.succeed(claim, successOf(claim, { timings: { infer: 1 } }))
          : await stores.queue.fail(claim, failure);
      t.truthy(ended);
      t.true((await reread(stores, claim.jobId)).unpaidDayMs !== null);
    }
    await opened(await jobOf(account));
    t.is(await entriesOf(account), 0);
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
    await assertBalanced(stores);
    await assertBalanced(stores, account);
  });

  test('takes nothing of what is reserved for jobs that are paid for', async t => {
    const account = await fundedAccount(stores, 1);
    await submitted(stores, newJob(account));
    const claim = await opened(await jobOf(account));
    t.truthy(await stores.queue.succeed(claim, successOf(claim)));
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
    await assertBalanced(stores, account);
  });

  test('is audited: an entry of one of its jobs is a problem', async t => {
    const job = await jobOf(await fundedAccount(stores, 5));
    await submitted(stores, job);
    await assertBalanced(stores, job.accountId);
    const entry = { id: randomUUID(), account_id: job.accountId, job_id: job.id, amount: 1 };
    await database.kysely
      .insertInto('ledger_entries')
      .values({ ...entry, kind: 'reserve', slot: 'reserve', reference: job.id, created_at: 1 })
      .execute();
    const problems = await stores.ledger.check(job.accountId);
    const words = problems.map(({ problem }) => problem).join('; ');
    t.regex(words, /the job has no credit, its ledger has a reserve/);
    await database.kysely.deleteFrom('ledger_entries').where('id', '=', entry.id).execute();
    await assertBalanced(stores, job.accountId);
  });

  test('counts the pictures of a day, and gives back what failed by no fault of theirs', async t => {
    const account = await fundedAccount(stores, 0);
    const first = await opened(await jobOf(account, 2));
    const second = await opened(await jobOf(account, 2));
    const take = (imagesMax = 2) => stores.playground.take(account, imagesMax);
    t.is(await take(), undefined);
    await stores.queue.fail(first, IMAGE_FAULT);
    t.is(await take(), undefined);
    await stores.queue.fail(second, SERVICE_FAULT);
    t.is(await used(account), 1);
    t.truthy(await take());
    t.is(await take(), undefined);
    t.is(await stores.playground.take(await accountWithPlayground(), 0), undefined);
  });

  test('counts each day anew, and none twice where the clock is set back', async t => {
    const account = await fundedAccount(stores, 0);
    const claim = await opened(await jobOf(account));
    const { day_at: today } = await rowOf(database.kysely, 'playgrounds', { account_id: account });
    const shift = (byMs: number) =>
      addTo(database.kysely, 'playgrounds', { account_id: account }, { day_at: byMs });
    await shift(-DAY_MS);
    t.is(await used(account), 0);
    t.is(await stores.playground.take(account, 1), today);
    // A returned picture of yesterday does not change today's count.
    await addTo(database.kysely, 'jobs', { id: claim.jobId }, { playground_day: -DAY_MS });
    await stores.queue.fail(claim, SERVICE_FAULT);
    await stores.playground.giveBack(account, today - DAY_MS);
    t.is(await used(account), 1);
    await shift(DAY_MS);
    t.is(await stores.playground.take(account, 1), undefined);
    t.is(await stores.playground.take(account, 2), today + DAY_MS, 'in the day that it counts');
  });

  test('passes no allowance, however many ask two replicas at once', async t => {
    const account = await accountWithPlayground();
    const days = await Promise.all(
      Array.from({ length: 24 }, (_, index) =>
        (index % 2 ? stores : others).playground.take(account, 3),
      ),
    );
    t.is(days.filter(day => day !== undefined).length, 3);
    t.is(await used(account), 3);
  });

  test('has one key an account, made once, that authenticates nobody', async t => {
    const account = await fundedAccount(stores, 0);
    const keys = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        (index % 2 ? stores : others).playground.internalKey(account),
      ),
    );
    t.is(new Set(keys).size, 1);
    const rows = await rowsOf(database.kysely, 'api_keys', { account_id: account });
    t.deepEqual(
      rows.map(({ id, purpose }) => [id, purpose]),
      [[keys[0], 'playground']],
    );
  });
});
