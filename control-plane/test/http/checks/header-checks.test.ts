import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import type { ErrorCode } from '#contract/errors.ts';
import { imageBody, openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test);

const SUBMISSIONS = ['/v1/matting', '/v1/matting/jobs'];
const READS = ['/v1/account', `/v1/matting/jobs/${randomUUID()}`];

type Headers = Record<string, string | string[] | undefined>;

/** The code every keyed path answers with, the same one; nothing is left of the request. */
async function refused(headers: Headers): Promise<{ code: ErrorCode; challenge: unknown }> {
  const jobs = await app.countJobs();
  const answers = [
    ...SUBMISSIONS.map(url => app.post(url, imageBody(), headers)),
    ...READS.map(url => app.get(url, headers)),
  ];
  const [first, ...others] = (await Promise.all(answers)).map(answer => ({
    code: answer.json().code as ErrorCode,
    challenge: answer.headers['www-authenticate'],
  }));
  assert.ok(first);
  for (const other of others) assert.deepEqual(other, first);
  assert.equal(await app.countJobs(), jobs);
  return first;
}

test('no API key', async t => {
  for (const authorization of [undefined, '', ' ', '\t']) {
    t.deepEqual(await refused({ authorization }), {
      code: 'MISSING_API_KEY',
      challenge: 'Bearer',
    });
  }
});

test('an API key of the wrong form', async t => {
  const { token } = app;
  const wrong = [
    token,
    'Bearer',
    'Bearer ',
    `Bearer${token}`,
    `Basic ${token}`,
    `Bearer ${token} ${token}`,
    `Bearer ${token},Bearer ${token}`,
    `Bearer "${token}"`,
    `Bearer ${'a'.repeat(600)}`,
    'Bearer schlüssel',
    'Bearer ====',
    `Bearer: ${token}`,
    `Bearer Bearer ${token}`,
    `Bearer ${token.slice(0, 9)} ${token.slice(9)}`,
    `Bearer\t${token}x`,
    `Bearer ${'__proto__'}`,
    [`Bearer ${token}`, `Bearer ${token}`],
    [`Bearer ${token}`, ''],
    ['', `Bearer ${token}`],
  ];
  for (const authorization of wrong) {
    const { code, challenge } = await refused({ authorization });
    t.is(code, 'INVALID_API_KEY', String(authorization));
    t.is(challenge, 'Bearer');
  }
});

test('an API key that is unknown, altered or revoked', async t => {
  const { token } = app;
  const altered = `${token.slice(0, -1)}${token.endsWith('a') ? 'b' : 'a'}`;
  for (const one of ['x', altered, token.toUpperCase()]) {
    t.is((await refused({ authorization: `Bearer ${one}` })).code, 'INVALID_API_KEY');
  }
  const { key, token: other } = await app.stores.apiKeys.create(app.accountId, 'to revoke');
  const authorization = `Bearer ${other}`;
  t.is((await app.get('/v1/account', { authorization })).statusCode, 200);
  await app.stores.apiKeys.revoke(key.id);
  t.is((await refused({ authorization })).code, 'INVALID_API_KEY');
});

test('the scheme is taken in whatever case, and with more spaces', async t => {
  for (const scheme of ['bearer', 'BEARER', 'bEaReR', 'Bearer  ']) {
    const authorization = `${scheme} ${app.token}`;
    t.is((await app.get('/v1/account', { authorization })).statusCode, 200);
  }
});

test('a wrong Idempotency-Key', async t => {
  const wrong = [
    undefined,
    '',
    'k'.repeat(129),
    'schlüssel',
    'キー'.replaceAll(/./g, letter => Buffer.from(letter).toString('latin1')),
    'tab\tkey',
    'del\x7f',
    ['one', 'two'],
    ['same', 'same'],
    ['', 'one'],
  ];
  for (const key of wrong) {
    const { code } = await refused({ 'idempotency-key': key });
    t.is(code, 'INVALID_IDEMPOTENCY_KEY', String(key));
  }
});

test('an Idempotency-Key at its bounds', async t => {
  for (const key of ['k', ' ~', 'k'.repeat(128), 'a, b', '"quoted"']) {
    const answer = await app.get('/v1/account', { 'idempotency-key': key });
    t.is(answer.statusCode, 200, key);
  }
});

