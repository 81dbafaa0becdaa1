import assert from 'node:assert/strict';
import { OvertakenError } from '@matting/database/database.ts';
import type { SettledJob, SettledStep } from '@matting/queue/settled-steps.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { createStores, type Stores } from '../stores.ts';
import {
  assertBalanced,
  bodyOf,
  fundedAccount,
  newJob,
  onStores,
  reread,
  running,
  SERVICE_FAULT,
  successOf,
} from '../test/fixtures.ts';

const test = ava.serial;

/** MySQL's answer to the transaction that it chose to abort. */
const deadlock = () => Object.assign(new Error('Deadlock found'), { errno: 1213 });

onStores(test, "a step of a job's end", (test, { database, stores }) => {
  test.before(async () => {
    await sql`create table counted (step varchar(20) not null, job_id varchar(36) not null,
      primary key (step, job_id))`.execute(database.kysely);
  });

  const settledJobs: SettledJob[] = [];
  const counting = (name: string): SettledStep => ({
    name,
    async settled(_database, tx, job) {
      settledJobs.push(job);
      await sql`insert into counted (step, job_id) values (${name}, ${job.jobId})`.execute(tx);
    },
  });
  const COUNTS = [counting('first'), counting('last')];

  function failing(fail: () => unknown, times = Number.POSITIVE_INFINITY) {
    const leftOut: string[] = [];
    let calls = 0;
    const step: SettledStep = {
      name: 'failing',
      async settled(at, tx, job) {
        await counting('failing').settled(at, tx, job);
        calls += 1;
        if (calls <= times) await fail();
      },
    };
    const observer = { settledLeftOut: (name: string) => void leftOut.push(name) };
    const settled = [COUNTS[0]!, step, COUNTS[1]!];
    const replica = createStores(database, { renderOutboxBody: bodyOf, settled, observer });
    return { replica, leftOut, calls: () => calls };
  }

  async function countedOf(jobId: string): Promise<string[]> {
    const { rows } = await sql<{
      step: string;
    }>`select step from counted where job_id = ${jobId} order by step`.execute(database.kysely);
    return rows.map(({ step }) => step);
  }

  async function leftOf(jobId: string): Promise<string[]> {
    const rows = await database.kysely
      .selectFrom('unsettled_jobs')
      .select('package')
      .where('job_id', '=', jobId)
      .orderBy('package')
      .execute();
    return rows.map(row => row.package);
  }

  async function ended(replica: Stores, how: 'succeeded' | 'failed' = 'succeeded') {
    const account = await fundedAccount(stores, 1);
    const { claim } = await running(stores, newJob(account));
    const done =
      how === 'succeeded'
        ? await replica.queue.succeed(claim, successOf(claim))
        : await replica.queue.fail(claim, SERVICE_FAULT);
    assert.ok(done);
    assert.equal((await reread(stores, claim.jobId)).state, how);
    await assertBalanced(stores, account);
    return { account, jobId: claim.jobId };
  }

  test('is left out alone if it throws', async t => {
    const { replica, leftOut } = failing(() => {
      throw new Error('a bug');
    });
    const { jobId } = await ended(replica);
    t.deepEqual(await countedOf(jobId), ['first', 'last']);
    t.deepEqual(await leftOf(jobId), ['failing']);
    t.deepEqual(leftOut, ['failing']);
  });

  test('is left out alone if its statement is wrong, or its row exists', async t => {
    const wrong: SettledStep = {
      name: 'wrong',
      async settled(_database, tx) {
        await sql`insert into no_such_table values (1)`.execute(tx);
      },
    };
    const again = { ...counting('first'), name: 'again' };
    const settled = [COUNTS[0]!, wrong, again, COUNTS[1]!];
    const replica = createStores(database, { renderOutboxBody: bodyOf, settled });
    const { jobId } = await ended(replica, 'failed');
    t.deepEqual(await countedOf(jobId), ['first', 'last']);
    t.deepEqual(await leftOf(jobId), ['again', 'wrong']);
  });

  test('has the whole transaction repeated if it ends it', async t => {
    const { replica, leftOut, calls } = failing(() => {
      throw deadlock();
    }, 1);
    const { jobId } = await ended(replica);
    t.deepEqual(await countedOf(jobId), ['failing', 'first', 'last']);
    t.deepEqual([await leftOf(jobId), leftOut, calls()], [[], [], 2]);
  });

  test('is left out with all others once it has ended the transaction twice', async t => {
    for (const end of [deadlock, () => new OvertakenError('a row has changed')]) {
      const { replica, leftOut, calls } = failing(() => {
        throw end();
      });
      const { jobId } = await ended(replica);
      t.deepEqual(await countedOf(jobId), []);
      t.deepEqual(await leftOf(jobId), ['failing', 'first', 'last']);
      t.deepEqual([leftOut, calls()], [['first', 'failing', 'last'], 2]);
    }
  });

  test('is done later, once, however many replicas sweep at once', async t => {
    const { replica } = failing(() => {
      throw deadlock();
    });
    const { jobId, account } = await ended(replica, 'failed');
    const [before] = settledJobs.slice(-1);
    const [healthy, other] = [failing(() => undefined), failing(() => undefined)];
    await Promise.all([healthy, other].map(({ replica }) => replica.unsettled.repair(100)));
    t.deepEqual(await countedOf(jobId), ['failing', 'first', 'last']);
    t.deepEqual([await leftOf(jobId), healthy.leftOut, other.leftOut], [[], [], []]);
    const later = settledJobs.filter(job => job.jobId === jobId && job !== before);
    for (const job of later) t.deepEqual(job, before);
    t.like(before, { accountId: account, outcome: 'failed', retryable: true, credits: 0 });
    t.deepEqual(await healthy.replica.unsettled.repair(100), { done: 0, more: false });
  });

  test('that fails again leaves its job to the next sweep, and delays no other job', async t => {
    const broken = failing(() => {
      throw new Error('a bug');
    });
    const jobs = [await ended(broken.replica), await ended(broken.replica)];
    broken.leftOut.length = 0;
    const settled = { done: 0, more: true };
    t.deepEqual(await broken.replica.unsettled.repair(100), settled);
    t.deepEqual(await broken.replica.unsettled.repair(100), settled);
    t.deepEqual(await broken.replica.unsettled.repair(100), { done: 0, more: false });
    t.deepEqual(broken.leftOut, ['failing', 'failing']);
    const { replica } = failing(() => undefined);
    t.deepEqual(await replica.unsettled.repair(100), { done: 2, more: false });
    for (const { jobId } of jobs) {
      t.deepEqual(await countedOf(jobId), ['failing', 'first', 'last']);
    }
  });

  test('is forgotten with its job', async t => {
    const { replica, calls } = failing(() => {
      throw new Error('a bug');
    });
    const { jobId } = await ended(replica);
    await database.kysely.deleteFrom('jobs').where('id', '=', jobId).execute();
    const before = calls();
    t.deepEqual(await replica.unsettled.repair(100), { done: 1, more: false });
    t.deepEqual([await leftOf(jobId), calls()], [[], before]);
  });
});
