/** Jobs of the playground: an allowance in place of credits, behind what is paid for. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { it } from 'node:test';
import {
  DAY_MS,
  PLAYGROUND_ACCOUNT_OPEN_MAX,
  PLAYGROUND_OPEN_MAX,
} from '../../../src/domain/playground.ts';
import type { Claim } from '../../../src/store/jobs/job-lease.ts';
import type { NewJob } from '../../../src/store/jobs/job-submission.ts';
import {
  assertBalanced,
  claimed,
  describeStores,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  PLAYGROUND_LIMITS,
  reread,
  resultOf,
  SERVICE_FAULT,
  submitted,
} from '../fixtures.ts';

describeStores('the playground', ({ database, stores, replica }) => {
  const others = replica();

  /** Of an account without credits, unless one is given. */
  async function jobOf(account?: string, overrides: Partial<NewJob> = {}): Promise<NewJob> {
    const accountId = account ?? (await fundedAccount(stores, 0));
    const apiKeyId = await stores.playground.internalKey(accountId);
    return newJob(accountId, { apiKeyId, class: 'playground', ...overrides });
  }

  async function opened(job: NewJob): Promise<Claim> {
    const { kind } = await stores.jobs.submit(job, PLAYGROUND_LIMITS);
    assert.equal(kind, 'created');
    const claim = await claimed(stores, { id: job.id, fence: 0 });
    assert.ok(await stores.jobs.admitted(claim));
    return claim;
  }

  const used = async (account: string) => (await stores.playground.usage(account)).used;

  async function entriesOf(account: string): Promise<number> {
    const rows = await database.kysely
      .selectFrom('ledger_entries')
      .select('id')
      .where('account_id', '=', account)
      .execute();
    return rows.length;
  }

  it('writes no ledger entry and moves no balance, however a job ends', async () => {
    const account = await fundedAccount(stores, 0);
    for (const failure of [undefined, IMAGE_FAULT, SERVICE_FAULT]) {
      const claim = await opened(await jobOf(account));
      const ended =
        failure === undefined
          ? await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, { infer: 1 })
          : await stores.jobs.fail(claim, failure);
      assert.ok(ended);
      assert.ok((await reread(stores, claim.jobId)).playgroundDayMs !== null);
    }
    await opened(await jobOf(account));
    assert.equal(await entriesOf(account), 0);
    assert.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
    await assertBalanced(stores);
    await assertBalanced(stores, account);
  });

  it('takes nothing of what is reserved for jobs that are paid for', async () => {
    const account = await fundedAccount(stores, 1);
    await submitted(stores, newJob(account));
    const claim = await opened(await jobOf(account));
    assert.ok(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
    assert.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
    await assertBalanced(stores, account);
  });

  it('is audited: an entry of one of its jobs is a problem', async () => {
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
    assert.match(words, /of the playground, its ledger has a reserve/);
    await database.kysely.deleteFrom('ledger_entries').where('id', '=', entry.id).execute();
    await assertBalanced(stores, job.accountId);
  });

  it('counts the pictures of a day, and gives back what failed by no fault of theirs', async () => {
    const account = await fundedAccount(stores, 0);
    const limits = { playgroundImagesMax: 2 };
    const take = async () => stores.jobs.submit(await jobOf(account), limits);
    const first = await opened(await jobOf(account));
    const second = await opened(await jobOf(account));
    assert.equal((await take()).kind, 'allowance-used');
    await stores.jobs.fail(first, IMAGE_FAULT);
    assert.equal((await take()).kind, 'allowance-used');
    await stores.jobs.fail(second, SERVICE_FAULT);
    assert.equal(await used(account), 1);
    assert.equal((await take()).kind, 'created');
    assert.equal((await take()).kind, 'allowance-used');
    assert.equal(
      (await stores.jobs.submit(await jobOf(), { playgroundImagesMax: 0 })).kind,
      'allowance-used',
    );
  });

  it('counts each day anew, and none twice where the clock is set back', async () => {
    const account = await fundedAccount(stores, 0);
    const limits = { playgroundImagesMax: 1 };
    const claim = await opened(await jobOf(account));
    const shift = (byMs: number) =>
      database.kysely
        .updateTable('playgrounds')
        .set(eb => ({ day_at: eb('day_at', '+', byMs) }))
        .where('account_id', '=', account)
        .execute();
    await shift(-DAY_MS);
    assert.equal(await used(account), 0);
    assert.equal((await stores.jobs.submit(await jobOf(account), limits)).kind, 'created');
    // What is given back of yesterday is none of today's.
    await database.kysely
      .updateTable('jobs')
      .set(eb => ({ playground_day: eb('playground_day', '-', DAY_MS) }))
      .where('id', '=', claim.jobId)
      .execute();
    await stores.jobs.fail(claim, SERVICE_FAULT);
    assert.equal(await used(account), 1);
    await shift(DAY_MS);
    const { kind } = await stores.jobs.submit(await jobOf(account), limits);
    assert.equal(kind, 'allowance-used');
  });

  it('passes no allowance, however many ask two replicas at once', async () => {
    const account = await fundedAccount(stores, 0);
    const limits = { playgroundImagesMax: 3 };
    const jobs = await Promise.all(Array.from({ length: 24 }, () => jobOf(account)));
    const outcomes = await Promise.all(
      jobs.map((job, index) => (index % 2 ? stores : others).jobs.submit(job, limits)),
    );
    const created = outcomes.filter(({ kind }) => kind === 'created');
    assert.equal(created.length, limits.playgroundImagesMax);
    assert.equal(await used(account), limits.playgroundImagesMax);
  });

  it('takes few open jobs of an account, and counts none of those it refuses', async () => {
    const account = await fundedAccount(stores, 0);
    const jobs = await Promise.all(
      Array.from({ length: PLAYGROUND_ACCOUNT_OPEN_MAX + 3 }, () => jobOf(account)),
    );
    const outcomes = await Promise.all(
      jobs.map((job, index) => (index % 2 ? stores : others).jobs.submit(job, PLAYGROUND_LIMITS)),
    );
    const kinds = Map.groupBy(outcomes, ({ kind }) => kind);
    assert.equal(kinds.get('created')?.length, PLAYGROUND_ACCOUNT_OPEN_MAX);
    assert.equal(kinds.get('too-many-open')?.length, 3);
    assert.equal(await used(account), PLAYGROUND_ACCOUNT_OPEN_MAX);
    const open = await stores.playground.openJobs();
    assert.ok(open >= PLAYGROUND_ACCOUNT_OPEN_MAX && open <= PLAYGROUND_OPEN_MAX);
  });

  it('makes one job of a form that is sent twice at once', async () => {
    const job = await jobOf();
    const again = await jobOf(job.accountId);
    const twin = { ...again, idempotencyKeyHash: job.idempotencyKeyHash };
    const outcomes = await Promise.all([
      stores.jobs.submit(job, PLAYGROUND_LIMITS),
      others.jobs.submit(twin, PLAYGROUND_LIMITS),
    ]);
    assert.deepEqual(outcomes.map(({ kind }) => kind).sort(), ['created', 'exists']);
    assert.equal(await used(job.accountId), 1);
  });

  it('has one key an account, made once, that authenticates nobody', async () => {
    const account = await fundedAccount(stores, 0);
    const keys = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        (index % 2 ? stores : others).playground.internalKey(account),
      ),
    );
    assert.equal(new Set(keys).size, 1);
    const rows = await database.kysely
      .selectFrom('api_keys')
      .select(['id', 'purpose'])
      .where('account_id', '=', account)
      .execute();
    assert.deepEqual(
      rows.map(({ id, purpose }) => [id, purpose]),
      [[keys[0], 'playground']],
    );
  });

  it('stands behind all others, in a lane of its own, finishing or not', async () => {
    const accountId = await fundedAccount(stores, 10);
    const before = await stores.playground.openJobs();
    const mine = [
      await jobOf(accountId),
      await jobOf(accountId, { finishing: { outputWidth: 10 } }),
    ];
    for (const job of mine) await stores.jobs.submit(job, PLAYGROUND_LIMITS);
    const paid = [
      await submitted(stores, newJob(accountId)),
      await submitted(stores, newJob(accountId, { finishing: { outputWidth: 10 } })),
      await submitted(stores, newJob(accountId, { class: 'sync' })),
    ];
    const idsOf = (jobs: readonly { id: string }[]) => new Set(jobs.map(({ id }) => id));
    const all = await stores.jobs.listLanes();
    const lanes = all.filter(lane => lane.accountId === accountId);
    assert.equal(lanes.length, 3);
    assert.equal(lanes.filter(lane => lane.class === 'playground').length, 1);
    const listed = await stores.jobs.listClaimable(100, lanes);
    assert.deepEqual(idsOf(listed.slice(0, 3)), idsOf(paid));
    assert.deepEqual(idsOf(listed.slice(3)), idsOf(mine));
    assert.deepEqual(
      listed.slice(3).map(job => job.class),
      ['playground', 'playground'],
    );
    const open = { states: ['ready'] as const, endedWithinMs: HOUR_MS, limit: 4, accountId };
    const page = await stores.jobs.list(open);
    const rest = await stores.jobs.list({ ...open, after: page.at(-1)!.cursor });
    assert.deepEqual([page.length, rest.length], [4, 1]);
    assert.deepEqual(idsOf([...page, ...rest].slice(3)), idsOf(mine));
    assert.equal((await stores.jobs.queued()).byAccount.get(accountId)?.jobs, 3);
    assert.equal(await stores.playground.openJobs(), before + 2);
  });
});
