import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import sinon from 'sinon';
import { imageBody, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;
const JOBS = '/v1/matting/jobs';

const failures: string[] = [];
const app = useTestApp(test, {
  syncWaitMs: 20_000,
  lossObserver: { resultNotErased: () => void failures.push('not erased') },
});

const remove = (jobId: string, more: Record<string, string | undefined> = {}) =>
  app.app.inject({
    method: 'DELETE',
    url: `${JOBS}/${jobId}`,
    headers: app.headers({ 'content-type': undefined, ...more }),
  });

async function submitted(more: Record<string, unknown> = {}, key = randomUUID()) {
  const answer = await app.post(JOBS, imageBody(more), { 'idempotency-key': key });
  assert.equal(answer.statusCode, 202, answer.body);
  return answer.json().job_id as string;
}

test('a reference is in the job, its notification and lists, and no part of the request', async t => {
  const reference = '<b>"Müller" & Söhne</b>';
  const key = randomUUID();
  const callback = {
    callback_url: 'https://receiver.example/hook',
    callback_secret: 'a secret of 24 characters',
  };
  const id = await submitted({ reference: reference.normalize('NFD'), ...callback }, key);
  t.is((await app.get(`${JOBS}/${id}`)).json().reference, reference);
  t.is(await submitted({ reference: 'another', ...callback }, key), id);
  t.is(await submitted(callback, key), id);
  t.is((await app.get(`${JOBS}/${id}`)).json().reference, reference);
  const query = `?reference=${encodeURIComponent(reference)}`;
  t.deepEqual(
    (await app.get(JOBS + query)).json().jobs.map((job: { job_id: string }) => job.job_id),
    [id],
  );
  await app.succeedJob(id);
  const other = await submitted();
  t.false('reference' in (await app.get(`${JOBS}/${other}`)).json());
  await remove(other);
  t.is((await remove(id)).json().reference, undefined);
  t.deepEqual((await app.get(JOBS + query)).json(), { jobs: [], next_cursor: null });
});

test('a list is of the caller’s key, by pages, and says what is wrong with its query', async t => {
  const other = { authorization: `Bearer ${await app.createKey()}` };
  const ids: string[] = [];
  for (let count = 0; count < 5; count += 1) {
    ids.unshift((await app.post(JOBS, imageBody(), other)).json().job_id);
  }
  const found: string[] = [];
  let cursor: string | null = null;
  do {
    const query: string = cursor === null ? '' : `&cursor=${cursor}`;
    const page = (await app.get(`${JOBS}?limit=2${query}`, other)).json();
    found.push(...page.jobs.map((job: { job_id: string }) => job.job_id));
    cursor = page.next_cursor;
  } while (cursor !== null);
  t.deepEqual([...found].sort(), [...ids].sort());
  for (const [query, code, field] of [
    ['status=done', 'INVALID_PARAMETER', 'status'],
    ['limit=0', 'INVALID_PARAMETER', 'limit'],
    ['limit=101', 'INVALID_PARAMETER', 'limit'],
    ['limit=1e1', 'INVALID_PARAMETER', 'limit'],
    ['cursor=1', 'INVALID_PARAMETER', 'cursor'],
    ['reference=', 'INVALID_PARAMETER', 'reference'],
    ['reference=%00', 'INVALID_PARAMETER', 'reference'],
    ['state=queued', 'INVALID_REQUEST', 'state'],
    ['limit=1&limit=1', 'INVALID_REQUEST', 'limit'],
  ] as const) {
    const answer = await app.get(`${JOBS}?${query}`, other);
    t.deepEqual([answer.statusCode, answer.json().code], [400, code], query);
    t.is(answer.json().errors[0].field, field);
  }
});

test('a job that is cancelled answers whoever waits for it, and its key', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const waits = app.post('/v1/matting', imageBody(), key);
  await until('a request that waits', () => app.services.waitForJob.waiting > 0);
  const [{ id = '' } = {}] = await app.stores.queue.listClaimable(1000);
  const { credits } = (await app.get('/v1/account')).json();
  const deleted = await remove(id);
  t.is(deleted.statusCode, 200);
  t.like(deleted.json(), { status: 'failed', error: { code: 'JOB_CANCELLED', retryable: false } });
  const answer = await waits;
  t.deepEqual([answer.statusCode, answer.json().code], [409, 'JOB_CANCELLED']);
  t.is(answer.json().job_id, id);
  const after = (await app.get('/v1/account')).json().credits;
  t.deepEqual(after, { available: credits.available + 1, reserved: credits.reserved - 1 });
  const again = await app.post('/v1/matting', imageBody(), key);
  t.deepEqual([again.statusCode, again.headers['idempotent-replayed']], [409, 'true']);
  t.is((await remove(id)).statusCode, 200);
});

