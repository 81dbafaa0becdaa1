import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import ava, { type ExecutionContext } from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { BASE_URL, imageBody, openTestApp, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
const FILE = Buffer.from('0123456789');

let told = 0;
const logged: [fields: Record<string, unknown>, message: string][] = [];
const app = useTestApp(test, {
  log: { error: (...line: unknown[]) => logged.push(line as never) } as never,
  lossObserver: {
    resultLost: () => {
      told += 1;
    },
  },
});

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
    t.like(answer.json(), { status: 404, code: 'JOB_NOT_FOUND' });
    t.false('job_id' in answer.json());
  }
  t.is((await app.get(`${JOBS}/${mine.toUpperCase()}`)).statusCode, 200);
});

test('a job through its states', async t => {
  const id = await submit();
  const read = async () => app.get(`${JOBS}/${id}`);
  // test/contract/answers.test.ts checks the fields.
  const queued = await read();
  t.is(queued.json().status, 'queued');
  t.is(queued.headers['retry-after'], '2');
  const claim = await app.startJob(id);
  const processing = await read();
  t.is(processing.json().status, 'processing');
  t.is(processing.headers['retry-after'], '2');
  const { token } = await app.succeedJob(id, FILE, { 'odd stage': 1.25 }, claim);
  const succeeded = await read();
  const { result, finished_at: finishedAt } = succeeded.json();
  t.is(succeeded.headers['retry-after'], undefined);
  t.is(succeeded.headers['server-timing'], 'odd_stage;dur=1.3');
  t.is(Date.parse(result.expiresAt) - Date.parse(finishedAt), 86_400_000);
  t.like(result, { url: `${BASE_URL}/v1/results/${token}`, sizeBytes: FILE.length, width: 2 });
});

test('a job whose node sent no numbers in 0.3.0 is read', async t => {
  const { id } = await stored();
  const sight = { inputWidth: 2, inputHeight: 2, subject: { share: null } };
  const database = new DatabaseSync(app.databaseFile);
  const change = 'update jobs set timings = ?, result_sight = ? where id = ?';
  database.prepare(change).run('{"decode":null,"infer":2}', JSON.stringify(sight), id);
  database.close();
  const read = await app.get(`${JOBS}/${id}`);
  t.is(read.statusCode, 200);
  t.is(read.headers['server-timing'], 'infer;dur=2');
  t.is(read.json().result.subject, null);
});

