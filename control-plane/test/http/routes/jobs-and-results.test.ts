import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { imageBody, openTestApp, useTestApp } from '../../support/test-app.ts';

const JOBS = '/v1/matting/jobs';
const FILE = Buffer.from('0123456789');

const app = useTestApp();

async function submit(to = app): Promise<string> {
  return (await to.post(JOBS, imageBody())).json().job_id;
}

test('unknown jobs, malformed ids and jobs of other keys get the same answer', async () => {
  const mine = await submit();
  const authorization = `Bearer ${await app.createKey()}`;
  const answers = [
    await app.get(`${JOBS}/${randomUUID()}`),
    await app.get(`${JOBS}/not-a-uuid`),
    await app.get(`${JOBS}/${'a'.repeat(4000)}`),
    await app.get(`${JOBS}/${mine}x`),
    await app.get(`${JOBS}/..%2f..%2fetc`),
    await app.get(`${JOBS}/${mine}`, { authorization }),
  ];
  for (const answer of answers) {
    assert.equal(answer.statusCode, 404);
    const { instance, request_id: _, ...problem } = answer.json();
    assert.ok(instance.startsWith(JOBS));
    assert.equal(problem.code, 'JOB_NOT_FOUND');
    assert.deepEqual(Object.keys(problem).sort(), [
      'code',
      'detail',
      'retryable',
      'status',
      'title',
      'type',
    ]);
  }
  assert.equal((await app.get(`${JOBS}/${mine.toUpperCase()}`)).statusCode, 200);
});

test('a job through its states', async () => {
  const id = await submit();
  const read = async () => app.get(`${JOBS}/${id}`);
  const queued = await read();
  assert.equal(queued.json().status, 'queued');
  assert.equal(queued.headers['retry-after'], '2');
  assert.equal(queued.headers['cache-control'], 'no-store');
  assert.equal(queued.headers['x-credits-charged'], undefined);

  const claim = await app.startJob(id);
  const processing = await read();
  assert.equal(processing.json().status, 'processing');
  assert.notEqual(processing.json().started_at, null);
  assert.equal(processing.json().finished_at, null);
  assert.equal(processing.headers['retry-after'], '2');

  const { token } = await app.succeedJob(id, FILE, { 'odd stage': 1.25 }, claim);
  const succeeded = await read();
  const job = succeeded.json();
  assert.equal(job.status, 'succeeded');
  assert.equal(succeeded.headers['retry-after'], undefined);
  assert.equal(succeeded.headers['server-timing'], 'odd_stage;dur=1.3');
  assert.equal(Date.parse(job.result.expiresAt) - Date.parse(job.finished_at), 86_400_000);
  assert.deepEqual(job.result, {
    url: `https://matting.example.com/v1/results/${token}`,
    format: 'png',
    contentType: 'image/png',
    sizeBytes: FILE.length,
    width: 2,
    height: 1,
    expiresAt: job.result.expiresAt,
  });
  const head = await app.app.inject({
    method: 'HEAD',
    url: `${JOBS}/${id}`,
    headers: app.headers(),
  });
  assert.equal(head.statusCode, 200);
  assert.equal(head.payload, '');
});

test('a failed job is read with 200, its error inside', async () => {
  const id = await submit();
  await app.failJob(id, { code: 'PROCESSING_FAILED', detail: 'decode', retryable: false });
  const answer = await app.get(`${JOBS}/${id}`);
  assert.equal(answer.statusCode, 200);
  const job = answer.json();
  assert.equal(job.status, 'failed');
  assert.equal('result' in job, false);
  assert.deepEqual(job.error, { code: 'PROCESSING_FAILED', detail: 'decode', retryable: false });
  assert.deepEqual(job.credits, { reserved: 0, charged: 0 });
});

async function storeResult(): Promise<{ id: string; url: string }> {
  const id = await submit();
  const { token } = await app.succeedJob(id, FILE);
  return { id, url: `/v1/results/${token}` };
}

test('a link that leads nowhere', async () => {
  for (const token of ['x', randomUUID(), 'a'.repeat(5000), '%00', '..', 'a%2fb']) {
    const answer = await app.app.inject(`/v1/results/${token}`);
    assert.equal(answer.statusCode, 404, token);
    assert.equal(answer.json().code, 'NOT_FOUND');
    assert.equal(answer.headers['cache-control'], 'no-store');
  }
});

