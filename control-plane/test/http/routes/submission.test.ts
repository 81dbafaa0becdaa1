import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, test } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import { imageBody, openTestApp, useTestApp } from '../../support/test-app.ts';
import { ASYNC, assertRefused, png, SYNC, snapshot } from './refusals.ts';

const app = useTestApp({ syncWaitMs: 60_000 });
/** Waits hardly at all. */
const hasty = useTestApp({ syncWaitMs: 50 });
afterEach(() => app.refuseNewJobs(undefined));

async function untilOneWaits(of = app): Promise<void> {
  while (of.services.waitForJob.waiting === 0) await new Promise(setImmediate);
}

test('a new job: on the wire, in the store, in the ledger', async () => {
  const { credits } = (await app.get('/v1/account')).json();
  const answer = await app.post(ASYNC, imageBody({ output_format: 'WebP' }));
  assert.equal(answer.statusCode, 202);
  const job = answer.json();
  const { created_at: createdAt, job_id: jobId, ...rest } = job;
  assert.match(jobId, /^[0-9a-f-]{36}$/);
  assert.match(createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.deepEqual(rest, {
    status: 'queued',
    started_at: null,
    finished_at: null,
    status_url: `https://matting.example.com/v1/matting/jobs/${jobId}`,
    credits: { reserved: 1, charged: 0 },
  });
  assert.equal(answer.headers.location, job.status_url);
  assert.equal(answer.headers['retry-after'], '2');
  assert.equal(answer.headers['x-credits-charged'], '0');
  assert.equal(answer.headers['idempotent-replayed'], undefined);
  assert.equal((await app.stores.jobs.find(jobId))?.outputFormat, 'webp');
  assert.equal((await app.stores.jobs.find(jobId))?.class, 'async');
  assert.deepEqual((await app.get('/v1/account')).json().credits, {
    available: credits.available - 1,
    reserved: credits.reserved + 1,
  });
});

test('an image by URL is accepted by its text alone', async () => {
  const own = { image_url: 'http://127.0.0.1/x' };
  await assertRefused(app, own, 'INVALID_IMAGE_SOURCE', 'image_url');
  const url = 'https://images.example.com/photo.jpg';
  const { job_id: jobId } = (await app.post(ASYNC, { image_url: url })).json();
  const job = await app.stores.jobs.find(jobId);
  assert.equal(job?.sourceUrl, url);
  assert.equal(job?.input, null);
  assert.equal(job?.state, 'accepted');
});

test('done while the caller waits', async () => {
  const runner = app.onSubmitted(id => app.succeedJob(id));
  const key = { 'idempotency-key': randomUUID() };
  const first = await app.post(SYNC, imageBody(), key);
  await runner.stop();
  assert.equal(first.statusCode, 200, first.payload);
  const job = first.json();
  assert.equal(job.status, 'succeeded');
  assert.deepEqual(job.credits, { reserved: 0, charged: 1 });
  assert.equal(first.headers['x-credits-charged'], '1');
  assert.equal(first.headers['server-timing'], 'decode;dur=12.3, infer;dur=250');
  assert.equal(first.headers['retry-after'], undefined);
  assert.equal((await app.stores.jobs.find(job.job_id))?.class, 'sync');

  for (const [url, prefer] of [[SYNC], [ASYNC], [SYNC, 'respond-async']] as const) {
    const again = await app.post(url, imageBody(), { ...key, prefer });
    assert.equal(again.statusCode, 200);
    assert.deepEqual(again.json(), job);
    assert.equal(again.headers['x-credits-charged'], '0');
    assert.equal(again.headers['idempotent-replayed'], 'true');
  }
});

test('not done in time: the job is handed over, joined and done later', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const answer = await hasty.post(SYNC, imageBody(), key);
  assert.equal(answer.statusCode, 202);
  const { job_id: jobId, sync_timeout: syncTimeout, status_url: statusUrl } = answer.json();
  assert.equal(syncTimeout, true);
  assert.equal(answer.headers.location, statusUrl);
  assert.equal(answer.headers['x-credits-charged'], '0');

  const joined = await hasty.post(ASYNC, imageBody(), key);
  assert.equal(joined.statusCode, 202);
  assert.equal(joined.json().job_id, jobId);
  assert.equal(joined.json().sync_timeout, undefined);
  assert.equal(joined.headers['idempotent-replayed'], undefined);
  assert.deepEqual((await hasty.get('/v1/account')).json().credits, {
    available: 999,
    reserved: 1,
  });

  // 60 s are more than this service waits: its own bound ends the wait, and nothing was applied.
  const longer = await hasty.post(SYNC, imageBody(), { ...key, prefer: 'wait=60' });
  assert.equal(longer.json().sync_timeout, true);
  assert.equal(longer.headers['preference-applied'], undefined);
});

