import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  assertBalanced,
  claimed,
  fundedCaller,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  OPERATOR,
  reread,
  sha256,
  storedInput,
  successOf,
} from '@matting/core/test/fixtures.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import ava from 'ava';
import { type Batch, batchStatus } from './batch.ts';
import { type NewBatch, OPEN_BATCHES_MAX } from './batch-submission.ts';
import { newBatch, onBalancedStores, outcomeOf } from './test/fixtures.ts';

const test = ava.serial;

const CALLBACK = {
  url: 'https://receiver.example/hook',
  secret: Uint8Array.of(1),
  secretKeyId: 'key-1',
};

onBalancedStores(test, 'a batch', (test, { database, stores, replica }) => {
  const other = replica();

  async function submitted(count: number, overrides: Partial<NewBatch> = {}, credits = count) {
    const caller = await fundedCaller(stores, credits);
    const batch = newBatch(caller, count, overrides);
    assert.ok((await stores.batches.submitBatch(batch)).created);
    return { ...caller, batch };
  }

  const read = async ({ id, apiKeyId }: NewBatch): Promise<Batch> => {
    const found = await stores.batches.findForKey(id, apiKeyId);
    assert.ok(found);
    return found;
  };
  const balances = (accountId: string) => stores.ledger.balances(accountId);

  async function enterAll({ id, accountId }: NewBatch): Promise<number> {
    let all = 0;
    for (;;) {
      const entered = await stores.batches.enterItems(id, accountId, LIMITS.jobsInFlightMax);
      if (entered === 0) return all;
      all += entered;
    }
  }

  async function end({ items }: NewBatch, item: number, how: 'succeed' | 'fail'): Promise<void> {
    const jobId = items[item]!.jobId;
    const claim = await claimed(stores, { id: jobId });
    assert.ok(await stores.queue.inputStored(claim, storedInput(jobId)));
    assert.ok(await stores.queue.admitted(claim));
    if (how === 'fail') assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
    else assert.ok(await stores.queue.succeed(claim, successOf(claim)));
  }

  test('reserves a credit for each item, or none, and the audit knows them', async t => {
    const { accountId, batch } = await submitted(250, {}, 300);
    t.deepEqual(await balances(accountId), { available: 50, reserved: 250 });
    const { counts } = await read(batch);
    const none = { queued: 0, processing: 0, succeeded: 0, failed: 0, expired: 0 };
    t.deepEqual(counts, { waiting: 250, ...none });
    await assertBalanced(stores, accountId);
    const caller = { accountId, apiKeyId: batch.apiKeyId };
    const refused = stores.batches.submitBatch(newBatch(caller, 51));
    t.is(await outcomeOf(refused), 'INSUFFICIENT_CREDITS');
    t.deepEqual(await balances(accountId), { available: 50, reserved: 250 });
  });

  test('counts for its key’s cap with all items, and gives back what is not charged', async t => {
    const { accountId } = await fundedCaller(stores, 100);
    const policy = { cap: { credits: 10, period: 'total' } } as const;
    const { key } = await stores.apiKeys.create(accountId, 'capped', { policy });
    const caller = { accountId, apiKeyId: key.id };
    const batch = newBatch(caller, 10, { keyHasCap: true });
    const tooMany = newBatch(caller, 11, { keyHasCap: true });
    t.is(await outcomeOf(stores.batches.submitBatch(tooMany)), 'KEY_CAP_REACHED');
    t.is(await outcomeOf(stores.batches.submitBatch(batch)), 'created');
    const job = () => newJob(accountId, { apiKeyId: key.id, keyHasCap: true });
    t.is((await stores.queue.submit(job(), LIMITS)).kind, 'key-cap-reached');
    await enterAll(batch);
    await end(batch, 0, 'fail');
    t.is((await stores.queue.submit(job(), LIMITS)).kind, 'created');
  });

  test('waits outside of the account’s jobs in flight', async t => {
    const { accountId, apiKeyId, batch } = await submitted(30, {}, 32);
    // The waiting items need the other slot.
    const limits = { jobsInFlightMax: 2 };
    t.is((await stores.queue.submit(newJob(accountId, { apiKeyId }), limits)).kind, 'created');
    t.is(
      (await stores.queue.submit(newJob(accountId, { apiKeyId }), limits)).kind,
      'too-many-in-flight',
    );
    t.is(await stores.ledger.inFlight(accountId), 1);
    t.is(await stores.batches.enterItems(batch.id, accountId, LIMITS.jobsInFlightMax), 25);
    t.is(await stores.ledger.inFlight(accountId), 26);
  });

  test('has a bounded number of open jobs, whoever enters them', async t => {
    const { accountId, apiKeyId, batch } = await submitted(90, {}, 200);
    const second = newBatch({ accountId, apiKeyId }, 90);
    await stores.batches.submitBatch(second);
    const enter = (one: typeof stores, { id }: NewBatch) =>
      one.batches.enterItems(id, accountId, LIMITS.jobsInFlightMax);
    for (let round = 0; round < 5; round += 1) {
      await Promise.all([enter(stores, batch), enter(other, batch), enter(other, second)]);
      await assertBalanced(stores, accountId);
    }
    const { rows } = { rows: await rowsOf(database.kysely, 'jobs', { account_id: accountId }) };
    t.is(rows.length, 100);
    t.is(new Set(rows.map(row => row.id)).size, rows.length);
    await end(batch, 0, 'succeed');
    t.is((await enter(stores, batch)) + (await enter(stores, second)), 1);
  });

  test('takes what the bound of jobs in flight leaves, whoever enters or submits', async t => {
    const { accountId, apiKeyId, batch } = await submitted(30, {}, 60);
    const limits = { jobsInFlightMax: 5 };
    const enter = (one: typeof stores) => one.batches.enterItems(batch.id, accountId, 5);
    const submit = () => stores.queue.submit(newJob(accountId, { apiKeyId }), limits);
    t.is((await submit()).kind, 'created');
    const rounds = Array.from({ length: 3 }, () => [enter(stores), submit(), enter(other)]);
    await Promise.all(rounds.flat());
    t.is(await enter(stores), 0);
    t.is(await stores.ledger.inFlight(accountId), 5);
    t.is((await submit()).kind, 'too-many-in-flight');
    await end(batch, 0, 'succeed');
    t.is(await enter(other), 1);
    t.is(await stores.ledger.inFlight(accountId), 5);
    await assertBalanced(stores, accountId);
  });

  test('gets on beside other requests of its account that never cease', async t => {
    const { accountId, apiKeyId, batch } = await submitted(4, {}, 100);
    const limits = { jobsInFlightMax: 3 };
    const singles: string[] = [];
    let entered = 0;
    for (let round = 0; round < 8; round += 1) {
      // The other requests take every free slot before the batch's turn.
      for (;;) {
        const outcome = await stores.queue.submit(newJob(accountId, { apiKeyId }), limits);
        if (outcome.kind !== 'created') break;
        singles.push(outcome.job.id);
      }
      entered += await stores.batches.enterItems(batch.id, accountId, limits.jobsInFlightMax);
      t.true((await stores.ledger.inFlight(accountId)) <= limits.jobsInFlightMax);
      const next = singles.shift();
      if (next !== undefined) await stores.queue.remove(next, apiKeyId);
      else await end(batch, entered - 1, 'succeed');
    }
    t.is(entered, 4);
    // Without waiting items the others have the whole bound again.
    for (const { jobId } of batch.items) await stores.queue.remove(jobId, apiKeyId);
    while ((await stores.queue.submit(newJob(accountId, { apiKeyId }), limits)).kind === 'created');
    t.is(await stores.ledger.inFlight(accountId), limits.jobsInFlightMax);
  });

  test('ends once, when its last job has, with one notification of all its items', async t => {
    const { accountId, batch } = await submitted(4, { callback: CALLBACK });
    t.false(await stores.batches.finishBatch(batch.id));
    await enterAll(batch);
    t.is(batchStatus(await read(batch)), 'queued');
    await end(batch, 0, 'succeed');
    await end(batch, 2, 'fail');
    t.is(batchStatus(await read(batch)), 'processing');
    await end(batch, 1, 'succeed');
    t.false(await stores.batches.finishBatch(batch.id));
    await end(batch, 3, 'succeed');
    const ends = [stores, other, stores, other].map(one => one.batches.finishBatch(batch.id));
    t.is((await Promise.all(ends)).filter(ended => ended).length, 1);
    t.false(await stores.batches.finishBatch(batch.id));
    const finished = await read(batch);
    t.is(batchStatus(finished), 'finished');
    t.like(finished.counts, { waiting: 0, succeeded: 3, failed: 1 });
    t.deepEqual(await balances(accountId), { available: 1, reserved: 0 });
    const notices = await rowsOf(database.kysely, 'outbox', { id: batch.id });
    t.deepEqual(
      notices.map(row => row.event),
      ['matting.batch.finished'],
    );
    const items = await stores.batches.items(finished, 1, 2);
    t.deepEqual(
      items.map(({ item, job }) => [item, job?.state, job?.group?.item]),
      [
        [1, 'succeeded', 1],
        [2, 'failed', 2],
      ],
    );
    t.is(items[0]?.job?.reference, 'picture 1');
  });

  test('that is cancelled ends the items that no node began, free of charge', async t => {
    const { accountId, batch } = await submitted(60, { callback: CALLBACK });
    await stores.batches.enterItems(batch.id, accountId, LIMITS.jobsInFlightMax);
    await end(batch, 0, 'succeed');
    t.is(await stores.batches.cancelBatch(batch.id, 'key000000009'), undefined);
    t.is((await read(batch)).cancelledAtMs, null);
    const [first, second] = await Promise.all(
      [stores, other].map(one => one.batches.cancelBatch(batch.id, batch.apiKeyId)),
    );
    t.deepEqual(
      [first?.cancelledAtMs, second?.cancelledAtMs].map(at => at !== null),
      [true, true],
    );
    await Promise.all([
      enterAll(batch),
      other.batches.enterItems(batch.id, accountId, LIMITS.jobsInFlightMax),
    ]);
    await stores.groups.cancel(batch);
    t.true(await stores.batches.finishBatch(batch.id));
    const ended = await read(batch);
    t.is(batchStatus(ended), 'cancelled');
    t.like(ended.counts, { succeeded: 1, failed: 59, waiting: 0 });
    t.deepEqual(await balances(accountId), { available: 59, reserved: 0 });
    t.is((await reread(stores, batch.items[59]!.jobId)).failure?.code, 'JOB_CANCELLED');
    t.is((await reread(stores, batch.items[5]!.jobId)).reference, 'picture 5');
    t.is((await rowsOf(database.kysely, 'outbox', { id: batch.id })).length, 1);
  });

  /** As a replica's loop does for a cancelled batch. */
  async function settleCancelled({ id, accountId, apiKeyId }: NewBatch): Promise<void> {
    while ((await stores.batches.enterItems(id, accountId, LIMITS.jobsInFlightMax)) > 0);
    await stores.groups.cancel({ id, apiKeyId });
  }

  const logOf = async (accountId: string) =>
    (await stores.audit.list(accountId, { limit: 20 })).map(({ action, subject, actorKind }) => [
      action,
      subject,
      actorKind,
    ]);

  test('is cancelled with its key, and jobs that a node began end as usual', async t => {
    const { accountId, batch } = await submitted(60, { callback: CALLBACK }, 70);
    const { key } = await stores.apiKeys.create(accountId, 'another');
    const others = newBatch({ accountId, apiKeyId: key.id }, 5);
    await stores.batches.submitBatch(others);
    await stores.batches.enterItems(batch.id, accountId, LIMITS.jobsInFlightMax);
    const { jobId } = batch.items[0]!;
    const claim = await claimed(stores, { id: jobId });
    assert.ok(await stores.queue.inputStored(claim, storedInput(jobId)));
    assert.ok(await stores.queue.admitted(claim));
    await other.apiKeys.revoke(batch.apiKeyId, { accountId, actor: OPERATOR });
    t.is(batchStatus(await read(batch)), 'cancelled');
    t.is((await read(others)).cancelledAtMs, null);
    const log = await logOf(accountId);
    t.deepEqual(
      log.find(([action]) => action === 'batch.cancelled'),
      ['batch.cancelled', batch.id, 'operator'],
    );
    t.is(log.length, 2, String(log));
    await settleCancelled(batch);
    t.false(await stores.batches.finishBatch(batch.id), 'a job is running');
    assert.ok(await stores.queue.succeed(claim, successOf(claim)));
    t.true(await stores.batches.finishBatch(batch.id));
    t.like((await read(batch)).counts, { succeeded: 1, failed: 59, waiting: 0 });
    t.deepEqual(await balances(accountId), { available: 64, reserved: 5 });
    t.is((await rowsOf(database.kysely, 'outbox', { id: batch.id })).length, 1);
    await stores.apiKeys.revoke(batch.apiKeyId, { accountId, actor: OPERATOR });
    t.is((await logOf(accountId)).length, 2, 'once');
  });

  test('goes on when its key gets another secret, or expires', async t => {
    const { accountId, batch } = await submitted(2);
    const by = { accountId, actor: OPERATOR };
    await stores.apiKeys.rotate(batch.apiKeyId, { ...by, overlapMs: 0 });
    await stores.apiKeys.change(batch.apiKeyId, by, { expires: { inMs: -1 } });
    t.is((await stores.apiKeys.find(batch.apiKeyId))?.state, 'expired');
    t.is(batchStatus(await read(batch)), 'queued');
    await enterAll(batch);
    await end(batch, 0, 'succeed');
    await end(batch, 1, 'succeed');
    t.true(await stores.batches.finishBatch(batch.id));
    t.is(batchStatus(await read(batch)), 'finished');
  });

  test('and the revocation of its key, at once, leave no batch that goes on', async t => {
    const outcomes = new Set<string>();
    for (let round = 0; round < 12; round += 1) {
      const caller = await fundedCaller(stores, 3);
      const batch = newBatch(caller, 3);
      const submit = () => outcomeOf((round % 2 ? stores : other).batches.submitBatch(batch));
      const { accountId, apiKeyId } = caller;
      const revoke = () =>
        (round % 2 ? other : stores).apiKeys.revoke(apiKeyId, { accountId, actor: OPERATOR });
      const [first] = await Promise.all(
        round % 3 ? [submit(), revoke()] : [revoke().then(submit), undefined],
      );
      assert.ok(typeof first === 'string');
      outcomes.add(first);
      if (first === 'created') t.is(batchStatus(await read(batch)), 'cancelled');
      else {
        t.is(first, 'INVALID_API_KEY');
        t.deepEqual(await balances(accountId), { available: 3, reserved: 0 });
      }
    }
    t.true(outcomes.has('INVALID_API_KEY'));
  });

  test('is cancelled by somebody of its account alone, who is in the log once', async t => {
    const { accountId, batch } = await submitted(3);
    const stranger = await fundedCaller(stores, 0);
    const cancel = (one: typeof stores, id: string, of?: string) =>
      one.batches.cancelBatchBy(id, { actor: OPERATOR, ...(of && { accountId: of }) });
    t.is(await cancel(stores, batch.id, stranger.accountId), undefined);
    t.is(await cancel(stores, randomUUID()), undefined);
    t.is(await cancel(stores, 'é'), undefined);
    t.is((await read(batch)).cancelledAtMs, null);
    const both = await Promise.all([cancel(stores, batch.id), cancel(other, batch.id, accountId)]);
    t.deepEqual(
      both.map(found => found && batchStatus(found)),
      ['cancelled', 'cancelled'],
    );
    t.deepEqual(await logOf(accountId), [['batch.cancelled', batch.id, 'operator']]);
    await settleCancelled(batch);
    t.true(await stores.batches.finishBatch(batch.id));
    t.deepEqual(await balances(accountId), { available: 3, reserved: 0 });
    const { batch: done } = await submitted(1);
    await enterAll(done);
    await end(done, 0, 'succeed');
    await stores.batches.finishBatch(done.id);
    t.is(batchStatus((await cancel(stores, done.id))!), 'finished');
    t.deepEqual(await logOf(done.accountId), []);
  });

  test('is one for one key, and its key is no job’s', async t => {
    const caller = await fundedCaller(stores, 100);
    const key = { idempotencyKeyHash: sha256(randomUUID()) };
    const twins = [newBatch(caller, 5, key), newBatch(caller, 5, key)] as const;
    const outcomes = await Promise.all([
      outcomeOf(stores.batches.submitBatch(twins[0])),
      outcomeOf(other.batches.submitBatch(twins[1])),
    ]);
    t.deepEqual(outcomes.sort(), ['created', 'exists']);
    t.deepEqual(await balances(caller.accountId), { available: 95, reserved: 5 });
    const late = newJob(caller.accountId, { apiKeyId: caller.apiKeyId, ...key });
    t.is((await stores.queue.submit(late, LIMITS)).kind, 'key-taken');
    t.deepEqual(await balances(caller.accountId), { available: 95, reserved: 5 });
    const job = newJob(caller.accountId, { apiKeyId: caller.apiKeyId });
    await stores.queue.submit(job, LIMITS);
    const { idempotencyKeyHash } = job;
    const taken = stores.batches.submitBatch(newBatch(caller, 1, { idempotencyKeyHash }));
    t.is(await outcomeOf(taken), 'IDEMPOTENCY_CONFLICT');
  });

  test('and a job that race for one key are never both made', async t => {
    const caller = await fundedCaller(stores, 200);
    const made: string[] = [];
    for (let round = 0; round < 20; round += 1) {
      const idempotencyKeyHash = sha256(randomUUID());
      const { accountId, apiKeyId } = caller;
      const job = newJob(accountId, { apiKeyId, idempotencyKeyHash });
      const batch = newBatch(caller, 3, { idempotencyKeyHash });
      const ofBatch = () => outcomeOf((round % 2 ? stores : other).batches.submitBatch(batch));
      const ofJob = async () =>
        (await (round % 4 < 2 ? stores : other).queue.submit(job, LIMITS)).kind;
      const both = await Promise.all(round % 3 ? [ofBatch(), ofJob()] : [ofJob(), ofBatch()]);
      const refusals = both.filter(kind => kind !== 'created');
      t.is(refusals.length, 1, String(both));
      made.push(...refusals);
    }
    t.true(
      made.every(kind => kind === 'key-taken' || kind === 'IDEMPOTENCY_CONFLICT'),
      String(made),
    );
    const jobs = made.filter(kind => kind === 'IDEMPOTENCY_CONFLICT').length;
    const { reserved } = (await balances(caller.accountId))!;
    t.is(reserved, jobs + 3 * (made.length - jobs));
  });

  test('is refused beyond so many open ones of an account', async t => {
    const caller = await fundedCaller(stores, 100);
    const submit = (count = 1) => outcomeOf(stores.batches.submitBatch(newBatch(caller, count)));
    for (let count = 0; count < OPEN_BATCHES_MAX; count += 1) t.is(await submit(), 'created');
    t.is(await submit(), 'RATE_LIMITED');
    // The bound of open batches is checked before credits, as that of jobs in flight is.
    t.is(await submit(51), 'RATE_LIMITED');
    t.deepEqual(await balances(caller.accountId), { available: 50, reserved: 50 });
  });

  test('is listed while it is open, and goes with its items once it is old', async t => {
    const { batch } = await submitted(2);
    const open = async () => (await stores.batches.listOpen()).map(({ id }) => id);
    t.true((await open()).includes(batch.id));
    await enterAll(batch);
    for (const item of [0, 1]) await end(batch, item, 'succeed');
    await stores.batches.finishBatch(batch.id);
    t.false((await open()).includes(batch.id));
    t.true((await stores.batches.removeOldBatches(-1000, 100)) > 0);
    t.is(await stores.batches.findForKey(batch.id, batch.apiKeyId), undefined);
    t.deepEqual(await rowsOf(database.kysely, 'batch_items', { batch_id: batch.id }), []);
  });
});