test('the file behind a link, without a key', async () => {
  const { id, url } = await storeResult();
  const get = await app.app.inject(url);
  assert.equal(get.statusCode, 200);
  assert.deepEqual(get.rawPayload, FILE);
  const { headers } = get;
  assert.equal(headers['content-type'], 'image/png');
  assert.equal(headers['content-length'], '10');
  assert.equal(headers['content-disposition'], `attachment; filename="cutout-${id}.png"`);
  assert.equal(headers.etag, `"${'ab'.repeat(32)}"`);
  assert.equal(headers['accept-ranges'], 'bytes');
  assert.equal(headers['x-content-type-options'], 'nosniff');
  const maxAgeS = Number(/^private, max-age=(\d+)$/.exec(String(headers['cache-control']))?.[1]);
  assert.ok(maxAgeS <= 86_400 && maxAgeS > 86_000);

  const head = await app.app.inject({ method: 'HEAD', url });
  assert.equal(head.statusCode, 200);
  assert.equal(head.payload, '');
  for (const name of ['content-type', 'content-length', 'content-disposition', 'etag']) {
    assert.equal(head.headers[name], headers[name]);
  }
});

// headers/conditions.test.ts and byte-range.test.ts have every way to ask.
test('ranges and conditions', async () => {
  const { url } = await storeResult();
  const etag = `"${'ab'.repeat(32)}"`;
  const ask = (headers: Record<string, string>) => app.app.inject({ url, headers });

  const part = await ask({ range: 'bytes=2-4' });
  assert.equal(part.statusCode, 206);
  assert.equal(part.payload, '234');
  assert.equal(part.headers['content-range'], 'bytes 2-4/10');
  assert.equal(part.headers['content-length'], '3');
  assert.equal((await ask({ range: 'bytes=0-0,2-2' })).statusCode, 200);

  const outside = await ask({ range: 'bytes=10-' });
  assert.equal(outside.statusCode, 416);
  assert.equal(outside.headers['content-range'], 'bytes */10');
  assert.equal(outside.json().code, 'RANGE_NOT_SATISFIABLE');
  assert.equal(outside.headers['cache-control'], 'no-store');

  const held = { range: 'bytes=2-4' };
  assert.equal((await ask({ ...held, 'if-range': etag })).statusCode, 206);
  assert.equal((await ask({ ...held, 'if-range': '"other"' })).payload, '0123456789');

  const unchanged = await ask({ 'if-none-match': `"x", ${etag}` });
  assert.equal(unchanged.statusCode, 304);
  assert.equal(unchanged.payload, '');
  assert.equal(unchanged.headers.etag, etag);

  const made = String(part.headers['last-modified']);
  assert.equal(new Date(made).toUTCString(), made);
  const statuses: [number, Record<string, string>][] = [
    [412, { 'if-match': '"x"' }],
    [200, { 'if-unmodified-since': made }],
    [206, { 'if-range': made, ...held }],
    [304, { 'if-modified-since': made, ...held }],
  ];
  for (const [status, headers] of statuses) {
    const answer = await ask(headers);
    assert.equal(answer.statusCode, status, JSON.stringify(headers));
    if (status === 304) assert.equal(answer.headers['last-modified'], made);
    const same = await app.app.inject({ method: 'HEAD', url, headers });
    assert.equal(same.statusCode, status === 206 ? 200 : status);
    assert.equal(same.payload, '');
  }
  const head = await app.app.inject({ method: 'HEAD', url, headers: held });
  assert.equal(head.headers['content-length'], '10');
});

test("expiry is the row's, whether the sweeper came or not", async t => {
  const brief = await openTestApp({ resultTtlMs: 1 }, t);
  const key = { 'idempotency-key': randomUUID() };
  const id = (await brief.post(JOBS, imageBody(), key)).json().job_id;
  const { token } = await brief.succeedJob(id);
  // The link lives for 1 ms of the database's clock.
  while ((await brief.get(`${JOBS}/${id}`)).json().status === 'succeeded') {
    await new Promise(resolve => setTimeout(resolve, 1));
  }
  const assertExpired = async () => {
    const job = (await brief.get(`${JOBS}/${id}`)).json();
    assert.equal(job.status, 'expired');
    assert.equal('result' in job, false);
    assert.deepEqual(job.credits, { reserved: 0, charged: 1 });
    const link = await brief.app.inject(`/v1/results/${token}`);
    assert.equal(link.statusCode, 410);
    assert.equal(link.json().code, 'RESULT_EXPIRED');
    const again = await brief.post('/v1/matting', imageBody(), key);
    assert.equal(again.statusCode, 410);
    assert.equal(again.json().job_id, id);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assert.equal(again.headers['x-credits-charged'], '0');
    const asJob = await brief.post(JOBS, imageBody(), key);
    assert.equal(asJob.statusCode, 200);
    assert.equal(asJob.json().status, 'expired');
  };
  await assertExpired();
  assert.equal((await brief.stores.jobs.takeExpiredResultBlobs(10)).length, 1);
  await assertExpired();
});
