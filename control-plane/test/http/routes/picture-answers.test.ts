/** POST /v1/matting where the caller takes the picture itself. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava, { type ExecutionContext } from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { BASE_URL, imageBody, openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const SYNC = '/v1/matting';
const ASYNC = '/v1/matting/jobs';
const FILE = Buffer.from('0123456789');

const app = useTestApp(test);

function freshKey(): { 'idempotency-key': string } {
  return { 'idempotency-key': randomUUID() };
}

/** Ends every job that is submitted during the test with FILE. */
function succeeding(t: ExecutionContext, of = app): void {
  const runner = of.onSubmitted(jobId => of.succeedJob(jobId, FILE));
  t.teardown(() => runner.stop());
}

function codeOf(answer: LightMyRequestResponse): [number, string] {
  assert.equal(answer.headers['content-type'], 'application/problem+json');
  return [answer.statusCode, answer.json().code];
}

test('the picture comes with all that names it, and is charged once', async t => {
  succeeding(t);
  const { available } = (await app.get('/v1/account')).json().credits;
  const answer = await app.post(SYNC, imageBody(), { accept: 'image/png' });
  t.is(answer.statusCode, 200);
  t.deepEqual(answer.rawPayload, FILE);
  const { headers } = answer;
  const jobId = String(headers['x-job-id']);
  const job = (await app.get(`${ASYNC}/${jobId}`)).json();
  const named = [
    'content-type',
    'content-length',
    'etag',
    'content-location',
    'content-disposition',
    'link',
    'x-credits-charged',
    'server-timing',
    'vary',
    'cache-control',
    'idempotent-replayed',
    'accept-ranges',
    'last-modified',
    'location',
    'retry-after',
  ];
  t.deepEqual(Object.fromEntries(named.map(name => [name, headers[name]])), {
    'content-type': 'image/png',
    'content-length': '10',
    etag: `"${'ab'.repeat(32)}"`,
    'content-location': job.result.url,
    'content-disposition': `attachment; filename="cutout-${jobId}.png"`,
    link: `<${BASE_URL}${ASYNC}/${jobId}>; rel="describedby"; type="application/json"`,
    'x-credits-charged': '1',
    'server-timing': 'decode;dur=12.3, infer;dur=250',
    vary: 'accept',
    'cache-control': 'no-store',
    'idempotent-replayed': undefined,
    'accept-ranges': undefined,
    'last-modified': undefined,
    location: undefined,
    'retry-after': undefined,
  });
  assert.ok(headers.ratelimit);
  t.is((await app.get('/v1/account')).json().credits.available, available - 1);
  const link = await app.app.inject(new URL(job.result.url).pathname);
  t.is(link.headers.etag, headers.etag);
  t.is(link.headers['content-disposition'], headers['content-disposition']);
});

test('without an output_format the format is the one that is accepted', async t => {
  succeeding(t);
  for (const [accept, format] of [
    ['image/webp', 'webp'],
    ['image/jxl;q=0.9, image/avif', 'avif'],
    ['image/*', 'png'],
    [['image/gif', 'image/jxl'], 'jxl'],
  ] as const) {
    const answer = await app.post(SYNC, imageBody(), { accept: accept as string });
    t.is(answer.headers['content-type'], `image/${format}`);
    const job = await app.get(`${ASYNC}/${answer.headers['x-job-id']}`);
    t.is(job.json().result.format, format);
  }
  const named = imageBody({ output_format: 'avif' });
  const answer = await app.post(SYNC, named, { accept: 'image/webp;q=0.9, image/*;q=0.1' });
  t.is(answer.headers['content-type'], 'image/avif');
});

test('a result without transparency may be JPEG where Accept asks for it', async t => {
  succeeding(t);
  const typeOf = async (fields: object, accept: string) => {
    const answer = await app.post(SYNC, imageBody({ ...fields }), { accept });
    return answer.statusCode === 200 ? answer.headers['content-type'] : codeOf(answer)[1];
  };
  const white = { background: 'white' };
  t.is(await typeOf(white, 'image/jpeg'), 'image/jpeg');
  t.is(await typeOf(white, 'image/jpg'), 'image/jpeg');
  t.is(await typeOf(white, 'image/*'), 'image/png');
  t.is(await typeOf(white, 'image/*;q=0.5, image/jpeg'), 'image/jpeg');
  const picture = { background_url: 'https://images.example.com/wall.jpg', callback_url: '' };
  t.is(await typeOf(picture, 'image/jpeg'), 'INVALID_CALLBACK');
  t.is(await typeOf({ ...white, output_format: 'jpg' }, 'image/*'), 'image/jpeg');
  t.is(await typeOf({ ...white, output_format: 'jpg' }, 'image/png'), 'NOT_ACCEPTABLE');
  for (const transparent of [
    {},
    { background: 'transparent' },
    { background: '#ffffff80' },
    { channels: 'alpha' },
    { crop: true },
  ]) {
    t.is(await typeOf(transparent, 'image/jpeg'), 'NOT_ACCEPTABLE');
    t.is(await typeOf(transparent, 'image/jpeg, image/webp;q=0.1'), 'image/webp');
  }
  const nonsense = { background: 'beautiful' };
  t.is(await typeOf(nonsense, 'image/gif'), 'INVALID_PARAMETER');
});