async function stored() {
  app.thumbnail = Buffer.from('small');
  const id = await submitted();
  const { token, blob } = await app.succeedJob(id, Buffer.alloc(30_000_000));
  app.thumbnail = undefined;
  const files = [blob, `${blob}-thumbnail`].map(name => path.join(app.storageDir, name));
  assert.ok(files.every(existsSync));
  return { id, files, link: `/v1/results/${token}` };
}

test('a deleted result is gone with its thumbnail, its link and its downloads', async t => {
  const { id, files, link } = await stored();
  const port = await app.listen();
  const download = http.get({ port, path: link });
  const [response] = (await new Promise((resolve, reject) => {
    download.on('response', (...given) => resolve(given)).on('error', reject);
  })) as [http.IncomingMessage];
  response.pause();
  const cut = new Promise(resolve => response.once('error', resolve).once('aborted', resolve));
  const answer = await remove(id, { 'idempotency-key': randomUUID() });
  t.is(answer.statusCode, 200);
  const { status, deleted_at: deletedAt, credits, models } = answer.json();
  t.deepEqual([status, credits], ['expired', { reserved: 0, charged: 1 }]);
  t.regex(deletedAt, /^\d{4}-/);
  t.truthy(models);
  response.resume();
  await cut;
  t.false(files.some(existsSync));
  t.is((await app.app.inject(link)).json().code, 'RESULT_EXPIRED');
  const { readAtMs: _, ...once } = (await app.stores.jobs.find(id))!;
  t.is((await remove(id)).statusCode, 200);
  const { readAtMs: __, ...twice } = (await app.stores.jobs.find(id))!;
  t.deepEqual(twice, once);
  t.is((await app.get(`${JOBS}/${id}`)).json().models.length, 1);
});

test('a result that another replica deleted is no longer sent', async t => {
  const { id, link } = await stored();
  const port = await app.listen();
  const download = http.get({ port, path: link });
  const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
    download.on('response', resolve).on('error', reject);
  });
  response.pause();
  const { apiKeyId } = (await app.stores.jobs.find(id))!;
  await app.stores.queue.remove(id, apiKeyId);
  const cut = new Promise(resolve => response.once('error', resolve).once('aborted', resolve));
  await until('the download is cut', () => app.services.resultReaders.open === 0);
  response.resume();
  await cut;
  t.pass();
});

test('a result that the storage does not erase is counted, and left to the sweeper', async t => {
  const { id, files } = await stored();
  const removal = sinon.stub(app.blobs, 'remove').rejects(new Error('away'));
  t.teardown(() => removal.restore());
  const answer = await remove(id);
  t.deepEqual([answer.statusCode, answer.json().status], [200, 'expired']);
  t.deepEqual(failures, ['not erased']);
  removal.restore();
  t.true(files.every(existsSync));
  const left = await app.stores.jobs.takeExpiredResultBlobs(10);
  t.deepEqual(
    files.filter(file => left.includes(path.relative(app.storageDir, file))),
    files,
  );
});

test('a deletion needs the scope to submit, and finds the key’s own jobs alone', async t => {
  const id = await submitted();
  const reader = { authorization: `Bearer ${await app.createKey({ scopes: ['read'] })}` };
  t.is((await remove(id, reader)).json().code, 'KEY_NOT_ALLOWED');
  const other = { authorization: `Bearer ${await app.createKey()}` };
  for (const unknown of [id, randomUUID(), 'nonsense']) {
    t.is((await remove(unknown, other)).json().code, 'JOB_NOT_FOUND');
  }
  t.is((await remove(id, { 'idempotency-key': undefined })).json().code, 'INVALID_IDEMPOTENCY_KEY');
  t.is((await remove(id.toUpperCase())).statusCode, 200);
});
