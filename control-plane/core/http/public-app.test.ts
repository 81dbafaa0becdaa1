import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Answered } from '@matting/http/answer-log.ts';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '@matting/proto/contract/errors.ts';
import ava, { type ExecutionContext } from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { converse, headOf, jsonIn, linesLogger } from '../test/support/raw-http.ts';
import { ERRORS_PAGE, imageBody, openTestApp, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const answered: Answered[] = [];
const { lines, logger } = linesLogger('trace');
const logged = () => lines.map(line => JSON.stringify(line));
const app = useTestApp(test, { onAnswered: answer => answered.push(answer), logger });

/** test/contract/answers.test.ts checks the texts. */
function assertProblem(t: ExecutionContext, answer: LightMyRequestResponse, code: ErrorCode) {
  t.is(answer.statusCode, ERROR_CATALOGUE[code].http, answer.payload);
  t.is(answer.json().code, code);
}

test('unknown paths', async t => {
  for (const url of [
    '/nothing',
    '/v1',
    '/v1/',
    '/v1/matting/',
    '/v2/matting',
    '/v1/matting/jobs/a/b',
  ]) {
    for (const method of ['GET', 'POST', 'DELETE', 'OPTIONS', 'PROPFIND'] as const) {
      const answer = await app.app.inject({ method: method as 'GET', url });
      assertProblem(t, answer, 'NOT_FOUND');
      t.is(answer.headers.allow, undefined);
    }
  }
});

test('the instance is a URI reference, whatever the path was', async t => {
  const instances = {
    '/v1/{x}|"<>\\^`': '/v1/%7Bx%7D%7C%22%3C%3E%5C%5E%60',
    '/v1/100%': '/v1/100%25',
    '/v1/%zz%41': '/v1/%25zz%41',
    '/v1/a[0]#b': '/v1/a%5B0%5D%23b',
    'http://x/v1/none?a=b': '/v1/none',
    "/v1/a-b.c_~:@!$&'()*+,;=/%C3%A9": "/v1/a-b.c_~:@!$&'()*+,;=/%C3%A9",
  };
  for (const [path, instance] of Object.entries(instances)) {
    const head = headOf(`GET ${path} HTTP/1.1`, 'Host: x', 'Connection: close');
    // inject would escape it.
    t.is(jsonIn(await converse(await app.listen(), head)).instance, instance);
  }
});

test('an unknown path or method asks for no key and reads no body', async t => {
  const answer = await app.app.inject({
    method: 'PUT',
    url: '/v1/matting',
    headers: { 'content-type': 'no/such; type', 'content-length': '999999999' },
    payload: '{',
  });
  t.is(answer.statusCode, 405);
});

test('every answer has its own request id and the safety headers, and no CORS header', async t => {
  const ids = new Set<unknown>();
  const urls = [
    '/livez',
    '/nothing?token=secret',
    '/%zz',
    '/v1/account',
    '/v1/openapi.json',
    '/v1/results/x',
  ];
  for (const url of urls) {
    const origin = { origin: 'https://page.example' };
    const { headers } = await app.app.inject({ url, headers: origin });
    t.regex(String(headers['x-request-id']), /^req_[0-9a-f-]{36}$/);
    ids.add(headers['x-request-id']);
    t.is(headers['x-content-type-options'], 'nosniff');
    const cors = Object.keys(headers).filter(name => name.startsWith('access-control'));
    t.deepEqual(cors, []);
    t.is(headers['x-powered-by'], undefined);
  }
  t.is(ids.size, urls.length);
});

test('a replica that goes away sends its callers to another one', async t => {
  const connection = async () => (await app.app.inject('/livez')).headers.connection;
  t.is(await connection(), 'keep-alive');
  app.setReadiness({ ready: false, causes: ['draining'] });
  t.is(await connection(), 'close');
  app.setReadiness({ ready: true });
});

test('unknown errors and a node’s words are INTERNAL_ERROR, with the cause in the log alone', async t => {
  t.teardown(() => app.refuseNewJobs(undefined));
  lines.length = 0;
  for (const thrown of [
    new Error('the password is hunter2'),
    new ContractError('NODE_FAULT', 'node 7 at 10.0.0.7 failed'),
  ]) {
    app.refuseNewJobs(thrown as never);
    const answer = await app.post('/v1/matting', imageBody());
    assertProblem(t, answer, 'INTERNAL_ERROR');
    t.notRegex(answer.payload, /hunter2|10\.0\.0\.7|Error:|\.ts/);
  }
  t.true(logged().some(line => line.includes('hunter2') && line.includes('app.test.ts')));
});

test('an answer is reported by its route, never by its URL', async t => {
  answered.length = 0;
  lines.length = 0;
  await app.app.inject('/v1/results/a-very-secret-link');
  await app.app.inject('/no/such/path');
  t.deepEqual(
    answered.map(({ seconds = -1, ...report }) => ({ ...report, isTimed: seconds >= 0 })),
    [
      { route: '/v1/results/:token', method: 'GET', status: 404, code: 'NOT_FOUND', isTimed: true },
      { route: undefined, method: 'GET', status: 404, code: 'NOT_FOUND', isTimed: true },
    ],
  );
  t.true(lines.length > 0);
  t.notRegex(logged().join('\n'), /a-very-secret-link/);
});

test('bytes that are not a request are reported too', async t => {
  answered.length = 0;
  await converse(await app.listen(), 'no request\r\n\r\n', { end: 'end' });
  t.is(answered.length, 1);
  t.like(answered[0], { route: undefined, status: 400, code: 'INVALID_REQUEST' });
});

test('a refusal is logged without a stack, a failure with the stack of its cause', async t => {
  lines.length = 0;
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'the queue is full'));
  await app.post('/v1/matting/jobs', imageBody());
  const cause = new Error('the disk is gone');
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'no storage', { cause }));
  await app.post('/v1/matting/jobs', imageBody());
  app.refuseNewJobs(undefined);
  const [full = '', broken = ''] = logged().filter(line => /queue is full|no storage/.test(line));
  t.notRegex(full, / at .*\.ts:/);
  t.regex(full, /SERVICE_UNAVAILABLE/);
  t.regex(broken, /the disk is gone.* at .*\.ts:/s);
});

