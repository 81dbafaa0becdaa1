/** The playground's allowance holds over replicas, and stands in for money for its jobs. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  reread,
  resultOf,
  SERVICE_FAULT,
  submitted,
} from '@matting/core/test/fixtures.ts';
import type { Claim, NewJob } from '@matting/core/test/internals.ts';
import { addTo, rowsOf } from '@matting/database/test/rows.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import ava from 'ava';
import { onStores, PLAYGROUND_LIMITS } from '../test/fixtures.ts';
import { PLAYGROUND_OPEN_MAX, playgroundAllowance } from './playground-store.ts';

const PLAYGROUND_ACCOUNT_OPEN_MAX = 4;
const test = ava.serial;

const ALLOWANCE_USED = { kind: 'refused', reason: 'allowance-used' };

onStores(test, 'the playground', (test, { database, stores, replica }) => {
  const others = replica();

  async function jobOf(account?: string, overrides: Partial<NewJob> = {}): Promise<NewJob> {
    const accountId = account ?? (await fundedAccount(stores, 0));
    const apiKeyId = await stores.playground.internalKey(accountId);
    return newJob(accountId, { apiKeyId, class: 'playground', ...overrides });
  }

  async function opened(job: NewJob): Promise<Claim> {
    const { kind } = await stores.jobs.submit(job, PLAYGROUND_LIMITS);
    assert.equal(kind, 'created');
    const claim = await claimed(stores, { id: job.id });
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
          ? await stores.queue.succeed(claim, resultOf(claim), HOUR_MS, { infer: 1 })
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
    t.truthy(await stores.queue.succeed(claim, resultOf(claim), HOUR_MS, {}));
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
    await assertBalanced(stores, account);
  });

  test('is audited: an entry of one of its jobs is a problem', async t => {
    const job = await jobOf(await fundedAccount(stores, 5));
    await stores.jobs.submit(job, PLAYGROUND_LIMITS);
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
    const limits = { allowance: playgroundAllowance(2) };
    const take = async () => stores.jobs.submit(await jobOf(account), limits);
    const first = await opened(await jobOf(account));
    const second = await opened(await jobOf(account));
    t.like(await take(), ALLOWANCE_USED);
    await stores.queue.fail(first, IMAGE_FAULT);
    t.like(await take(), ALLOWANCE_USED);
    await stores.queue.fail(second, SERVICE_FAULT);
    t.is(await used(account), 1);
    t.is((await take()).kind, 'created');
    t.like(await take(), ALLOWANCE_USED);
    const none = { allowance: playgroundAllowance(0) };
    t.like(await stores.jobs.submit(await jobOf(), none), ALLOWANCE_USED);
  });

  test('counts each day anew, and none twice where the clock is set back', async t => {
    const account = await fundedAccount(stores, 0);
    const limits = { allowance: playgroundAllowance(1) };
    const claim = await opened(await jobOf(account));
    const shift = (byMs: number) =>
      addTo(database.kysely, 'playgrounds', { account_id: account }, { day_at: byMs });
    await shift(-DAY_MS);
    t.is(await used(account), 0);
    t.is((await stores.jobs.submit(await jobOf(account), limits)).kind, 'created');
    // A picture of yesterday that is given back does not change today's count.
    await addTo(database.kysely, 'jobs', { id: claim.jobId }, { playground_day: -DAY_MS });
    await stores.queue.fail(claim, SERVICE_FAULT);
    t.is(await used(account), 1);
    await shift(DAY_MS);
    t.like(await stores.jobs.submit(await jobOf(account), limits), ALLOWANCE_USED);
  });

  test('passes no allowance, however many ask two replicas at once', async t => {
    const account = await fundedAccount(stores, 0);
    const limits = { allowance: playgroundAllowance(3) };
    const jobs = await Promise.all(Array.from({ length: 24 }, () => jobOf(account)));
    const outcomes = await Promise.all(
      jobs.map((job, index) => (index % 2 ? stores : others).jobs.submit(job, limits)),
    );
    const created = outcomes.filter(({ kind }) => kind === 'created');
    t.is(created.length, 3);
    t.is(await used(account), 3);
  });

  test('takes few open jobs of an account, and counts none of those it refuses', async t => {
    const account = await fundedAccount(stores, 0);
    const jobs = await Promise.all(
      Array.from({ length: PLAYGROUND_ACCOUNT_OPEN_MAX + 3 }, () => jobOf(account)),
    );
    const outcomes = await Promise.all(
      jobs.map((job, index) => (index % 2 ? stores : others).jobs.submit(job, PLAYGROUND_LIMITS)),
    );
    const kinds = Map.groupBy(outcomes, one => ('reason' in one ? one.reason : one.kind));
    t.is(kinds.get('created')?.length, PLAYGROUND_ACCOUNT_OPEN_MAX);
    t.is(kinds.get('too-many-open')?.length, 3);
    t.is(await used(account), PLAYGROUND_ACCOUNT_OPEN_MAX);
    const open = await stores.queue.openUnpaid(PLAYGROUND_OPEN_MAX);
    t.true(open >= PLAYGROUND_ACCOUNT_OPEN_MAX && open <= PLAYGROUND_OPEN_MAX);
  });

  test('makes one job of a form that is sent twice at once', async t => {
    const job = await jobOf();
    const again = await jobOf(job.accountId);
    const twin = { ...again, idempotencyKeyHash: job.idempotencyKeyHash };
    const outcomes = await Promise.all([
      stores.jobs.submit(job, PLAYGROUND_LIMITS),
      others.jobs.submit(twin, PLAYGROUND_LIMITS),
    ]);
    t.deepEqual(outcomes.map(({ kind }) => kind).sort(), ['created', 'exists']);
    t.is(await used(job.accountId), 1);
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

  test('stands behind all others in the list of jobs', async t => {
    const accountId = await fundedAccount(stores, 10);
    const mine = [await jobOf(accountId), await jobOf(accountId)];
    for (const job of mine) await stores.jobs.submit(job, PLAYGROUND_LIMITS);
    for (let paid = 0; paid < 3; paid += 1) await submitted(stores, newJob(accountId));
    const open = { states: ['ready'] as const, endedWithinMs: HOUR_MS, limit: 4, accountId };
    const page = await stores.jobs.list(open);
    const rest = await stores.jobs.list({ ...open, after: page.at(-1)!.cursor });
    t.deepEqual([page.length, rest.length], [4, 1]);
    const idsOf = (jobs: readonly { id: string }[]) => jobs.map(({ id }) => id).sort();
    t.deepEqual(idsOf([...page, ...rest].slice(3)), idsOf(mine));
  });
});