test('the order: Authorization, Idempotency-Key, media type, length, body', async t => {
  const everythingWrong: Headers = {
    authorization: undefined,
    'idempotency-key': undefined,
    'content-encoding': 'gzip',
    'content-type': 'text/plain',
    'content-length': '999999999',
  };
  const repairs: [repair: Headers, code: ErrorCode][] = [
    [{}, 'MISSING_API_KEY'],
    [{ authorization: 'Bearer nobody' }, 'INVALID_API_KEY'],
    [{ authorization: `Bearer ${app.token}` }, 'INVALID_IDEMPOTENCY_KEY'],
    [{ 'idempotency-key': 'k' }, 'UNSUPPORTED_MEDIA_TYPE'],
    [{ 'content-encoding': undefined }, 'UNSUPPORTED_MEDIA_TYPE'],
    [{ 'content-type': 'application/json' }, 'IMAGE_TOO_LARGE'],
    [{ 'content-length': undefined }, 'INVALID_REQUEST'],
  ];
  for (const url of SUBMISSIONS) {
    let headers = everythingWrong;
    for (const [repair, code] of repairs) {
      headers = { ...headers, ...repair };
      t.is((await app.post(url, '{"oops', headers)).json().code, code);
    }
  }
});

test('media types', async t => {
  const statusOf = async (type: string | string[] | undefined, body = '{}') =>
    (await app.post('/v1/matting', body, { 'content-type': type })).statusCode;
  const refusedTypes = [
    undefined,
    '',
    'json',
    'text/json',
    'application/jsonp',
    'application/json-patch+json',
    'application/x-www-form-urlencoded',
    'multipart/mixed; boundary=x',
    'video/mp4',
    'application/json; charset=utf-16',
    'application/json, text/plain',
    ['application/json', 'text/plain'],
    ['text/plain', 'application/json'],
    ['image/png', 'application/json'],
    ['application/json', 'application/json; charset=utf-16'],
  ];
  for (const type of refusedTypes) t.is(await statusOf(type), 415, String(type));
  const takenTypes = [
    'application/json',
    'Application/JSON',
    'application/json;charset=utf-8',
    'application/json; charset="UTF-8"',
    'application/json ; profile=x',
    'multipart/form-data; boundary=x',
    'multipart/form-data',
    'image/png',
    'application/octet-stream',
  ];
  for (const type of takenTypes) t.is(await statusOf(type), 400, type);
});

test('the refusal of a media type says what is taken', async t => {
  const type = await app.post('/v1/matting', '{}', { 'content-type': 'text/plain' });
  const taken = 'application/json, multipart/form-data, image/*, application/octet-stream';
  t.is(type.headers.accept, taken);
  for (const coding of ['gzip', 'identity', '']) {
    const answer = await app.post('/v1/matting', '{}', { 'content-encoding': coding });
    t.is(answer.json().code, 'UNSUPPORTED_MEDIA_TYPE', coding);
    t.is(answer.headers['accept-encoding'], 'identity');
  }
});

test('no body at all', async t => {
  for (const type of [undefined, 'application/json']) {
    const answer = await app.app.inject({
      method: 'POST',
      url: '/v1/matting',
      headers: app.headers({ 'content-type': type }),
    });
    t.is(answer.json().code, 'INVALID_REQUEST');
    t.regex(answer.json().detail, /empty/);
  }
});

test('the operator can make the Idempotency-Key optional, on reads alone', async t => {
  const lenient = await openTestApp({ readsRequireIdempotencyKey: false }, t);
  const none = { 'idempotency-key': undefined };
  t.is((await lenient.get('/v1/account', none)).statusCode, 200);
  const long = { 'idempotency-key': 'k'.repeat(129) };
  t.is((await lenient.get('/v1/account', long)).statusCode, 400);
  const submission = await lenient.post('/v1/matting', imageBody(), none);
  t.is(submission.json().code, 'INVALID_IDEMPOTENCY_KEY');
});

test('a Content-Length that is the largest lawful one is not refused for it', async t => {
  const at = (bytes: number) => app.post('/v1/matting', '{}', { 'content-length': String(bytes) });
  t.is((await at(72 * 1024 * 1024 + 1)).json().code, 'IMAGE_TOO_LARGE');
  t.not((await at(72 * 1024 * 1024)).json().code, 'IMAGE_TOO_LARGE');
});