const SUBMISSIONS = ['/v1/matting', '/v1/matting/jobs'];
const READS = ['/v1/account', '/v1/account/keys', `/v1/matting/jobs/${randomUUID()}`];

type Headers = Record<string, string | string[] | undefined>;

/** The code of every keyed path, which must be the same. */
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

test('headers › no API key', async t => {
  for (const authorization of [undefined, '', ' ', '\t']) {
    t.deepEqual(await refused({ authorization }), {
      code: 'MISSING_API_KEY',
      challenge: 'Bearer',
    });
  }
});

test('headers › an empty API key', async t => {
  for (const authorization of ['Bearer', 'bearer ', 'BEARER\t']) {
    const { code, challenge } = await refused({ authorization });
    t.deepEqual([code, challenge], ['INVALID_API_KEY', 'Bearer'], authorization);
  }
});

test('headers › an API key of the wrong form', async t => {
  const { token } = app;
  const wrong = [
    token,
    `Bearer${token}`,
    `Basic ${token}`,
    `Bearer ${token} ${token}`,
    `Bearer ${token},Bearer ${token}`,
    `Bearer ${'a'.repeat(600)}`,
    'Bearer schlüssel',
    `Bearer Bearer ${token}`,
    `Bearer\t${token}x`,
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

test('headers › an API key that is unknown or altered', async t => {
  const { token } = app;
  const altered = `${token.slice(0, -1)}${token.endsWith('a') ? 'b' : 'a'}`;
  for (const one of ['x', altered, token.toUpperCase()]) {
    t.is((await refused({ authorization: `Bearer ${one}` })).code, 'INVALID_API_KEY');
  }
});

test('headers › the scheme is taken in whatever case, and with more spaces', async t => {
  for (const scheme of ['bearer', 'BEARER', 'bEaReR', 'Bearer  ']) {
    const authorization = `${scheme} ${app.token}`;
    t.is((await app.get('/v1/account', { authorization })).statusCode, 200);
  }
});

test('headers › a wrong Idempotency-Key', async t => {
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

test('headers › an Idempotency-Key at its bounds', async t => {
  for (const key of ['k', ' ~', 'k'.repeat(128), 'a, b', '"quoted"']) {
    const answer = await app.get('/v1/account', { 'idempotency-key': key });
    t.is(answer.statusCode, 200, key);
  }
});

test('headers › the refusal of a media type says what was sent, and what to send', async t => {
  const send = (type: string | string[] | undefined) =>
    app.post('/v1/matting', '{}', { 'content-type': type });
  for (const [type, wrong] of [
    ['text/plain', /^The Content-Type header names text\/plain, which .* Send application\/json/],
    ['application/x-www-form-urlencoded', /names application\/x-www.* -H .* -F\. .*CURLOPT_POSTF/],
    ['application/json; charset=utf-16le', /names application\/json; charset=utf-16le,/],
    [['image/png', 'text/plain'], /is given more than once/],
    [`text/${'x'.repeat(2000)}`, /^.{1,200}$/],
    ['text/html; charset="<b>"', /^[^<]*$/],
    [undefined, /^The Content-Type header is missing\. Send application\/json/],
  ] as const) {
    t.regex((await send(type as string)).json().detail, wrong);
  }
});

test('headers › the operator can make the Idempotency-Key optional, on reads alone', async t => {
  const lenient = await openTestApp({ readsRequireIdempotencyKey: false }, t);
  const none = { 'idempotency-key': undefined };
  t.is((await lenient.get('/v1/account', none)).statusCode, 200);
  const long = { 'idempotency-key': 'k'.repeat(129) };
  t.is((await lenient.get('/v1/account', long)).statusCode, 400);
  const submission = await lenient.post('/v1/matting', imageBody(), none);
  t.is(submission.json().code, 'INVALID_IDEMPOTENCY_KEY');
});

test('a port without the interfaces of packages serves documents as they are', async t => {
  const asPerson = { accept: 'text/html' };
  for (const url of [
    '/docs',
    '/docs/rest',
    '/account',
    '/v1/account/usage',
    '/v1/account/packages',
  ]) {
    const answer = await app.get(url, asPerson);
    assertProblem(t, answer, 'NOT_FOUND');
    t.is(answer.headers['content-type'], 'application/problem+json');
  }
  const errors = await app.app.inject({ url: '/docs/errors', headers: asPerson });
  t.is(errors.headers['content-type'], 'text/markdown; charset=utf-8');
  t.is(errors.payload, ERRORS_PAGE);
  t.is((await app.post('/v1/matting/jobs', imageBody())).statusCode, 202);
});
