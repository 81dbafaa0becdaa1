/**
 * Whatever two replicas do to one account's jobs at the same time, and in whatever order: no credit
 * appears, none is lost, and a job is reserved once and settled once. Checked after every step from
 * the rows themselves. A failing run prints the shortest history it found; MATTING_TEST_SEED takes
 * others.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { at } from '../../../../test/support/at.ts';
import { fc } from '../../../../test/support/property-tests.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import type { Claim } from '../../../src/store/jobs/job-lease.ts';
import type { Stores } from '../../../src/store/stores.ts';
import {
  assertBalanced,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  onStores,
  resultOf,
  SERVICE_FAULT,
  sha256,
} from '../fixtures.ts';
import { assertUsageAgrees } from '../usage/usage-agrees.ts';

const test = ava.serial;

const RUNS = 30;
const STEPS_MAX = 25;
const KEYS = 6;
const LIMITS = { jobsInFlightMax: 3 };
const CREDITS = 5;
const DAY_MS = 24 * HOUR_MS;
const LONG_AGO_MS = 1;

const OPERATIONS = [
  'submit',
  'claim',
  'admit',
  'succeed',
  'fail',
  'failRetryable',
  'lose',
  'giveBack',
  'expireLease',
  'expireResult',
  'age',
  'sweep',
  'grant',
  'revoke',
] as const;

interface Action {
  readonly operation: (typeof OPERATIONS)[number];
  readonly replica: number;
  /** Which key, job or claim of those there are. */
  readonly pick: number;
}

const action: fc.Arbitrary<Action> = fc.record({
  operation: fc.oneof(
    { weight: 4, arbitrary: fc.constant('submit' as const) },
    { weight: 5, arbitrary: fc.constant('claim' as const) },
    { weight: 5, arbitrary: fc.constant('admit' as const) },
    { weight: 3, arbitrary: fc.constant('succeed' as const) },
    { weight: 9, arbitrary: fc.constantFrom(...OPERATIONS) },
  ),
  replica: fc.nat(1),
  pick: fc.nat(1000),
});
/** What happens at the same time. */
const step = fc.array(action, { minLength: 1, maxLength: 4 });

/** One account and what has been done to it. */
class History {
  readonly #replicas: readonly Stores[];
  readonly #database: Database;
  readonly #accountId: string;
  /** Ids of the jobs that a submission said it made. */
  readonly #created = new Set<string>();
  /** All ever given, the lost ones too: who held one once may come back late. */
  readonly #claims: Claim[] = [];

  constructor(replicas: readonly Stores[], database: Database, accountId: string) {
    this.#replicas = replicas;
    this.#database = database;
    this.#accountId = accountId;
  }

