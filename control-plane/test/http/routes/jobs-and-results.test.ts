import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { imageBody, openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
const FILE = Buffer.from('0123456789');

const app = useTestApp(test);

async function submit(to = app): Promise<string> {
  return (await to.post(JOBS, imageBody())).json().job_id;
}

test('unknown jobs, malformed ids and jobs of other keys get the same answer', async t => {
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
    t.is(answer.statusCode, 404);
    const { instance, request_id: _, ...problem } = answer.json();
    t.true(instance.startsWith(JOBS));
    t.is(problem.code, 'JOB_NOT_FOUND');
    t.deepEqual(Object.keys(problem).sort(), [
      'code',
      'detail',
      'retryable',
      'status',
      'title',
      'type',
    ]);
  }
  t.is((await app.get(`${JOBS}/${mine.toUpperCase()}`)).statusCode, 200);
});

test('a job through its states', async t => {
  const id = await submit();
  const read = async () => app.get(`${JOBS}/${id}`);
  const queued = await read();
  t.is(queued.json().status, 'queued');
  t.is(queued.headers['retry-after'], '2');
  t.is(queued.headers['cache-control'], 'no-store');
  t.is(queued.headers['x-credits-charged'], undefined);

  const claim = await app.startJob(id);
  const processing = await read();
  t.is(processing.json().status, 'processing');
  t.not(processing.json().started_at, null);
  t.is(processing.json().finished_at, null);
  t.is(processing.headers['retry-after'], '2');

  const { token } = await app.succeedJob(id, FILE, { 'odd stage': 1.25 }, claim);
  const succeeded = await read();
  const job = succeeded.json();
  t.is(job.status, 'succeeded');
  t.is(succeeded.headers['retry-after'], undefined);
  t.is(succeeded.headers['server-timing'], 'odd_stage;dur=1.3');
  t.is(Date.parse(job.result.expiresAt) - Date.parse(job.finished_at), 86_400_000);
  t.deepEqual(job.result, {
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
  t.is(head.statusCode, 200);
  t.is(head.payload, '');
});

test('a failed job is read with 200, its error inside', async t => {
  const id = await submit();
  await app.failJob(id, { code: 'PROCESSING_FAILED', detail: 'decode', retryable: false });
  const answer = await app.get(`${JOBS}/${id}`);
  t.is(answer.statusCode, 200);
  const job = answer.json();
  t.is(job.status, 'failed');
  t.false('result' in job);
  t.deepEqual(job.error, { code: 'PROCESSING_FAILED', detail: 'decode', retryable: false });
  t.deepEqual(job.credits, { reserved: 0, charged: 0 });
});

async function storeResult(): Promise<{ id: string; url: string }> {
  const id = await submit();
  const { token } = await app.succeedJob(id, FILE);
  return { id, url: `/v1/results/${token}` };
}

test('a link that leads nowhere', async t => {
  for (const token of ['x', randomUUID(), 'a'.repeat(5000), '%00', '..', 'a%2fb']) {
    const answer = await app.app.inject(`/v1/results/${token}`);
    t.is(answer.statusCode, 404, token);
    t.is(answer.json().code, 'NOT_FOUND');
    t.is(answer.headers['cache-control'], 'no-store');
  }
});

test('the file behind a link, without a key', async t => {
  const { id, url } = await storeResult();
  const get = await app.app.inject(url);
  t.is(get.statusCode, 200);
  t.deepEqual(get.rawPayload, FILE);
  const { headers } = get;
  t.is(headers['content-type'], 'image/png');
  t.is(headers['content-length'], '10');
  t.is(headers['content-disposition'], `attachment; filename="cutout-${id}.png"`);
  t.is(headers.etag, `"${'ab'.repeat(32)}"`);
  t.is(headers['accept-ranges'], 'bytes');
  t.is(headers['x-content-type-options'], 'nosniff');
  const maxAgeS = Number(/^private, max-age=(\d+)$/.exec(String(headers['cache-control']))?.[1]);
  t.true(maxAgeS <= 86_400 && maxAgeS > 86_000);

  const head = await app.app.inject({ method: 'HEAD', url });
  t.is(head.statusCode, 200);
  t.is(head.payload, '');
  for (const name of ['content-type', 'content-length', 'content-disposition', 'etag']) {
    t.is(head.headers[name], headers[name]);
  }
});

// headers/conditions.test.ts and byte-range.test.ts have every way to ask.
test('ranges and conditions', async t => {
  const { url } = await storeResult();
  const etag = `"${'ab'.repeat(32)}"`;
  const ask = (headers: Record<string, string>) => app.app.inject({ url, headers });

  const part = await ask({ range: 'bytes=2-4' });
  t.is(part.statusCode, 206);
  t.is(part.payload, '234');
  t.is(part.headers['content-range'], 'bytes 2-4/10');
  t.is(part.headers['content-length'], '3');
  t.is((await ask({ range: 'bytes=0-0,2-2' })).statusCode, 200);

  const outside = await ask({ range: 'bytes=10-' });
  t.is(outside.statusCode, 416);
  t.is(outside.headers['content-range'], 'bytes */10');
  t.is(outside.json().code, 'RANGE_NOT_SATISFIABLE');
  t.is(outside.headers['cache-control'], 'no-store');

  const held = { range: 'bytes=2-4' };
  t.is((await ask({ ...held, 'if-range': etag })).statusCode, 206);
  t.is((await ask({ ...held, 'if-range': '"other"' })).payload, '0123456789');

  const unchanged = await ask({ 'if-none-match': `"x", ${etag}` });
  t.is(unchanged.statusCode, 304);
  t.is(unchanged.payload, '');
  t.is(unchanged.headers.etag, etag);

  const made = String(part.headers['last-modified']);
  t.is(new Date(made).toUTCString(), made);
  const statuses: [number, Record<string, string>][] = [
    [412, { 'if-match': '"x"' }],
    [200, { 'if-unmodified-since': made }],
    [206, { 'if-range': made, ...held }],
    [304, { 'if-modified-since': made, ...held }],
  ];
  for (const [status, headers] of statuses) {
    const answer = await ask(headers);
    t.is(answer.statusCode, status, JSON.stringify(headers));
    if (status === 304) t.is(answer.headers['last-modified'], made);
    const same = await app.app.inject({ method: 'HEAD', url, headers });
    t.is(same.statusCode, status === 206 ? 200 : status);
    t.is(same.payload, '');
  }
  const head = await app.app.inject({ method: 'HEAD', url, headers: held });
  t.is(head.headers['content-length'], '10');
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
    t.is(job.status, 'expired');
    t.false('result' in job);
    t.deepEqual(job.credits, { reserved: 0, charged: 1 });
    const link = await brief.app.inject(`/v1/results/${token}`);
    t.is(link.statusCode, 410);
    t.is(link.json().code, 'RESULT_EXPIRED');
    const again = await brief.post('/v1/matting', imageBody(), key);
    t.is(again.statusCode, 410);
    t.is(again.json().job_id, id);
    t.is(again.headers['idempotent-replayed'], 'true');
    t.is(again.headers['x-credits-charged'], '0');
    const asJob = await brief.post(JOBS, imageBody(), key);
    t.is(asJob.statusCode, 200);
    t.is(asJob.json().status, 'expired');
  };
  await assertExpired();
  t.is((await brief.stores.jobs.takeExpiredResultBlobs(10)).length, 1);
  await assertExpired();
});