test('what the node saw comes with the picture, and nothing where it did not say', async t => {
  succeeding(t);
  t.teardown(() => {
    app.sight = null;
  });
  const seen = async () => {
    const { headers } = await app.post(SYNC, imageBody(), { accept: 'image/png' });
    return [headers['x-subject-box'], headers['x-subject-share']];
  };
  t.deepEqual(await seen(), [undefined, undefined]);
  const input = { inputWidth: 1000, inputHeight: 500 };
  const inputBox = { left: 10, top: 0, width: 300, height: 400 };
  const subject = { inputBox, resultBox: inputBox, share: 0.123456789 };
  app.sight = { ...input, subject };
  t.deepEqual(await seen(), ['10,0,300,400', '0.123457']);
  app.sight = { ...input, subject: { ...subject, share: 1 } };
  t.deepEqual(await seen(), ['10,0,300,400', '1']);
  app.sight = { ...input, subject: null };
  t.deepEqual(await seen(), [undefined, '0']);
});

test('JSON where it is taken before a picture, and where no picture is asked for', async t => {
  succeeding(t);
  for (const accept of [undefined, '', '*/*', 'image/webp;q=0.9, application/json']) {
    const answer = await app.post(SYNC, imageBody(), { accept });
    t.is(answer.statusCode, 200, accept);
    t.is(answer.headers['content-type'], 'application/json; charset=utf-8');
    t.is(answer.json().result.format, 'png');
    t.is(answer.headers['x-credits-charged'], '1');
    t.is(answer.headers.vary, 'accept');
    for (const header of ['x-job-id', 'link', 'content-location', 'etag']) {
      t.is(answer.headers[header], undefined, header);
    }
  }
});

test('a replay gives the picture again and charges nothing', async t => {
  succeeding(t);
  const headers = { ...freshKey(), accept: 'image/png' };
  const first = await app.post(SYNC, imageBody(), headers);
  const again = await app.post(SYNC, imageBody(), headers);
  t.is(again.statusCode, 200);
  t.deepEqual(again.rawPayload, FILE);
  t.is(again.headers['idempotent-replayed'], 'true');
  t.is(again.headers['x-credits-charged'], '0');
  for (const name of ['x-job-id', 'content-location', 'etag', 'link']) {
    t.is(again.headers[name], first.headers[name]);
  }
  // The same request in another form: PNG is what JSON would have been made in.
  const { accept: _, ...key } = headers;
  const json = await app.post(SYNC, imageBody(), key);
  t.is(json.json().job_id, first.headers['x-job-id']);
  const any = await app.post(SYNC, imageBody(), { ...key, accept: 'image/*' });
  t.is(any.headers['x-job-id'], first.headers['x-job-id']);
  const other = await app.post(SYNC, imageBody(), { ...key, accept: 'image/webp' });
  t.deepEqual(codeOf(other), [409, 'IDEMPOTENCY_CONFLICT']);
  const named = imageBody({ output_format: 'png' });
  const same = await app.post(SYNC, named, { ...key, accept: 'image/png' });
  t.is(same.headers['idempotent-replayed'], 'true');
});

test('a contradiction is refused before there is a job, and is not remembered', async t => {
  const key = freshKey();
  const jobs = await app.countJobs();
  const files = await app.storedFiles();
  const refusals: [body: unknown, accept: string, field?: string][] = [
    [imageBody({ output_format: 'png' }), 'image/webp', 'output_format'],
    [imageBody({ output_format: 'WEBP' }), 'image/*, image/webp;q=0', 'output_format'],
    [imageBody(), 'image/gif'],
    [imageBody(), 'image/jpeg'],
  ];
  for (const [body, accept, field] of refusals) {
    for (const prefer of [undefined, 'respond-async']) {
      const answer = await app.post(SYNC, body, { ...key, accept, prefer });
      t.deepEqual(codeOf(answer), [406, 'NOT_ACCEPTABLE'], accept);
      t.is(answer.json().errors?.[0].field, field);
      t.false(answer.json().retryable);
      t.is(answer.headers.vary, 'accept');
      t.is(answer.headers['x-credits-charged'], undefined);
    }
  }
  t.is(await app.countJobs(), jobs);
  t.deepEqual(await app.storedFiles(), files);
  const taken = await app.post(ASYNC, imageBody({ output_format: 'jxl' }), key);
  t.is(taken.statusCode, 202);
});