  async perform({ operation, replica, pick }: Action): Promise<void> {
    const { jobs, ledger } = at(this.#replicas, replica);
    const claim = this.#claims[pick % Math.max(1, this.#claims.length)];
    switch (operation) {
      case 'submit':
        return this.#submit(replica, pick);
      case 'claim':
        return this.#claim(replica, pick);
      case 'admit':
        return void (claim && (await jobs.admitted(claim)));
      case 'succeed':
        return void (claim && (await jobs.succeed(claim, resultOf(claim), HOUR_MS, {})));
      case 'fail':
        return void (claim && (await jobs.fail(claim, IMAGE_FAULT)));
      case 'failRetryable':
        return void (claim && (await jobs.fail(claim, SERVICE_FAULT)));
      case 'lose':
        return void (claim && (await jobs.attemptLost(claim, pick % 2 === 0)));
      case 'giveBack':
        return void (claim && (await jobs.release(claim)));
      case 'sweep':
        await jobs.takeExpiredResultBlobs(100);
        return void (await jobs.removeFinalOlderThan(DAY_MS, 100));
      case 'grant':
        return void (await ledger.grant(this.#accountId, 1, `grant ${pick % 3}`));
      case 'revoke':
        return void (await ledger.revoke(this.#accountId, 1, `revoke ${pick % 3}`));
      case 'expireLease':
      case 'expireResult':
      case 'age':
        return this.#passTime(operation, pick);
    }
  }

  async #submit(replica: number, pick: number): Promise<void> {
    const job = newJob(this.#accountId, {
      apiKeyId: this.#accountId.slice(0, 12),
      idempotencyKeyHash: sha256(`key ${pick % KEYS}`),
    });
    const outcome = await at(this.#replicas, replica).jobs.submit(job, LIMITS);
    if (outcome.kind === 'created') this.#created.add(outcome.job.id);
  }

  async #claim(replica: number, pick: number): Promise<void> {
    const { jobs } = at(this.#replicas, replica);
    const open = (await jobs.listClaimable(1000)).filter(
      ({ accountId }) => accountId === this.#accountId,
    );
    if (open.length === 0) return;
    const won = await jobs.claim(at(open, pick % open.length), `replica-${replica}`, HOUR_MS);
    if (won !== undefined) this.#claims.push(won.claim);
  }

  /** Lets time pass for one of the account's jobs, as far as it has what can expire. */
  async #passTime(what: 'expireLease' | 'expireResult' | 'age', pick: number): Promise<void> {
    const ids = [...this.#created];
    if (ids.length === 0) return;
    const id = at(ids, pick % ids.length);
    const rows = this.#database.kysely.updateTable('jobs').where('id', '=', id);
    if (what === 'expireLease') {
      const held = rows.where('lease_expires_at', 'is not', null);
      await held.set({ lease_expires_at: LONG_AGO_MS }).execute();
    } else if (what === 'expireResult') {
      const stored = rows.where('result_blob_expires_at', 'is not', null);
      const past = { expires_at: LONG_AGO_MS, result_blob_expires_at: LONG_AGO_MS };
      await stored.set(past).execute();
    } else {
      const final = rows.where('finished_at', 'is not', null);
      await final.set({ finished_at: LONG_AGO_MS }).execute();
    }
  }

  /** Nothing else runs meanwhile. */
  async check(): Promise<void> {
    const { kysely } = this.#database;
    const [account, entries, jobs] = await Promise.all([
      kysely
        .selectFrom('accounts')
        .selectAll()
        .where('id', '=', this.#accountId)
        .executeTakeFirstOrThrow(),
      kysely
        .selectFrom('ledger_entries')
        .selectAll()
        .where('account_id', '=', this.#accountId)
        .execute(),
      kysely.selectFrom('jobs').selectAll().where('account_id', '=', this.#accountId).execute(),
    ]);
    const sum = (kind: string) =>
      entries.filter(entry => entry.kind === kind).reduce((all, { amount }) => all + amount, 0);
    const { available, reserved } = account;
    assert.ok(available >= 0 && reserved >= 0, 'no balance is below zero');
    assert.equal(available + reserved + sum('charge'), sum('grant') - sum('revoke'));
    assert.equal(reserved, jobs.filter(({ finished_at: at }) => at === null).length);
    assert.ok(reserved <= LIMITS.jobsInFlightMax);
    const rows = new Map(jobs.map(job => [job.id, job]));
    const byJob = Map.groupBy(
      entries.filter(entry => entry.job_id !== null),
      entry => entry.job_id,
    );
    assert.deepEqual(new Set(byJob.keys()), this.#created, 'entries of exactly the jobs made');
    for (const [id, own] of byJob) {
      const kinds = own.map(({ kind }) => kind).sort();
      const row = rows.get(id!);
      const expected = {
        succeeded: [['charge', 'reserve']],
        failed: [['release', 'reserve'].sort()],
        open: [['reserve']],
        gone: [['charge', 'reserve'], ['release', 'reserve'].sort()],
      }[endOf(row)];
      assert.ok(
        expected.some(some => some.join() === kinds.join()),
        `a job that is ${endOf(row)} has the entries ${kinds}`,
      );
    }
    await assertBalanced(at(this.#replicas, 0), this.#accountId);
    await assertUsageAgrees(this.#database, this.#accountId);
  }
}

function endOf(row: { readonly state: string } | undefined) {
  if (row === undefined) return 'gone';
  return row.state === 'succeeded' || row.state === 'failed' ? row.state : 'open';
}

onStores(test, 'the ledger under two replicas', (test, { database: own, replica }) => {
  const replicas: [Stores, Stores] = [replica(), replica()];

  test('holds after every step of random histories', async t => {
    const property = fc.asyncProperty(
      fc.array(step, { minLength: 5, maxLength: STEPS_MAX, size: 'max' }),
      async steps => {
        const accountId = await fundedAccount(replicas[0], CREDITS);
        const history = new History(replicas, own, accountId);
        for (const actions of steps) {
          await Promise.all(actions.map(one => history.perform(one)));
          await history.check();
        }
      },
    );
    await t.notThrowsAsync(fc.assert(property, { numRuns: RUNS, endOnFailure: false }));
    await t.notThrowsAsync(assertBalanced(replicas[0]));
  });

  test('is checked also when a job’s row is gone, and names what is missing', async t => {
    const [stores] = replicas;
    const accountId = await fundedAccount(stores, 2);
    for (const _ of [1, 2]) {
      const outcome = await stores.jobs.submit(newJob(accountId, { id: randomUUID() }), LIMITS);
      t.is(outcome.kind, 'created');
    }
    const listed = await stores.jobs.listClaimable(1000);
    const open = listed.find(job => job.accountId === accountId);
    assert.ok(open);
    const won = await stores.jobs.claim(open, 'replica-0', HOUR_MS);
    assert.ok(won);
    t.truthy(await stores.jobs.fail(won.claim, IMAGE_FAULT));
    const final = own.kysely.updateTable('jobs').where('id', '=', open.id);
    await final.set({ finished_at: LONG_AGO_MS }).execute();
    t.true((await stores.jobs.removeFinalOlderThan(DAY_MS, 100)).rows >= 1);
    t.is(await stores.jobs.find(open.id), undefined);
    await assertBalanced(stores);

    const settled = own.kysely.deleteFrom('ledger_entries').where('job_id', '=', open.id);
    await settled.where('kind', '=', 'release').execute();
    const problems = await stores.ledger.check();
    t.true(problems.some(({ jobId }) => jobId === open.id));
    t.true(problems.some(({ accountId: id, jobId }) => id === accountId && jobId === null));
  });
});
