/** The rules of the core's jobs, keys and results, in this interface's words. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { picture } from '@matting/core/test/java-forms.ts';
import { imageBody, pngHeader } from '@matting/core/test/support/test-app.ts';
import { hold } from '@matting/http/test/held-form.ts';
import ava from 'ava';
import { RemovebgClient, useTestApp } from './test/removebg-client.ts';

const test = ava.serial;

const PATH = '/v1.0/removebg';
const JOBS = '/v1/matting/jobs';
const FILE = Buffer.from('a result');
const app = useTestApp(test, { jobsInFlightMax: 1000, syncWaitMs: 20_000 });

const keyed = (token: string) => ({ 'x-api-key': token, authorization: undefined });
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

async function succeeding(act: () => Promise<unknown>): Promise<string[]> {
  const made: string[] = [];
  const runner = app.onSubmitted(async jobId => {
    made.push(jobId);
    await app.succeedJob(jobId, FILE);
  });
  await act();
  await runner.stop();
  return made;
}

test('scopes and caps of a key › are told in its words', async t => {
  const reader = await app.createKey({ scopes: ['read'] });
  const answer = await app.get('/v1.0/account', keyed(reader));
  t.is(answer.statusCode, 403);
  t.is(answer.json().errors[0].code, 'auth_failed');
  const spender = await app.createKey({ cap: { credits: 1, period: 'day' } });
  await app.post(JOBS, imageBody(), bearer(spender));
  const body = { image_file_b64: imageBody().image_base64, size: 'auto', type: 'car' };
  const refused = await app.post(PATH, body, keyed(spender));
  t.is(refused.statusCode, 402, refused.payload);
  t.is(refused.json().errors[0].code, 'insufficient_credits');
});

test('a result whose file is gone › is told in its words', async t => {
  const form = { image_file_b64: imageBody().image_base64 };
  const headers = keyed(app.token);
  const [jobId = ''] = await succeeding(async () => {
    const first = await app.post(PATH, form, headers);
    t.is(first.statusCode, 200, first.body);
  });
  const job = await app.stores.jobs.find(jobId);
  assert.ok(job?.result);
  await rm(path.join(app.storageDir, job.result.blob));
  const again = await app.post(PATH, form, headers);
  t.is(again.statusCode, 500, again.body);
  t.is(again.json().errors[0].code, 'result_lost');
  t.is(again.headers['x-credits-charged'], '0');
});

/** Each request has another size, since the same picture is the same request. */
let width = 10;
function held(token: string) {
  width += 1;
  const image_file_b64 = pngHeader(width, 3).toString('base64');
  return {
    path: PATH,
    headers: { 'x-api-key': token, 'content-type': 'application/json' },
    payload: JSON.stringify({ image_file_b64 }),
  };
}

const key = () => app.stores.apiKeys.create(app.accountId, 'leaked');

test('a held submission › makes no job by a key that was revoked', async t => {
  const left = async () => [
    await app.countJobs(),
    await app.storedFiles(),
    app.services.uploads.open,
    await app.stores.ledger.balances(app.accountId),
  ];
  const { key: made, token } = await key();
  const before = await left();
  const waiting = await hold(await app.listen(), held(token));
  await app.stores.apiKeys.revoke(made.id);
  const { status, body } = await waiting.release();
  t.true(status === 401 || status === 403, body);
  t.deepEqual(await left(), before);
});

test('a request that no node can serve › gets an error of remove.bg', async t => {
  t.teardown(() => app.advertise(undefined));
  app.advertise([
    {
      bootId: randomUUID(),
      inputFormats: new Set(['jpeg', 'png']),
      outputFormats: new Set(['png']),
      imagePixelsMax: 100_000_000,
      jxlPixelsMax: 0,
      megapixelsAloneMax: 60,
    },
  ]);
  const before = await app.countJobs();
  const answer = await new RemovebgClient(app).form({ format: 'webp' });
  t.deepEqual([answer.statusCode, answer.json().errors[0].code], [400, 'invalid_format']);
  t.is(answer.headers['x-credits-charged'], '0');
  t.is(await app.countJobs(), before);
});

async function sent(payload: Buffer, type: string) {
  const headers = { 'x-api-key': app.token, 'content-type': type };
  let answered: Promise<Awaited<ReturnType<typeof app.get>>> | undefined;
  await succeeding(async () => {
    answered = app.app.inject({ method: 'POST', url: PATH, headers, payload });
    await answered;
  });
  return answered!;
}

test('clients in Java › the pairs of HttpClient 5', async t => {
  const base64 = encodeURIComponent(picture().toString('base64'));
  const type = 'application/x-www-form-urlencoded; charset=ISO-8859-1';
  const answer = await sent(Buffer.from(`image_file_b64=${base64}&size=preview`), type);
  t.is(answer.statusCode, 200, answer.payload);
  t.is(answer.headers['x-credits-charged'], '1');
});
