import assert from 'node:assert/strict';
import ava, { type ExecutionContext } from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import type { Answered } from '../../src/http/answers/answer-log.ts';
import { converse, headOf, jsonIn } from '../support/raw-http.ts';
import { BASE_URL, imageBody, useTestApp } from '../support/test-app.ts';

const test = ava.serial;

const answered: Answered[] = [];
const logged: string[] = [];
const logger = recordingLogger();
const app = useTestApp(test, { onAnswered: answer => answered.push(answer), logger });

function recordingLogger() {
  const record = (...args: unknown[]) => {
    logged.push(JSON.stringify(args, (_, value) => (value instanceof Error ? value.stack : value)));
  };
  const logger = {
    level: 'trace',
    fatal: record,
    error: record,
    warn: record,
    info: record,
    debug: record,
    trace: record,
    silent: record,
    child: () => logger,
  };
  return logger;
}

function assertProblem(
  t: ExecutionContext,
  answer: LightMyRequestResponse,
  code: ErrorCode,
  instance?: string,
) {
  const spec = ERROR_CATALOGUE[code];
  t.is(answer.statusCode, spec.http, answer.payload);
  t.is(answer.headers['content-type'], 'application/problem+json');
  const { detail, ...problem } = answer.json();
  t.true(detail.length > 0);
  t.deepEqual(problem, {
    type: `${BASE_URL}/docs/errors#${code.toLowerCase()}`,
    title: spec.title,
    status: spec.http,
    instance,
    code,
    request_id: answer.headers['x-request-id'],
    retryable: spec.retry !== 'never',
  });
}

test('unknown paths', async t => {
  for (const url of ['/', '/v1', '/v1/', '/v1/matting/', '/v2/matting', '/v1/matting/jobs/a/b']) {
    for (const method of ['GET', 'POST', 'DELETE', 'OPTIONS', 'PROPFIND'] as const) {
      const answer = await app.app.inject({ method: method as 'GET', url });
      assertProblem(t, answer, 'NOT_FOUND', url);
      t.is(answer.headers.allow, undefined);
    }
  }
});

test('a query is not part of the instance', async t => {
  assertProblem(t, await app.app.inject('/nothing?token=secret'), 'NOT_FOUND', '/nothing');
});

test('the instance is a URI reference, whatever the path was', async t => {
  const instances = {
    '/v1/{x}|"<>\\^`': '/v1/%7Bx%7D%7C%22%3C%3E%5C%5E%60',
    '/v1/100%': '/v1/100%25',
    '/v1/%zz%41': '/v1/%25zz%41',
    '/v1/a[0]#b': '/v1/a%5B0%5D%23b',
    "/v1/a-b.c_~:@!$&'()*+,;=/%C3%A9": "/v1/a-b.c_~:@!$&'()*+,;=/%C3%A9",
  };
  for (const [path, instance] of Object.entries(instances)) {
    const head = headOf(`GET ${path} HTTP/1.1`, 'Host: x', 'Connection: close');
    // Unchanged: inject would escape it.
    t.is(jsonIn(await converse(await app.listen(), head)).instance, instance);
  }
});

test('a path that is not valid', async t => {
  assertProblem(
    t,
    await app.app.inject('/v1/matting/jobs/%zz'),
    'INVALID_REQUEST',
    '/v1/matting/jobs/%25zz',
  );
});