test('a request that joins a running job gets its end, and is charged nothing', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: jobId } = (await app.post(ASYNC, imageBody(), key)).json();
  const waiting = app.post(SYNC, imageBody(), key);
  await untilOneWaits();
  await app.succeedJob(jobId);
  const done = await waiting;
  assert.equal(done.statusCode, 200);
  assert.equal(done.json().job_id, jobId);
  assert.equal(done.headers['x-credits-charged'], '0');
  assert.equal(done.headers['idempotent-replayed'], undefined);
});

test('a failure while the caller waits is the answer', async () => {
  const failure = {
    code: 'IMAGE_DOWNLOAD_FAILED',
    detail: 'the source answered 404',
    retryable: false,
  } as const;
  const key = { 'idempotency-key': randomUUID() };
  const runner = app.onSubmitted(id => app.failJob(id, failure));
  const first = await app.post(SYNC, imageBody(), key);
  await runner.stop();
  const { code, detail, retryable, job_id: jobId, status } = first.json();
  assert.deepEqual({ code, detail, retryable }, failure);
  assert.equal(first.statusCode, 400);
  assert.equal(status, 400);
  assert.equal(first.headers['x-credits-charged'], '0');
  assert.equal(first.headers['idempotent-replayed'], undefined);

  const again = await app.post(SYNC, imageBody(), key);
  assert.equal(again.json().job_id, jobId);
  assert.equal(again.statusCode, 400);
  assert.equal(again.headers['idempotent-replayed'], 'true');
  const asJob = await app.post(ASYNC, imageBody(), key);
  assert.equal(asJob.statusCode, 200);
  assert.deepEqual(asJob.json().error, failure);
  assert.deepEqual(asJob.json().credits, { reserved: 0, charged: 0 });
});

test('a retryable failure frees its key: joined requests get it, the next one makes a new job', async () => {
  const failure = { code: 'PROCESSING_FAILED', detail: 'storage', retryable: true } as const;
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: jobId } = (await app.post(ASYNC, imageBody(), key)).json();
  const joined = app.post(SYNC, imageBody(), key);
  await untilOneWaits();
  await app.failJob(jobId, failure);
  const seen = await joined;
  assert.equal(seen.statusCode, 422);
  assert.equal(seen.json().retryable, true);
  assert.equal(seen.json().job_id, jobId);
  const anew = await app.post(ASYNC, imageBody(), key);
  assert.equal(anew.statusCode, 202);
  assert.notEqual(anew.json().job_id, jobId);
});

test('the same key with other content', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: jobId } = (await app.post(ASYNC, imageBody(), key)).json();
  const files = await app.storedFiles();
  const others = [
    imageBody({ output_format: 'webp' }),
    { image_base64: png(5, 5) },
    { image_url: 'https://images.example.com/x' },
  ];
  for (const other of others) {
    for (const url of [SYNC, ASYNC]) {
      const answer = await app.post(url, other, key);
      assert.equal(answer.statusCode, 409);
      assert.equal(answer.json().code, 'IDEMPOTENCY_CONFLICT');
      assert.equal(answer.json().job_id, jobId);
      assert.equal(answer.headers['x-credits-charged'], '0');
    }
  }
  assert.deepEqual(await app.storedFiles(), files);
  const same = await app.post(ASYNC, imageBody({ output_format: 'PNG', callback_url: null }), key);
  assert.equal(same.json().job_id, jobId);
});

test("another key's Idempotency-Key is another", async () => {
  const key = { 'idempotency-key': randomUUID() };
  const authorization = `Bearer ${await app.createKey()}`;
  const mine = (await app.post(ASYNC, imageBody(), key)).json();
  const theirs = await app.post(ASYNC, { image_base64: png(9, 9) }, { ...key, authorization });
  assert.equal(theirs.statusCode, 202);
  assert.notEqual(theirs.json().job_id, mine.job_id);
  assert.equal((await app.get(`${ASYNC}/${mine.job_id}`, { authorization })).statusCode, 404);
});

