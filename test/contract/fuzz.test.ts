import assert from 'node:assert/strict';
import ava from 'ava';
import { ERROR_CATALOGUE, isErrorCode } from '#contract/errors.ts';
import { FORM_TYPE, formOf } from '../../control-plane/test/support/forms.ts';
import { imageBody, useTestApp } from '../../control-plane/test/support/test-app.ts';
import { AnswerChecker } from '../support/openapi.ts';
import { fc } from '../support/property-tests.ts';

const test = ava.serial;

const app = useTestApp(
  test,
  { syncWaitMs: 0, credits: 100_000, jobsInFlightMax: 100_000 },
  async () => {
    checker = new AnswerChecker((await app.app.inject('/v1/openapi.json')).json());
  },
);
let checker: AnswerChecker;

const paths = [
  '/v1/matting',
  '/v1/matting/jobs',
  '/v1/matting/jobs/6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f',
  '/v1/results/abcdef',
  '/v1/account',
  '/v1/account/packages',
  '/v1/account/keys',
  '/v1/account/usage',
  '/v1/account/usage?from=2026-01-01&to=2026-01-31&group=',
  '/docs',
  '/docs/errors',
  '/livez',
  '/readyz',
];
const path = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...paths) },
  { weight: 1, arbitrary: fc.webPath().map(rest => `/v1${rest}`) },
  { weight: 1, arbitrary: fc.tuple(fc.constantFrom(...paths), fc.webPath()).map(p => p.join('')) },
);
const method = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom('GET', 'POST') },
  {
    weight: 1,
    arbitrary: fc.constantFrom('HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'PROPFIND'),
  },
);

const value = fc.oneof(
  fc.string(),
  fc.string({ unit: 'binary' }),
  fc.constantFrom('png', 'jxl', 'GIF', '', 'iVBORw0KGgo=', 'data:,', 'http://127.0.0.1/'),
  fc.webUrl(),
  fc.base64String(),
  fc.jsonValue({ maxDepth: 2 }),
);
const field = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom('image_url', 'image_base64', 'output_format') },
  {
    weight: 1,
    arbitrary: fc.constantFrom('callback_url', 'callback_secret', '__proto__', 'toString'),
  },
  { weight: 1, arbitrary: fc.string() },
);
const body = fc.oneof(
  { weight: 5, arbitrary: fc.array(fc.tuple(field, value), { maxLength: 3 }).map(written) },
  { weight: 1, arbitrary: fc.json() },
  { weight: 1, arbitrary: fc.string({ unit: 'binary' }) },
  { weight: 1, arbitrary: fc.constant(JSON.stringify(imageBody())) },
  { weight: 1, arbitrary: fc.array(fc.tuple(field, value), { maxLength: 3 }).map(writtenForm) },
);

/** By hand, so that fields can come twice. */
function written(members: readonly (readonly [string, unknown])[]): string {
  const pairs = members.map(([name, one]) => `${JSON.stringify(name)}:${JSON.stringify(one)}`);
  return `{${pairs.join()}}`;
}

function writtenForm(members: readonly (readonly [string, unknown])[]): string {
  const parts = members.map(([name, one]) => ({ name: `${name}`, body: `${one}` }));
  return formOf(parts).toString('latin1');
}

const headerText = fc.stringMatching(/^[\x20-\x7e]{0,40}$/);
const mediaRange = fc.tuple(
  fc.constantFrom('text/html', '*/*', 'image/png', 'image/*', 'image/jpeg', 'application/json'),
  fc.constantFrom('', ';q=0', ';q=0.5', ';q=high', ';level=1'),
);
const accept = fc
  .array(mediaRange, { maxLength: 4 })
  .map(ranges => ranges.map(r => r.join('')).join());
const headers = fc.record(
  {
    authorization: fc.oneof(fc.constant('good'), fc.constant('good'), headerText),
    'idempotency-key': fc.oneof(fc.constant('key'), fc.uuid(), headerText),
    'content-type': fc.oneof(
      { weight: 3, arbitrary: fc.constant('application/json') },
      { weight: 1, arbitrary: fc.constantFrom(FORM_TYPE['content-type'], 'image/png') },
      { weight: 2, arbitrary: headerText },
    ),
    prefer: headerText,
    range: headerText,
    'if-none-match': headerText,
    accept: fc.oneof(accept, headerText),
    'content-encoding': fc.constant('gzip'),
  },
  { requiredKeys: ['authorization', 'idempotency-key', 'content-type'] },
);

/** What may be answered to a request that no operation of the document describes. */
const UNDESCRIBED = ['NOT_FOUND', 'METHOD_NOT_ALLOWED', 'INVALID_REQUEST'];

test('whatever is sent, the answer is one of the document or the catalogue, no 5xx', async t => {
  const request = fc.record({ method, path, headers, body, rare: fc.nat(9) });
  let taken = 0;
  const property = fc.asyncProperty(request, async sent => {
    const { 'content-encoding': coding, ...kept } = sent.headers;
    const good = kept.authorization === 'good';
    const answer = await app.app.inject({
      method: sent.method as 'GET',
      url: sent.path,
      headers: {
        ...kept,
        ...(good ? { authorization: `Bearer ${app.token}` } : {}),
        ...(sent.rare === 0 && coding !== undefined ? { 'content-encoding': coding } : {}),
      },
      ...(sent.method === 'POST' ? { payload: sent.body } : {}),
    });
    assert.ok(answer.statusCode < 500, answer.payload);
    assert.match(String(answer.headers['x-request-id']), /^req_/);
    assert.doesNotMatch(answer.payload, /node_modules|at \w+ \(|\.ts:\d/);
    if (answer.statusCode === 202) taken += 1;
    if (answer.statusCode >= 400 && sent.method !== 'HEAD') {
      const problem = answer.json();
      assert.ok(isErrorCode(problem.code));
      assert.equal(ERROR_CATALOGUE[problem.code as 'NOT_FOUND'].http, answer.statusCode);
      if (UNDESCRIBED.includes(problem.code)) return;
    }
    if (answer.statusCode === 404 || answer.statusCode === 405) return;
    const { statusCode: status, rawPayload } = answer;
    const plain = { method: sent.method, url: sent.path, status, body: rawPayload };
    if (sent.method !== 'HEAD') checker.check({ ...plain, headers: answer.headers });
  });
  // One that is taken, or a run might never leave the checks before the body.
  const lawful = {
    method: 'POST',
    path: '/v1/matting/jobs',
    headers: {
      authorization: 'good',
      'idempotency-key': 'lawful',
      'content-type': 'application/json',
    },
    body: JSON.stringify(imageBody()),
    rare: 1,
  };
  await t.notThrowsAsync(fc.assert(property, { numRuns: 500, examples: [[lawful]] }));
  t.true(taken > 0, 'not one request was taken');
  t.is(app.services.uploads.open, 0);
});