test('methods a path does not have', async t => {
  const allowed: Record<string, string> = {
    '/v1/matting': 'POST',
    '/v1/matting/jobs': 'POST',
    '/v1/matting/jobs/x': 'GET, HEAD',
    '/v1/results/x': 'GET, HEAD',
    '/v1/account': 'GET, HEAD',
    '/v1/openapi.json': 'GET, HEAD',
    '/livez': 'GET, HEAD',
    '/readyz': 'GET, HEAD',
  };
  for (const [url, allow] of Object.entries(allowed)) {
    for (const method of ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']) {
      if (allow.split(', ').includes(method)) continue;
      const answer = await app.app.inject({ method: method as 'GET', url });
      t.is(answer.headers.allow, allow, `${method} ${url}`);
      if (method !== 'HEAD') assertProblem(t, answer, 'METHOD_NOT_ALLOWED', url);
      else t.is(answer.statusCode, 405);
    }
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
  const urls = ['/livez', '/nothing', '/%zz', '/v1/account', '/v1/openapi.json', '/v1/results/x'];
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

test('HEAD is where GET is, without a body', async t => {
  for (const url of ['/livez', '/readyz', '/v1/openapi.json', '/docs/errors']) {
    const get = await app.app.inject(url);
    const head = await app.app.inject({ method: 'HEAD', url });
    t.is(head.statusCode, 200);
    t.is(head.payload, '');
    t.is(head.headers['content-length'], String(get.rawPayload.length));
    t.is(head.headers['content-type'], get.headers['content-type']);
  }
  const head = await app.app.inject({ method: 'HEAD', url: '/v1/account', headers: app.headers() });
  t.is(head.statusCode, 200);
  t.is(head.payload, '');
});

test('readiness says what is amiss', async t => {
  app.setReadiness({ ready: false, causes: ['draining', 'storage'] });
  const answer = await app.app.inject('/readyz');
  assertProblem(t, answer, 'SERVICE_UNAVAILABLE', '/readyz');
  t.is(answer.headers['retry-after'], '1');
  t.regex(answer.json().detail, /shutting down; the storage/);
  t.is((await app.app.inject('/livez')).statusCode, 200);
  app.setReadiness({ ready: true });
});

test('a replica that goes away sends its callers to another one', async t => {
  const connection = async () => (await app.app.inject('/livez')).headers.connection;
  t.is(await connection(), 'keep-alive');
  app.setReadiness({ ready: false, causes: ['draining'] });
  t.is(await connection(), 'close');
  app.setReadiness({ ready: true });
});

test('a throw of no kind known is INTERNAL_ERROR: opaque outside, whole in the log', async t => {
  app.refuseNewJobs(new Error('the password is hunter2') as never);
  logged.length = 0;
  const answer = await app.post('/v1/matting', imageBody());
  app.refuseNewJobs(undefined);
  assertProblem(t, answer, 'INTERNAL_ERROR', '/v1/matting');
  t.notRegex(answer.payload, /hunter2|Error:|\.ts/);
  t.true(logged.some(line => line.includes('hunter2') && line.includes('app.test.ts')));
});

test("a node's own code is as unknown outside", async t => {
  app.refuseNewJobs(new ContractError('NODE_FAULT', 'node 7 at 10.0.0.7 failed'));
  const answer = await app.post('/v1/matting', imageBody());
  app.refuseNewJobs(undefined);
  assertProblem(t, answer, 'INTERNAL_ERROR', '/v1/matting');
  t.notRegex(answer.payload, /10\.0\.0\.7/);
});

test('an answer is reported by its route, never by its URL', async t => {
  answered.length = 0;
  logged.length = 0;
  await app.app.inject('/v1/results/a-very-secret-link');
  await app.app.inject('/no/such/path');
  const [first, second] = answered;
  assert.ok(first);
  const { seconds, ...report } = first;
  t.true(seconds !== undefined && seconds >= 0);
  t.deepEqual(report, {
    route: '/v1/results/:token',
    method: 'GET',
    status: 404,
    code: 'NOT_FOUND',
  });
  assert.ok(second);
  t.is(second.route, undefined);
  t.true(logged.length > 0);
  t.notRegex(logged.join('\n'), /a-very-secret-link/);
});

test('bytes that are not a request are reported too', async t => {
  answered.length = 0;
  await converse(await app.listen(), 'no request\r\n\r\n', { end: 'end' });
  t.deepEqual(answered, [
    {
      route: undefined,
      method: undefined,
      status: 400,
      code: 'INVALID_REQUEST',
      seconds: undefined,
    },
  ]);
});

test('a refusal is logged without a stack, a failure with the stack of its cause', async t => {
  logged.length = 0;
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'the queue is full'));
  await app.post('/v1/matting/jobs', imageBody());
  const cause = new Error('the disk is gone');
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'no storage', { cause }));
  await app.post('/v1/matting/jobs', imageBody());
  app.refuseNewJobs(undefined);
  const [full = '', broken = ''] = logged.filter(line => /queue is full|no storage/.test(line));
  t.notRegex(full, / at .*\.ts:/);
  t.regex(full, /SERVICE_UNAVAILABLE/);
  t.regex(broken, /the disk is gone.* at .*\.ts:/s);
});
