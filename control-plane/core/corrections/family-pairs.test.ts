/**
 * Every pair of events of a family of corrections, in both orders and at once: deletion of the
 * first job, repayment of a lost result, expiry, sweep, end of a correction, a new one. No open
 * correction ever lacks a file, and no file is left at the end.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type Database, transact } from '@matting/database/database.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import ava from 'ava';
import type { Job } from '../jobs/job.ts';
import type { Stores } from '../stores.ts';
import { correctionOf, firstOf, matteOf, succeedCorrection } from '../test/families.ts';
import {
  claimed,
  fundedCaller,
  LIMITS,
  onBalancedStores,
  reread,
  resultOf,
  submitted,
  successOf,
} from '../test/fixtures.ts';

const test = ava.serial;

/** A first job, an ended correction and one under way, with their files. */
class Family {
  readonly database: Database;
  readonly first: Job;
  readonly done: Job;
  readonly claim: Claim;
  readonly files: Set<string>;

  constructor(database: Database, first: Job, done: Job, claim: Claim) {
    this.database = database;
    this.first = first;
    this.done = done;
    this.claim = claim;
    const kept = [first.kept!.input!, first.kept!.matte, done.kept!.matte];
    const results = [first.result!, done.result!];
    this.files = new Set([...kept, ...results].map(({ blob }) => blob));
  }

  static async open(database: Database, stores: Stores): Promise<Family> {
    const { accountId, apiKeyId } = await fundedCaller(stores, 1);
    const first = await firstOf(stores, accountId, { apiKeyId });
    const done = await succeedCorrection(stores, await submitted(stores, correctionOf(first)));
    const running = await submitted(stores, correctionOf(done, first));
    const claim = await claimed(stores, running);
    assert.ok(await stores.queue.admitted(claim));
    return new Family(database, first, done, claim);
  }

  async removeUnnamed({ jobs }: Stores, blobs: readonly string[]): Promise<void> {
    const named = await jobs.referencedBlobs(blobs);
    for (const blob of blobs) if (!named.has(blob)) this.files.delete(blob);
  }

  async requireFiles(stores: Stores): Promise<void> {
    const rows = await this.database.kysely
      .selectFrom('jobs')
      .select('id')
      .where('family', '=', this.first.id)
      .where('finished_at', 'is', null)
      .execute();
    for (const { id } of rows) {
      const { input, correction } = await reread(stores, id);
      for (const blob of [input!.blob, correction!.matte!.blob]) {
        assert.ok(this.files.has(blob), `an open correction lacks ${blob}`);
      }
    }
  }
}

type Act = (family: Family, stores: Stores) => Promise<unknown>;

const ACTS: Readonly<Record<string, Act>> = {
  async deletion(family, stores) {
    const { id, apiKeyId } = family.first;
    const deleted = await stores.queue.remove(id, apiKeyId);
    for (const blob of deleted?.blobs ?? []) family.files.delete(blob);
    await family.removeUnnamed(stores, deleted?.family?.shared ?? []);
  },
  repayment: ({ first, done, claim }, stores) => repay(stores, first, [done.id, claim.jobId]),
  async expiry({ database, first }) {
    const past = { expires_at: 1, result_blob_expires_at: 1 };
    // A deadlock with the other act may end it, as it may any transaction.
    await transact(database, async tx => {
      const update = tx.updateTable('jobs');
      const ofFirst = update.set(past).where('id', '=', first.id);
      await ofFirst.where('result_blob', 'is not', null).execute();
      const ofFamily = update.set({ kept_until: 1 }).where('kept_until', 'is not', null);
      const inFamily = ofFamily.where(eb =>
        eb.or([eb('id', '=', first.id), eb('family', '=', first.id)]),
      );
      await inFamily.execute();
    });
  },
  async sweep(family, stores) {
    for (const blob of await stores.jobs.takeExpiredResultBlobs(100)) family.files.delete(blob);
    await family.removeUnnamed(stores, await stores.jobs.takeExpiredKept(100));
  },
  async ending(family, stores) {
    const { claim, first, done } = family;
    if ((await reread(stores, claim.jobId)).finishedAtMs !== null) return;
    const matte = matteOf(claim);
    const result = resultOf(claim);
    for (const { blob } of [matte, result]) family.files.add(blob);
    const stands = await stores.queue.succeed(claim, successOf(claim, { result, matte }));
    const used = [first.kept!.input!.blob, done.kept!.matte.blob, matte.blob];
    if (stands) await family.removeUnnamed(stores, used);
    else for (const { blob } of [matte, result]) family.files.delete(blob);
  },
  async submission({ first }, stores) {
    await stores.queue.submit(correctionOf(first), LIMITS);
  },
};