test('ten at once with one key are one job and one reservation', async () => {
  const before = await snapshot(app);
  const key = { 'idempotency-key': randomUUID() };
  const answers = await Promise.all(
    Array.from({ length: 10 }, () => app.post(ASYNC, imageBody(), key)),
  );
  assert.deepEqual([...new Set(answers.map(answer => answer.statusCode))], [202]);
  assert.equal(new Set(answers.map(answer => answer.json().job_id)).size, 1);
  const now = await snapshot(app);
  assert.equal(now.account.credits.available, before.account.credits.available - 1);
  assert.equal(now.files.length, before.files.length + 1);
  assert.equal(now.uploads, 0);
});

test('saturation refuses new work and nothing else', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: jobId } = (await app.post(ASYNC, imageBody(), key)).json();
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 17 }));
  const before = await snapshot(app);
  const answer = await app.post(SYNC, imageBody());
  assert.equal(answer.statusCode, 503);
  assert.equal(answer.headers['retry-after'], '17');
  assert.deepEqual(await snapshot(app), before);
  assert.equal((await app.post(ASYNC, imageBody(), key)).json().job_id, jobId);
  const conflict = await app.post(ASYNC, imageBody({ output_format: 'avif' }), key);
  assert.equal(conflict.statusCode, 409);
  const gif = imageBody({ output_format: 'gif' });
  await assertRefused(app, gif, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format');
});

test('after the body: jobs in flight, saturation, credits; a join passes them all', async t => {
  const small = await openTestApp({ credits: 1, jobsInFlightMax: 1 }, t);
  const codeOf = async (key: string = randomUUID()) => {
    const answer = await small.post(ASYNC, imageBody(), { 'idempotency-key': key });
    return answer.json().code ?? answer.statusCode;
  };
  assert.equal(await codeOf('first'), 202);
  small.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full'));
  assert.equal(await codeOf(), 'RATE_LIMITED');
  assert.equal(await codeOf('first'), 202);
  const [job] = await small.stores.jobs.listClaimable(1);
  assert.ok(job);
  await small.succeedJob(job.id);
  assert.equal(await codeOf(), 'SERVICE_UNAVAILABLE');
  assert.equal(await codeOf('first'), 200);
  small.refuseNewJobs(undefined);
  assert.equal(await codeOf(), 'INSUFFICIENT_CREDITS');
  await small.stores.ledger.grant(small.accountId, 2, 'top-up');
  assert.equal(await codeOf('second'), 202);
  const limited = await small.post(ASYNC, imageBody());
  assert.equal(limited.json().code, 'RATE_LIMITED');
  assert.match(String(limited.headers['retry-after']), /^\d+$/);
  assert.equal(limited.json().retryable, true);
});

test('a refused request is not remembered', async t => {
  const poor = await openTestApp({ credits: 0 }, t);
  const key = { 'idempotency-key': randomUUID() };
  assert.equal((await poor.post(ASYNC, imageBody(), key)).statusCode, 402);
  assert.deepEqual(
    (await poor.storedFiles()).filter(name => !name.startsWith('.')),
    [],
  );
  assert.equal((await poor.post(ASYNC, {}, key)).statusCode, 400);
  await poor.stores.ledger.grant(poor.accountId, 1, 'top-up');
  const other = await poor.post(ASYNC, imageBody({ output_format: 'webp' }), key);
  assert.equal(other.statusCode, 202);
});

test('a burst of uploads waits for its turn and is not refused', async t => {
  const narrow = await openTestApp({ uploadSlots: { max: 2 } }, t);
  const burst = Array.from({ length: 20 }, () => narrow.post(ASYNC, imageBody()));
  const statuses = (await Promise.all(burst)).map(({ statusCode }) => statusCode);
  assert.deepEqual([...new Set(statuses)], [202]);
  assert.equal(narrow.services.uploads.open, 0);
});