test('a contradiction stands behind the source and the format, before the callback', async t => {
  const refused = async (body: unknown) => {
    const answer = await app.post(SYNC, body, { accept: 'image/webp' });
    return codeOf(answer)[1];
  };
  const format = { output_format: 'png' };
  t.is(await refused({ ...format, callback_url: '' }), 'INVALID_IMAGE_SOURCE');
  t.is(await refused(imageBody({ output_format: 'gif' })), 'UNSUPPORTED_OUTPUT_FORMAT');
  t.is(await refused(imageBody({ ...format, callback_url: '' })), 'NOT_ACCEPTABLE');
});

test('the path that does not wait answers JSON whatever is accepted', async t => {
  for (const accept of ['image/webp', 'image/gif']) {
    const key = freshKey();
    const answer = await app.post(ASYNC, imageBody(), { ...key, accept });
    t.is(answer.statusCode, 202);
    t.is(answer.headers.vary, undefined);
    const jobId = answer.json().job_id;
    t.is((await app.stores.jobs.find(jobId))?.outputFormat, 'png');
    await app.succeedJob(jobId);
    const replay = await app.post(ASYNC, imageBody(), { ...key, accept });
    t.is(replay.json().status, 'succeeded');
  }
});

test('who does not wait to the end gets JSON, and the picture by the same request later', async t => {
  const hasty = await openTestApp({ syncWaitMs: 1 }, t);
  const headers = { ...freshKey(), accept: 'image/webp' };
  const late = await hasty.post(SYNC, imageBody(), headers);
  t.is(late.statusCode, 202);
  t.true(late.json().sync_timeout);
  t.is(late.headers['x-credits-charged'], '0');
  const unwaited = { ...headers, prefer: 'respond-async' };
  const left = await hasty.post(SYNC, imageBody(), unwaited);
  t.is(left.statusCode, 202);
  t.is(left.json().job_id, late.json().job_id);
  await hasty.succeedJob(late.json().job_id, FILE);
  const replayed = await hasty.post(SYNC, imageBody(), unwaited);
  t.is(replayed.json().result.format, 'webp');
  const done = await hasty.post(SYNC, imageBody(), headers);
  t.is(done.headers['content-type'], 'image/webp');
  t.deepEqual(done.rawPayload, FILE);
  t.is(done.headers['x-credits-charged'], '0');
});

test('a failure is a problem, whatever is accepted', async t => {
  const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable: false } as const;
  const runner = app.onSubmitted(jobId => app.failJob(jobId, failure));
  t.teardown(() => runner.stop());
  const answer = await app.post(SYNC, imageBody(), { accept: 'image/png' });
  t.deepEqual(codeOf(answer), [422, 'PROCESSING_FAILED']);
  t.truthy(answer.json().job_id);
  const refused = await app.post(SYNC, {}, { accept: 'image/png' });
  t.deepEqual(codeOf(refused), [400, 'INVALID_IMAGE_SOURCE']);
});

test('pictures share the places of readers; at the bound the job is named and nothing is lost', async t => {
  const full = await openTestApp({ resultReaders: { linkMax: 1, accountMax: 1, max: 1 } }, t);
  const headers = { ...freshKey(), accept: 'image/png' };
  const { job_id: jobId } = (await full.post(ASYNC, imageBody(), headers)).json();
  await full.succeedJob(jobId, FILE);
  const readers = full.services.resultReaders;
  const ask = async (expected: [number, string]) => {
    const answer = await full.post(SYNC, imageBody(), headers);
    t.deepEqual(codeOf(answer), expected);
    t.is(answer.json().job_id, jobId);
    t.true(answer.json().retryable);
    t.is(answer.headers['retry-after'], '5');
    t.is(answer.headers['x-credits-charged'], '0');
  };
  const leaveOwn = readers.enter({ jobId: 'another', accountId: full.accountId });
  await ask([429, 'RATE_LIMITED']);
  leaveOwn();
  const leaveOther = readers.enter({ jobId: 'another', accountId: 'another' });
  await ask([503, 'SERVICE_UNAVAILABLE']);
  leaveOther();
  const answer = await full.post(SYNC, imageBody(), headers);
  t.deepEqual(answer.rawPayload, FILE);
});

test('every answer of the path says that Accept decides, refusals of the headers too', async t => {
  const answers = [
    await app.post(SYNC, imageBody(), { authorization: undefined }),
    await app.post(SYNC, imageBody(), { 'idempotency-key': undefined }),
    await app.post(SYNC, imageBody(), { host: ['a.example', 'b.example'] }),
    await app.post(SYNC, '{'),
    await app.post(`${SYNC}?a=b`, '{'),
    await app.get(SYNC),
  ];
  for (const answer of answers) t.is(answer.headers.vary, 'accept');
});
