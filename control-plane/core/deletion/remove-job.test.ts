import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { rowsOf } from '@matting/database/test/rows.ts';
import { publicState } from '@matting/queue/job.ts';
import ava from 'ava';
import type { NewJob } from '../queue/matting-submission.ts';
import {
  claimed,
  fundedCaller,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  onBalancedStores,
  reread,
  resultOf,
  running,
  SERVICE_FAULT,
  storedInput,
  submitted,
  successOf,
} from '../test/fixtures.ts';

const test = ava.serial;

/** On a busy machine the same one may win many rounds. */
const ROUNDS_MAX = 200;
const CALLBACK = {
  url: 'https://receiver.example/hook',
  secret: Uint8Array.of(1),
  secretKeyId: 'key-1',
};
const SOURCE = 'https://pictures.example/1.png';

onBalancedStores(test, 'a deletion', (test, { database, stores, replica }) => {
  const other = replica();

  async function callersJob(overrides: Partial<NewJob> = {}) {
    const { accountId, apiKeyId } = await fundedCaller(stores, 1);
    return newJob(accountId, { apiKeyId, reference: 'mine', callback: CALLBACK, ...overrides });
  }

  async function assertCancelled(job: NewJob): Promise<void> {
    const now = await reread(stores, job.id);
    assert.deepEqual([now.state, now.failure?.code], ['failed', 'JOB_CANCELLED']);
    assert.deepEqual([now.lease, now.reference, now.failure?.retryable], [null, null, false]);
    assert.equal(now.idempotencyKeyHash, job.idempotencyKeyHash);
    const balances = await stores.ledger.balances(job.accountId);
    assert.deepEqual(balances, { available: 1, reserved: 0 });
    assert.equal((await rowsOf(database.kysely, 'outbox', { id: job.id })).length, 1);
  }

  for (const [what, overrides, isHeld] of [
    ['waits for its download', { sourceUrl: SOURCE }, false],
    ['is being downloaded', { sourceUrl: SOURCE }, true],
    ['waits for a node', {}, false],
    ['a replica holds', {}, true],
  ] as const) {
    test(`cancels a job that ${what}, and nobody finishes it`, async t => {
      const job = await callersJob(overrides);
      const open = await submitted(stores, job);
      const claim = isHeld ? await claimed(stores, open) : { jobId: job.id, holder: 'r', fence: 0 };
      const deletion = await other.queue.remove(job.id, job.apiKeyId);
      t.is(deletion?.kind, 'cancelled');
      t.deepEqual(deletion?.blobs, 'sourceUrl' in overrides ? [] : [`inputs/${job.id}`]);
      await assertCancelled(job);
      t.false(await stores.queue.admitted(claim));
      t.false(await stores.queue.inputStored(claim, storedInput(job.id)));
      t.false(await stores.queue.succeed(claim, successOf(claim)));
      t.false(await stores.queue.fail(claim, { ...SERVICE_FAULT, code: 'JOB_CANCELLED' }));
      t.is((await stores.queue.remove(job.id, job.apiKeyId))?.kind, 'unchanged');
      await assertCancelled(job);
    });
  }

  test('and an admission decide a job once, whoever is first', async t => {
    const seen = new Set<string>();
    for (let round = 0; round < 20 || (seen.size < 2 && round < ROUNDS_MAX); round += 1) {
      const job = await callersJob();
      const claim = await claimed(stores, await submitted(stores, job));
      const admit = () => stores.queue.admitted(claim);
      const atOnce = round % 2 === 0 ? admit() : undefined;
      const removing = other.queue.remove(job.id, job.apiKeyId);
      // An admission is one statement, so a removal must start earlier to come first.
      const admitted = await (atOnce ?? delay(round / 4).then(admit));
      const deletion = await removing;
      seen.add(String(deletion?.kind));
      t.is(deletion?.kind, admitted ? 'processing' : 'cancelled');
      if (!admitted) await assertCancelled(job);
      else t.true(await stores.queue.succeed(claim, successOf(claim)));
    }
    t.deepEqual([...seen].sort(), ['cancelled', 'processing']);
  });

  test('from two replicas at once cancels once', async t => {
    for (let round = 0; round < 5; round += 1) {
      const job = await callersJob();
      await submitted(stores, job);
      const both = [stores, other].map(one => one.queue.remove(job.id, job.apiKeyId));
      const kinds = (await Promise.all(both)).map(one => one?.kind).sort();
      t.deepEqual(kinds, ['cancelled', 'unchanged']);
      await assertCancelled(job);
    }
  });

  test('leaves a job that a node has, and one that failed, but for the reference', async t => {
    const job = await callersJob();
    const { claim } = await running(stores, job);
    t.is((await stores.queue.remove(job.id, job.apiKeyId))?.kind, 'processing');
    t.is((await reread(stores, job.id)).reference, 'mine');
    await stores.queue.fail(claim, IMAGE_FAULT);
    const failed = await reread(stores, job.id);
    t.is((await stores.queue.remove(job.id, job.apiKeyId))?.kind, 'unchanged');
    const { readAtMs: _, ...left } = await reread(stores, job.id);
    t.like({ ...failed, reference: null }, left);
  });

  test('expires a result at once, charged once, and names its files until they are erased', async t => {
    const job = await callersJob();
    const { claim } = await running(stores, job);
    const result = { ...resultOf(claim), thumbnailBytes: 5 };
    await stores.queue.succeed(claim, successOf(claim, { result }));
    const [first, second] = await Promise.all(
      [stores, other].map(one => one.queue.remove(job.id, job.apiKeyId)),
    );
    const blobs = [result.blob, `${result.blob}-thumbnail`];
    t.deepEqual([first?.blobs, second?.blobs], [blobs, blobs]);
    t.deepEqual([first?.kind, second?.kind].sort(), ['deleted', 'unchanged']);
    const now = await reread(other, job.id);
    t.is(publicState(now), 'expired');
    t.is(publicState({ ...now, readAtMs: 0 }), 'expired');
    t.is(now.reference, null);
    t.deepEqual(await stores.ledger.balances(job.accountId), { available: 0, reserved: 0 });
    t.deepEqual(await stores.jobs.deletedAmong([job.id, 'none']), [job.id]);
    t.deepEqual([...(await stores.jobs.referencedBlobs(blobs))], blobs);
    await stores.jobs.resultErased(job.id, 'another');
    t.deepEqual([...(await stores.jobs.referencedBlobs(blobs))], blobs);
    await stores.jobs.resultErased(job.id, result.blob);
    t.deepEqual([...(await stores.jobs.referencedBlobs(blobs))], []);
  });

  test('that dies before it erases leaves the files to the sweeper', async t => {
    const job = await callersJob();
    const { claim } = await running(stores, job);
    const result = resultOf(claim);
    await stores.queue.succeed(claim, successOf(claim, { result }));
    await stores.queue.remove(job.id, job.apiKeyId);
    t.true((await other.jobs.takeExpiredResultBlobs(100)).includes(result.blob));
  });

  test('gives the credit back to the cap of its key', async t => {
    const { accountId } = await fundedCaller(stores, 5);
    const policy = { cap: { credits: 1, period: 'total' } } as const;
    const { key } = await stores.apiKeys.create(accountId, 'capped', { policy });
    const capped = () => newJob(accountId, { apiKeyId: key.id, keyHasCap: true });
    const job = capped();
    await submitted(stores, job);
    t.is((await stores.queue.submit(capped(), LIMITS)).kind, 'key-cap-reached');
    await stores.queue.remove(job.id, key.id);
    t.is((await stores.queue.submit(capped(), LIMITS)).kind, 'created');
  });

  test('of another key’s job, or of an unknown job, finds nothing', async t => {
    const job = await callersJob();
    await submitted(stores, job);
    t.is(await stores.queue.remove(job.id, 'key000000009'), undefined);
    t.is(
      await stores.queue.remove('6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f', job.apiKeyId),
      undefined,
    );
    t.is((await reread(stores, job.id)).state, 'ready');
  });
});