test('a URL, a join, a replay and a conflict need no place for an upload', async () => {
  const narrow = await openTestApp({ uploadSlots: { max: 2, waitMs: 1 } });
  const held = ['stalled', 'stalled too'].map(
    account => narrow.services.uploads.beginBoth(account).image,
  );
  try {
    const key = { 'idempotency-key': randomUUID() };
    const body = imageBody();
    const { job_id: jobId } = (await narrow.post(ASYNC, body, key)).json();
    for (const upload of held) await upload.write(Buffer.from('AAAA'));
    const files = await narrow.storedFiles();
    const refused = await narrow.post(ASYNC, imageBody());
    assert.equal(refused.statusCode, 503);
    assert.ok(Number(refused.headers['retry-after']) > 0);
    const url = await narrow.post(ASYNC, { image_url: 'https://images.example.com/x' });
    assert.equal(url.statusCode, 202);
    const joined = await narrow.post(ASYNC, body, key);
    assert.equal(joined.statusCode, 202);
    assert.equal(joined.json().job_id, jobId);
    const other = await narrow.post(ASYNC, { ...body, output_format: 'webp' }, key);
    assert.equal(other.json().code, 'IDEMPOTENCY_CONFLICT');
    // Bodies are judged before the place.
    const broken = { image_base64: `${body.image_base64}*` };
    assert.equal((await narrow.post(ASYNC, broken)).json().code, 'INVALID_IMAGE_SOURCE');
    await narrow.succeedJob(jobId);
    const replayed = await narrow.post(SYNC, body, key);
    assert.equal(replayed.statusCode, 200);
    assert.equal(replayed.headers['idempotent-replayed'], 'true');
    assert.equal(
      (await narrow.stores.ledger.balances(narrow.accountId))?.reserved,
      1,
      'of the URL',
    );
    assert.equal(narrow.services.uploads.open, 2);
    assert.ok((await narrow.storedFiles()).length <= files.length + 1, 'but for the result');
  } finally {
    for (const upload of held) await upload.abort();
    assert.equal(narrow.services.uploads.open, 0);
    await narrow.close();
  }
});

test('a replica that drains makes no job, but answers for those there are', async t => {
  const leaving = await openTestApp({ syncWaitMs: 60_000 }, t);
  const key = { 'idempotency-key': randomUUID() };
  const waiting = leaving.post(SYNC, imageBody(), key);
  await untilOneWaits(leaving);
  leaving.services.submitMatting.startDraining();
  leaving.services.waitForJob.endAllWaits();
  const handedOver = await waiting;
  assert.equal(handedOver.statusCode, 202);
  assert.equal(handedOver.json().sync_timeout, true);
  const refused = await leaving.post(SYNC, imageBody());
  assert.equal(refused.statusCode, 503);
  assert.equal(refused.headers['retry-after'], '1');
  const joined = await leaving.post(SYNC, imageBody(), key);
  assert.equal(joined.json().job_id, handedOver.json().job_id);
});

test('Prefer', async () => {
  const ask = async (prefer: string, body = imageBody()) => {
    const { statusCode, headers, payload } = await app.post(SYNC, body, { prefer });
    return { status: statusCode, applied: headers['preference-applied'], job: JSON.parse(payload) };
  };
  const async = await ask('respond-async');
  assert.equal(async.status, 202);
  assert.equal(async.applied, 'respond-async');
  assert.equal(async.job.sync_timeout, undefined);
  assert.equal((await app.stores.jobs.find(async.job.job_id))?.class, 'async');

  const none = await ask('wait=0');
  assert.equal(none.status, 202);
  assert.equal(none.applied, 'wait=0');
  assert.equal(none.job.sync_timeout, true);

  const unreadable = await hasty.post(SYNC, imageBody(), { prefer: 'wait=soon' });
  assert.equal(unreadable.headers['preference-applied'], undefined);

  const both = await ask('respond-async, wait=0');
  assert.equal(both.status, 202);
  assert.equal(both.applied, 'respond-async, wait=0');
  const runner = app.onSubmitted(id => app.succeedJob(id));
  const done = await ask('respond-async, wait=50');
  await runner.stop();
  assert.equal(done.status, 200);
  assert.equal(done.applied, 'respond-async, wait=50');

  const elsewhere = await app.post(ASYNC, imageBody(), { prefer: 'wait=5' });
  assert.equal(elsewhere.headers['preference-applied'], undefined);
});
