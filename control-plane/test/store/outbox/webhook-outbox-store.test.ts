/** Notifications between a job's end and their delivery, and how long their secrets are kept. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import ava from 'ava';
import { CallbackSecrets, signingKeyOf } from '../../../src/secrets/callback-secret.ts';
import { SecretBox } from '../../../src/secrets/secret-box.ts';
import {
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  onStores,
  reread,
  resultOf,
  running,
} from '../fixtures.ts';

const test = ava.serial;

const CALLBACK = {
  url: 'https://a.example/hook',
  secret: Uint8Array.of(0, 255, 39, 92),
  secretKeyId: 'k1',
};

onStores(test, 'the webhook outbox', (test, { database, stores, replica }) => {
  const others = replica();

  /** A failed job with a callback; its id. */
  async function ended(): Promise<string> {
    const account = await fundedAccount(stores, 1);
    const { job, claim } = await running(stores, newJob(account, { callback: CALLBACK }));
    assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
    return job.id;
  }

  function change(jobId: string, columns: Record<string, string | number | null>) {
    return database.kysely.updateTable('outbox').set(columns).where('id', '=', jobId).execute();
  }

  /** As if that much time had passed. */
  function age(jobId: string, ms: number) {
    return database.kysely
      .updateTable('outbox')
      .set(eb => ({ secret_erase_at: eb('secret_erase_at', '-', ms) }))
      .where('id', '=', jobId)
      .execute();
  }

  function rowOf(jobId: string) {
    return database.kysely
      .selectFrom('outbox')
      .selectAll()
      .where('id', '=', jobId)
      .executeTakeFirstOrThrow();
  }

  test('hands over what opens for its job and no other', async t => {
    const secrets = new CallbackSecrets(new SecretBox(randomBytes(32)));
    const account = await fundedAccount(stores, 1);
    const id = randomUUID();
    const text = `whsec_${randomBytes(64).toString('base64')}`;
    const callback = { url: `https://a.example/${'ü'.repeat(2030)}`, ...secrets.seal(id, text) };
    const { claim } = await running(stores, newJob(account, { id, callback }));
    t.truthy(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
    const row = await rowOf(id);
    const stored = { secret: row.secret, secretKeyId: row.secret_key_id };
    t.deepEqual(secrets.open(id, stored), signingKeyOf(text));
    t.is(secrets.open(randomUUID(), stored), undefined);
    t.is(row.address, callback.url);
  });

  test('keeps a secret for 24 hours and not longer, undelivered or not', async t => {
    const jobId = await ended();
    await age(jobId, 24 * HOUR_MS - 60_000);
    t.is(await stores.outbox.eraseDueSecrets(100), 0);
    assert.ok((await rowOf(jobId)).secret);
    await age(jobId, 60_000);
    t.is(await stores.outbox.eraseDueSecrets(100), 1);
    const row = await rowOf(jobId);
    t.deepEqual(
      [row.secret, row.secret_key_id, row.secret_erase_at, row.next_attempt_at],
      [null, null, null, null],
    );
    t.deepEqual([row.status, row.fence], ['failed', 1]);
    t.truthy(row.finished_at);
    const { callback } = await reread(stores, jobId);
    t.deepEqual([callback?.status, callback?.nextAttemptAtMs], ['failed', null]);
    t.is(await stores.outbox.eraseDueSecrets(100), 0);
  });

  test('takes a delivery its lease with its secret, and leaves an ended one as it is', async t => {
    const held = await ended();
    await change(held, { lease_holder: 'replica-1', lease_expires_at: Date.now() + HOUR_MS });
    const stopped = await ended();
    await change(stopped, { status: 'failed', finished_at: 5, next_attempt_at: null });
    await age(held, 25 * HOUR_MS);
    await age(stopped, 25 * HOUR_MS);
    t.is(await stores.outbox.eraseDueSecrets(100), 2);
    const [freed, left] = [await rowOf(held), await rowOf(stopped)] as const;
    t.deepEqual([freed.status, freed.lease_holder, freed.fence], ['failed', null, 1]);
    t.deepEqual([left.finished_at, left.fence, left.secret], [5, 0, null]);
  });

  test('erases in bounded steps, and two sweepers at once do no harm', async t => {
    const jobs: string[] = [];
    for (let count = 0; count < 6; count += 1) jobs.push(await ended());
    for (const jobId of jobs) await age(jobId, 25 * HOUR_MS);
    t.is(await stores.outbox.eraseDueSecrets(2), 2);
    const [mine, theirs] = await Promise.all([
      stores.outbox.eraseDueSecrets(100),
      others.outbox.eraseDueSecrets(100),
    ]);
    t.is(mine + theirs, 4);
    for (const jobId of jobs) t.is((await rowOf(jobId)).secret, null);
  });

  test('is told with its job, whichever way the job is read', async t => {
    const account = await fundedAccount(stores, 1);
    const job = newJob(account, { callback: CALLBACK });
    const { claim } = await running(stores, job);
    const result = resultOf(claim);
    t.truthy(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
    await change(job.id, {
      status: 'delivered',
      attempts: 3,
      last_status_code: 204,
      last_attempt_at: 1_800_000_000_000,
      next_attempt_at: null,
      finished_at: 1_800_000_000_000,
    });
    const told = {
      url: CALLBACK.url,
      status: 'delivered',
      attempts: 3,
      lastStatusCode: 204,
      lastAttemptAtMs: 1_800_000_000_000,
      nextAttemptAtMs: null,
    };
    const reads = [
      await stores.jobs.find(job.id),
      await stores.jobs.findForKey(job.id, job.apiKeyId),
      await stores.jobs.findByIdempotencyKey(job.apiKeyId, job.idempotencyKeyHash),
      await stores.jobs.findByResultToken(result.sealedToken),
      ...(await stores.jobs.findFinal([job.id])),
    ];
    t.deepEqual(
      reads.map(read => read?.callback),
      Array(5).fill(told),
    );
  });
});