const repay = (
  { lostResults }: Stores,
  { id: jobId, accountId }: Job,
  missing: readonly string[] = [],
) => lostResults.repay({ jobId, accountId }, { missing: new Set(missing), auditId: randomUUID() });

onBalancedStores(test, 'of a family', (test, { database, stores, replica }) => {
  const other = replica();

  const walk = async (acts: (family: Family) => Promise<unknown>) => {
    const family = await Family.open(database, stores);
    await acts(family);
    await family.requireFiles(stores);
    await ACTS.ending!(family, stores);
    for (const row of await openOf(database, family.first)) {
      const order = await reread(stores, row);
      await succeedCorrection(stores, order);
      await family.removeUnnamed(stores, [order.input!.blob, order.correction!.matte!.blob]);
    }
    await ACTS.expiry!(family, stores);
    const all = { result_blob_expires_at: 1, expires_at: 1 };
    const ended = database.kysely.updateTable('jobs').set(all).where('result_blob', 'is not', null);
    await ended.where('family', '=', family.first.id).execute();
    await ACTS.sweep!(family, stores);
    assert.deepEqual([...family.files], []);
  };

  for (const [one, act] of Object.entries(ACTS)) {
    for (const [two, next] of Object.entries(ACTS)) {
      test(`${one}, then ${two}`, async t => {
        await walk(async family => {
          await act(family, stores);
          await family.requireFiles(stores);
          await next(family, other);
        });
        t.pass();
      });
      if (one >= two) continue;
      test(`${one} and ${two} at once`, async t => {
        for (let round = 0; round < 3; round += 1) {
          await walk(family => Promise.all([act(family, stores), next(family, other)]));
        }
        t.pass();
      });
    }
  }

  test('deletion fails what is open, running or not, and tells its caller', async t => {
    const family = await Family.open(database, stores);
    const { first, done, claim } = family;
    const callback = { url: 'https://r.example/', secret: Uint8Array.of(1), secretKeyId: 'key-1' };
    const queued = await submitted(stores, correctionOf(first, first, { callback }));
    const deleted = await other.queue.remove(first.id, first.apiKeyId);
    t.deepEqual(deleted?.family?.ended.map(({ id }) => id).sort(), [queued.id, claim.jobId].sort());
    for (const id of [queued.id, claim.jobId]) {
      const { failure, lease } = await reread(stores, id);
      t.deepEqual([failure?.code, failure?.retryable, lease], ['RESULT_EXPIRED', false, null]);
    }
    t.is((await stores.outbox.list({ jobId: queued.id, limit: 5 })).length, 1);
    t.false(await stores.queue.succeed(claim, successOf(claim)));
    const kept = await reread(stores, done.id);
    t.deepEqual([kept.kept, kept.result?.blob], [null, done.result?.blob]);
    t.is((await stores.queue.submit(correctionOf(first), LIMITS)).kind, 'refused');
  });

  test('deletion of a correction takes its matte, and fails those that begin with it', async t => {
    const family = await Family.open(database, stores);
    const { first, done, claim } = family;
    const beside = await submitted(stores, correctionOf(first));
    const deleted = await stores.queue.remove(done.id, done.apiKeyId);
    t.deepEqual(
      deleted?.family?.ended.map(({ id }) => id),
      [claim.jobId],
    );
    t.is((await reread(stores, beside.id)).state, 'ready');
    t.truthy((await reread(stores, first.id)).kept);
    await family.removeUnnamed(stores, deleted?.family?.shared ?? []);
    t.true(family.files.has(first.kept!.input!.blob));
    t.false(family.files.has(done.kept!.matte.blob));
  });

  const kindOf = async (job: Job) => (await stores.queue.submit(correctionOf(job), LIMITS)).kind;
  const balanceOf = async ({ accountId }: Job) =>
    (await stores.ledger.balances(accountId))?.available;

  test('repayment waits for open corrections, and then ends the family', async t => {
    const { first, done, claim } = await Family.open(database, stores);
    const missing = [done.id, claim.jobId];
    t.is(await repay(stores, first, missing), 'correcting');
    t.is(await balanceOf(first), 0);
    assert.ok(await stores.queue.succeed(claim, successOf(claim, { matte: matteOf(claim) })));
    t.is(await repay(other, first, [done.id]), 'unpaid', 'the last one has the result');
    t.is(await repay(other, first, missing), 'paid');
    t.is(await repay(stores, first, missing), 'settled');
    t.is(await balanceOf(first), 1);
    t.is(await kindOf(first), 'refused');
    for (const id of [done.id, claim.jobId]) {
      const outcome = await stores.queue.submit(
        correctionOf(await reread(stores, id), first),
        LIMITS,
      );
      t.is(outcome.kind, 'refused');
    }
    const left = await reread(stores, done.id);
    t.is(left.result?.blob, done.result?.blob, 'a finished correction keeps its result');
    const swept = await stores.jobs.takeExpiredKept(100);
    for (const blob of [first.kept!.input!.blob, first.kept!.matte.blob, done.kept!.matte.blob]) {
      t.true(swept.includes(blob), blob);
    }
  });

  test('a loss that a correction made good gives no credit', async t => {
    const { accountId, apiKeyId } = await fundedCaller(stores, 1);
    const first = await firstOf(stores, accountId, { apiKeyId });
    await succeedCorrection(stores, await submitted(stores, correctionOf(first)));
    t.is(await repay(stores, first), 'unpaid');
    t.is(await balanceOf(first), 0);
    t.is(await kindOf(first), 'created', 'it was paid for, and stays correctable');
  });

  test('a lost correction cost nothing, and its family goes on', async t => {
    const { accountId, apiKeyId } = await fundedCaller(stores, 1);
    const first = await firstOf(stores, accountId, { apiKeyId });
    const done = await succeedCorrection(stores, await submitted(stores, correctionOf(first)));
    t.is(await repay(stores, done), 'unpaid');
    t.is(await balanceOf(first), 0);
    t.is(await kindOf(first), 'created');
    const again = await stores.queue.submit(correctionOf(done, first), LIMITS);
    t.is(again.kind, 'created');
  });

  test('repayment and a correction at once never give the credit and the picture', async t => {
    const seen = new Set<string>();
    for (let round = 0; round < 16; round += 1) {
      const { accountId, apiKeyId } = await fundedCaller(stores, 1);
      const first = await firstOf(stores, accountId, { apiKeyId });
      const correct = () => (round % 2 ? stores : other).queue.submit(correctionOf(first), LIMITS);
      const pay = () => repay(round % 2 ? other : stores, first);
      const both = round % 4 < 2 ? [correct(), pay()] : [pay(), correct()];
      const outcomes = (await Promise.all(both)).map(one =>
        typeof one === 'string' ? one : one.kind,
      );
      const pair = outcomes.sort().join(' ');
      seen.add(pair);
      t.true(['correcting created', 'paid refused'].includes(pair), pair);
    }
    t.log([...seen].join(', '));
  });

  test('deletion of a queued correction leaves the files of the first', async t => {
    const family = await Family.open(database, stores);
    const { first } = family;
    const queued = await submitted(stores, correctionOf(first));
    const deleted = await stores.queue.remove(queued.id, queued.apiKeyId);
    t.deepEqual([deleted?.kind, deleted?.blobs], ['cancelled', []]);
    await family.removeUnnamed(stores, deleted?.family?.shared ?? []);
    t.true(family.files.has(first.kept!.input!.blob));
    t.true(family.files.has(first.kept!.matte.blob));
  });
});

async function openOf({ kysely }: Database, first: Job): Promise<string[]> {
  const open = kysely.selectFrom('jobs').select('id').where('family', '=', first.id);
  const rows = await open.where('finished_at', 'is', null).execute();
  return rows.map(({ id }) => id);
}