test('the file behind a link, without a key', async t => {
  const { id, link: url } = await stored();
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

const SYNC = '/v1/matting';

interface Result {
  readonly id: string;
  readonly key: string;
  readonly link: string;
  readonly file: string;
}

async function stored(of = app): Promise<Result> {
  const key = randomUUID();
  const answer = await of.post(JOBS, imageBody(), { 'idempotency-key': key });
  const id = answer.json().job_id;
  const { token, blob } = await of.succeedJob(id, FILE);
  return { id, key, link: `/v1/results/${token}`, file: path.join(of.storageDir, blob) };
}

async function lost(): Promise<Result> {
  const result = await stored();
  await rm(result.file);
  return result;
}

function clear(): void {
  told = 0;
  logged.length = 0;
}

function assertLost(answer: LightMyRequestResponse): void {
  assert.equal(answer.statusCode, 500, answer.body);
  assert.equal(answer.headers['content-type'], 'application/problem+json');
  const { code, retryable } = answer.json();
  assert.deepEqual([code, retryable], ['RESULT_LOST', false]);
  assert.equal(answer.headers['retry-after'], undefined);
}

test('a result whose file is gone › is reported at its link, and its job stays succeeded', async t => {
  clear();
  const { id, link } = await lost();
  t.is((await app.app.inject({ method: 'HEAD', url: link })).statusCode, 500);
  for (let times = 0; times < 3; times += 1) assertLost(await app.app.inject(link));
  assertLost(await app.app.inject({ url: link, headers: { range: 'bytes=0-3' } }));
  t.deepEqual([told, logged.length], [5, 5]);
  const [[fields, message] = [{}, '']] = logged;
  t.deepEqual([fields.jobId, fields.accountId], [id, app.accountId]);
  t.is(message, 'a result is lost');
  const job = (await app.get(`${JOBS}/${id}`)).json();
  t.deepEqual([job.status, job.credits.charged], ['succeeded', 1]);
});

test('a result whose file is gone › is answered so by a synchronous replay, JSON and picture, with nothing charged', async t => {
  for (const accept of ['application/json', 'image/png']) {
    clear();
    const { id, key } = await lost();
    const balance = async () => (await app.get('/v1/account')).json().credits.available;
    const before = await balance();
    const answer = await app.post(SYNC, imageBody(), { 'idempotency-key': key, accept });
    assertLost(answer);
    t.is(answer.json().job_id, id);
    t.is(answer.headers['x-credits-charged'], '0');
    t.is(answer.headers['idempotent-replayed'], 'true');
    t.is(told, 1);
    t.is(await balance(), before);
    const again = await app.post(JOBS, imageBody(), { 'idempotency-key': key });
    t.deepEqual([again.statusCode, again.json().status], [200, 'succeeded']);
  }
});

test('a result whose file is gone › is served again once the file is back', async t => {
  const { link, file } = await lost();
  assertLost(await app.app.inject(link));
  await writeFile(file, FILE);
  const answer = await app.app.inject(link);
  t.deepEqual([answer.statusCode, answer.rawPayload], [200, FILE]);
});

test('a result is not lost › if its link expired meanwhile', async t => {
  const app = await openTestApp({ resultTtlMs: 0 }, t);
  const { link, file } = await stored(app);
  await rm(file);
  const answer = await app.app.inject(link);
  t.deepEqual([answer.statusCode, answer.json().code], [410, 'RESULT_EXPIRED']);
});

test('a result is not lost › if the storage is away', async t => {
  clear();
  const { link, key } = await stored();
  const directory = path.join(app.storageDir, 'results');
  await rename(directory, `${directory}.aside`);
  const answer = await app.app.inject(link);
  t.deepEqual([answer.statusCode, answer.json().code], [503, 'SERVICE_UNAVAILABLE']);
  t.is((await app.post(SYNC, imageBody(), { 'idempotency-key': key })).statusCode, 200);
  t.is(told, 0);
  await rename(`${directory}.aside`, directory);
  t.is((await app.app.inject(link)).statusCode, 200);
});

test('a result is not lost › if the storage cannot be written', async t => {
  clear();
  const { link } = await lost();
  const directory = path.join(app.storageDir, 'inputs');
  await rename(directory, `${directory}.aside`);
  const answer = await app.app.inject(link);
  t.deepEqual([answer.statusCode, answer.json().code], [503, 'SERVICE_UNAVAILABLE']);
  t.is(told, 0);
  await rename(`${directory}.aside`, directory);
  assertLost(await app.app.inject(link));
});

const CALLBACK = {
  callback_url: 'https://receiver.example/hook',
  callback_secret: 'a secret of 24 characters',
};

function values(): string[] {
  const database = new DatabaseSync(app.databaseFile, { readOnly: true });
  const found: string[] = [];
  const tables = database.prepare("select name from sqlite_master where type = 'table'").all();
  for (const { name } of tables) {
    for (const row of database.prepare(`select * from "${name}"`).all()) {
      for (const value of Object.values(row)) {
        found.push(
          value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : `${value}`,
        );
      }
    }
  }
  database.close();
  return found;
}

test('the database › opens nothing, and is no part of the link', async t => {
  const jobId = (await app.post(JOBS, imageBody(CALLBACK))).json().job_id;
  const { token } = await app.succeedJob(jobId, FILE);
  t.deepEqual((await app.app.inject(`/v1/results/${token}`)).rawPayload, FILE);
  const stored = values();
  t.true(stored.some(value => value.includes(jobId)));
  t.deepEqual(
    stored.filter(value => value.includes(token)),
    [],
  );
  const words = new Set(stored.flatMap(value => value.match(/[A-Za-z0-9_-]{16,128}/g) ?? []));
  t.true(words.size > 10);
  for (const word of words) {
    const answer = await app.app.inject(`/v1/results/${word}`);
    t.is(answer.statusCode, 404, word);
  }
});

function freshKey(): { 'idempotency-key': string } {
  return { 'idempotency-key': randomUUID() };
}

function succeeding(t: ExecutionContext, of = app): void {
  const runner = of.onSubmitted(jobId => of.succeedJob(jobId, FILE));
  t.teardown(() => runner.stop());
}

function codeOf(answer: LightMyRequestResponse): [number, string] {
  assert.equal(answer.headers['content-type'], 'application/problem+json');
  return [answer.statusCode, answer.json().code];
}

test('a picture as the answer › the picture comes with all that names it, and is charged once', async t => {
  succeeding(t);
  const { available } = (await app.get('/v1/account')).json().credits;
  const answer = await app.post(SYNC, imageBody(), { accept: 'image/png' });
  t.is(answer.statusCode, 200);
  t.deepEqual(answer.rawPayload, FILE);
  const { headers } = answer;
  const jobId = String(headers['x-job-id']);
  const job = (await app.get(`${JOBS}/${jobId}`)).json();
  const expected = {
    'content-type': 'image/png',
    'content-length': '10',
    etag: `"${'ab'.repeat(32)}"`,
    'content-location': job.result.url,
    'content-disposition': `attachment; filename="cutout-${jobId}.png"`,
    link: `<${BASE_URL}${JOBS}/${jobId}>; rel="describedby"; type="application/json"`,
    'x-credits-charged': '1',
    'server-timing': 'decode;dur=12.3, infer;dur=250',
    vary: 'accept',
    'cache-control': 'no-store',
    'idempotent-replayed': undefined,
    'accept-ranges': undefined,
    'last-modified': undefined,
    location: undefined,
    'retry-after': undefined,
  };
  const told = Object.keys(expected).map(name => [name, headers[name]]);
  t.deepEqual(Object.fromEntries(told), expected);
  assert.ok(headers.ratelimit);
  t.is((await app.get('/v1/account')).json().credits.available, available - 1);
  const link = await app.app.inject(new URL(job.result.url).pathname);
  t.is(link.headers.etag, headers.etag);
  t.is(link.headers['content-disposition'], headers['content-disposition']);
});

test('a picture as the answer › has the accepted format if output_format is absent', async t => {
  succeeding(t);
  for (const [accept, format] of [
    ['image/webp', 'webp'],
    ['image/jxl;q=0.9, image/avif', 'avif'],
    ['image/*', 'png'],
    [['image/gif', 'image/jxl'], 'jxl'],
  ] as const) {
    const answer = await app.post(SYNC, imageBody(), { accept: accept as string });
    t.is(answer.headers['content-type'], `image/${format}`);
    const job = await app.get(`${JOBS}/${answer.headers['x-job-id']}`);
    t.is(job.json().result.format, format);
  }
  const named = imageBody({ output_format: 'avif' });
  const answer = await app.post(SYNC, named, { accept: 'image/webp;q=0.9, image/*;q=0.1' });
  t.is(answer.headers['content-type'], 'image/avif');
});

test('a picture as the answer › may be JPEG if it has no transparency and Accept asks for it', async t => {
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

test('a picture as the answer › carries the node’s facts, if the node sent any', async t => {
  succeeding(t);
  t.teardown(() => {
    app.sight = null;
  });
  const seen = async () => {
    const { headers } = await app.post(SYNC, imageBody(), { accept: 'image/png' });
    return [headers['x-subject-box'], headers['x-subject-share'], headers['x-warnings']];
  };
  t.deepEqual(await seen(), [undefined, undefined, undefined]);
  const input = { inputWidth: 1000, inputHeight: 500 };
  const inputBox = { left: 10, top: 0, width: 300, height: 400 };
  const subject = { inputBox, resultBox: inputBox, share: 0.123456789 };
  app.sight = { ...input, subject };
  t.deepEqual(await seen(), ['10,0,300,400', '0.123457', undefined]);
  app.sight = { ...input, subject: { ...subject, share: 1, unsure: true, cutOff: true } };
  const both = 'subject_unsure, subject_cut_off';
  t.deepEqual(await seen(), ['10,0,300,400', '1', both]);
  app.sight = { ...input, subject: null };
  t.deepEqual(await seen(), [undefined, '0', 'no_subject']);
});

test('a picture as the answer › is JSON if the caller prefers JSON, or asks for no picture', async t => {
  succeeding(t);
  for (const accept of [undefined, 'image/webp;q=0.9, application/json']) {
    const { statusCode, headers, json } = await app.post(SYNC, imageBody(), { accept });
    t.is(statusCode, 200, accept);
    t.is(json().result.format, 'png');
    t.like(headers, { 'x-credits-charged': '1', vary: 'accept', etag: undefined });
  }
});

test('a picture as the answer › a replay gives the picture again and charges nothing', async t => {
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
  // The same request in another form: PNG is what JSON would carry.
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

test('a picture as the answer › a contradiction is refused before there is a job, and is not remembered', async t => {
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
  const taken = await app.post(JOBS, imageBody({ output_format: 'jxl' }), key);
  t.is(taken.statusCode, 202);
});

test('a picture as the answer › a contradiction stands behind the source and the format, before the callback', async t => {
  const refused = async (body: unknown) => {
    const answer = await app.post(SYNC, body, { accept: 'image/webp' });
    return codeOf(answer)[1];
  };
  const format = { output_format: 'png' };
  t.is(await refused({ ...format, callback_url: '' }), 'INVALID_IMAGE_SOURCE');
  t.is(await refused(imageBody({ output_format: 'gif' })), 'UNSUPPORTED_OUTPUT_FORMAT');
  t.is(await refused(imageBody({ ...format, callback_url: '' })), 'NOT_ACCEPTABLE');
});

test('a picture as the answer › the path that does not wait answers JSON whatever is accepted', async t => {
  for (const accept of ['image/webp', 'image/gif']) {
    const key = freshKey();
    const answer = await app.post(JOBS, imageBody(), { ...key, accept });
    t.is(answer.statusCode, 202);
    t.is(answer.headers.vary, undefined);
    const jobId = answer.json().job_id;
    t.is((await app.stores.jobs.find(jobId))?.outputFormat, 'png');
    await app.succeedJob(jobId);
    const replay = await app.post(JOBS, imageBody(), { ...key, accept });
    t.is(replay.json().status, 'succeeded');
  }
});

test('a picture as the answer › who does not wait to the end gets JSON, and the picture by the same request later', async t => {
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

test('a picture as the answer › a failure is a problem, whatever is accepted', async t => {
  const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable: false } as const;
  const runner = app.onSubmitted(jobId => app.failJob(jobId, failure));
  t.teardown(() => runner.stop());
  const answer = await app.post(SYNC, imageBody(), { accept: 'image/png' });
  t.deepEqual(codeOf(answer), [422, 'PROCESSING_FAILED']);
  t.truthy(answer.json().job_id);
  t.is(answer.headers['x-credits-charged'], '0');
  t.is(answer.headers['idempotent-replayed'], undefined);
  const refused = await app.post(SYNC, {}, { accept: 'image/png' });
  t.deepEqual(codeOf(refused), [400, 'INVALID_IMAGE_SOURCE']);
});

test('a picture as the answer › every answer of the path says that Accept decides, refusals of the headers too', async t => {
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
