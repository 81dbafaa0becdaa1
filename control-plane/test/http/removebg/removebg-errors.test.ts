/** What the remove.bg interface answers where no picture was made: its codes, on real answers. */
import { randomUUID } from 'node:crypto';
import ava, { type ExecutionContext } from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import type { JobFailure } from '../../../src/domain/job.ts';
import { removebgErrorOf } from '../../../src/http/removebg/removebg-errors.ts';
import { openTestApp, pngHeader, useTestApp } from '../../support/test-app.ts';
import { IMAGE, multipart, type Parts, RemovebgClient } from './removebg-client.ts';

const test = ava.serial;

const BASE64 = IMAGE.toString('base64');

/** As clients read it: each error has a title, whatever else it has. */
function assertRefused(
  t: ExecutionContext,
  answer: LightMyRequestResponse,
  status: number,
  code: string,
): void {
  const { errors, ...more } = answer.json();
  t.is(answer.statusCode, status, answer.body);
  t.deepEqual(more, {});
  t.is(errors.length, 1);
  const [error] = errors;
  t.deepEqual(Object.keys(error).sort(), ['code', 'detail', 'title']);
  t.is(error.code, code, answer.body);
  t.true(error.title.length > 5);
  t.notRegex(answer.body, /image_base64|background_url|background_file/);
  t.is(answer.headers['content-type'], 'application/json; charset=utf-8');
  t.is(answer.headers['x-credits-charged'], '0');
  if (status === 429 || status === 503) {
    t.regex(String(answer.headers['retry-after']), /^[1-9]\d*$/);
  }
}

const app = useTestApp(test);
let client: RemovebgClient;

test.before(async () => {
  client = new RemovebgClient(app);
});

const image = () => Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);

const REFUSED: readonly [Parts, string][] = [
  [{ image_file: '' }, 'missing_source'],
  [{ image_url: 'https://a.example/1.png' }, 'multiple_sources'],
  [{ image_file_b64: BASE64 }, 'multiple_sources'],
  [{ image_file: '', image_url: 'nonsense' }, 'invalid_image_url'],
  [{ image_file: '', image_url: 'http://127.0.0.1/1.png' }, 'invalid_image_url'],
  [{ image_file: '', image_file_b64: 'not Base64 !' }, 'failed_to_read_image'],
  [{ image_file: Buffer.from('no picture') }, 'invalid_file_type'],
  [{ image_file: pngHeader(10_001, 10) }, 'resolution_too_high'],
  [{ bg_image_file: Buffer.from('no picture') }, 'invalid_file_type'],
  [{ size: 'huge' }, 'invalid_size'],
  [{ type: 'dragon' }, 'invalid_type'],
  [{ type_level: '9' }, 'invalid_type_level'],
  [{ format: 'gif' }, 'invalid_format'],
  [{ roi: '1 2 3' }, 'invalid_roi'],
  [{ roi: '0 0 41px 31px' }, 'roi_exceeds_bounds'],
  [{ roi: '9px 9px 9px 20px' }, 'roi_region_empty'],
  [{ crop: 'perhaps' }, 'invalid_crop'],
  [{ crop_margin: '600px' }, 'invalid_crop_margin'],
  [{ scale: '5%' }, 'invalid_scale'],
  [{ crop: 'true', crop_margin: '500px', scale: '10%' }, 'invalid_crop_margin'],
  [{ position: 'up' }, 'invalid_position'],
  [{ position: 'center' }, 'invalid_position'],
  [{ channels: 'cmyk' }, 'invalid_channels'],
  [{ add_shadow: 'x' }, 'invalid_add_shadow'],
  [{ shadow_opacity: '200' }, 'invalid_shadow_opacity'],
  [{ semitransparency: 'x' }, 'invalid_semitransparency'],
  [{ bg_color: 'greenish' }, 'invalid_bg_color'],
  [{ bg_image_url: 'nonsense' }, 'invalid_bg_image_url'],
  [{ bg_color: 'red', bg_image_url: 'https://a.example/' }, 'multiple_bg_sources'],
  [{ size: 'x'.repeat(10_000) }, 'invalid_size'],
];

for (const [parts, code] of REFUSED) {
  const shown = JSON.stringify(parts).slice(0, 60);
  test(`an error of the remove.bg interface › ${code}: ${shown}`, async t => {
    assertRefused(t, await client.form(parts), 400, code);
    t.is(await app.countJobs(), 0);
    t.deepEqual(await app.storedFiles(), []);
  });
}

test('an error of the remove.bg interface › of two files comes before the second is stored', async t => {
  // Its Base64 is none: read into the upload of the first it would be the fault that is told.
  const answer = await client.form({ image_file: image(), image_file_b64: '!' });
  assertRefused(t, answer, 400, 'multiple_sources');
  t.regex(answer.json().errors[0].detail, /exclude each other/);
  const both = await client.form({ image_file_b64: BASE64, image_file: pngHeader(10_001, 10) });
  assertRefused(t, both, 400, 'multiple_sources');
});

test('an error of the remove.bg interface › is the same in every form of the body', async t => {
  assertRefused(t, await client.pairs({}), 400, 'missing_source');
  assertRefused(t, await client.json({}), 400, 'missing_source');
  const none = await app.app.inject({
    method: 'POST',
    url: '/v1.0/removebg',
    headers: { 'x-api-key': app.token },
  });
  assertRefused(t, none, 400, 'missing_source');
  const both = { image_file_b64: BASE64, image_url: 'https://a.example/' };
  assertRefused(t, await client.pairs(both), 400, 'multiple_sources');
  assertRefused(t, await client.json(both), 400, 'multiple_sources');
  assertRefused(t, await client.json({ image_file_b64: BASE64, crop: 'x' }), 400, 'invalid_crop');
});

test('an error of the remove.bg interface › says that a body cannot be read', async t => {
  assertRefused(t, await client.post(Buffer.from('{'), 'application/json'), 400, 'invalid_request');
  const nested = Buffer.from('{"image_file_b64":{}}');
  assertRefused(t, await client.post(nested, 'application/json'), 400, 'invalid_request');
  const cut = multipart({ image_file: IMAGE }).subarray(0, 100);
  const type = 'multipart/form-data; boundary=a-boundary';
  assertRefused(t, await client.post(cut, type), 400, 'invalid_request');
  assertRefused(t, await client.post(cut, 'multipart/form-data'), 400, 'invalid_request');
  const plus = Buffer.from('image_file_b64=ab+c');
  const pairs = 'application/x-www-form-urlencoded';
  assertRefused(t, await client.post(plus, pairs), 400, 'invalid_request');
  const twice = Buffer.from('size=hd&size=full');
  assertRefused(t, await client.post(twice, pairs), 400, 'invalid_request');
  const text = await client.post(IMAGE, 'text/plain');
  assertRefused(t, text, 415, 'unsupported_media_type');
  t.regex(String(text.headers.accept), /multipart\/form-data/);
  const gzip = await client.form({}, { 'content-encoding': 'gzip' });
  assertRefused(t, gzip, 415, 'unsupported_media_type');
  const large = await client.form({}, { 'content-length': '200000000' });
  assertRefused(t, large, 400, 'file_too_large');
  t.deepEqual(await app.storedFiles(), []);
});

test('an error of the remove.bg interface › says what is wrong with the key, without asking for another scheme', async t => {
  for (const [headers, code] of [
    [{ 'x-api-key': '' }, 'auth_failed'],
    [{ 'x-api-key': 'wrong' }, 'invalid_api_key'],
    [{ 'x-api-key': 'mk_'.padEnd(1000, 'x') }, 'invalid_api_key'],
    [{ 'x-api-key': ['', ''] }, 'invalid_api_key'],
    [{ 'x-api-key': '', authorization: 'Bearer wrong' }, 'invalid_api_key'],
    [{ 'x-api-key': '', authorization: 'Basic abc' }, 'invalid_api_key'],
  ] as const) {
    const sent = headers as Record<string, string>;
    for (const answer of [await client.form({}, sent), await client.account(sent)]) {
      assertRefused(t, answer, 403, code);
      t.is(answer.headers['www-authenticate'], undefined);
    }
  }
});

test('an error of the remove.bg interface › is in the same manner at paths that there are not, and with other methods', async t => {
  const improve = await app.app.inject({ method: 'POST', url: '/v1.0/improve' });
  assertRefused(t, improve, 404, 'not_found');
  const get = await app.app.inject({ method: 'GET', url: '/v1.0/removebg' });
  assertRefused(t, get, 405, 'method_not_allowed');
  t.is(get.headers.allow, 'POST');
  const other = await app.app.inject({ method: 'GET', url: '/v1/removebg' });
  t.is(other.headers['content-type'], 'application/problem+json');
});

test('an error of the remove.bg interface › is the load’s, with whole seconds to wait', async t => {
  const detail = 'the queue is full';
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', detail, { retryAfterS: 7.5 }));
  const busy = await client.form({ image_file: image() });
  assertRefused(t, busy, 503, 'service_unavailable');
  t.is(busy.headers['retry-after'], '8');
  app.refuseNewJobs(undefined);
  t.deepEqual(await app.storedFiles(), []);
});

const FAILURES: readonly [JobFailure, number, string][] = [
  [failure('PROCESSING_FAILED', 'the image cannot be decoded'), 400, 'failed_to_read_image'],
  [failure('PROCESSING_FAILED', 'every attempt was lost', true), 503, 'processing_failed'],
  [failure('IMAGE_DOWNLOAD_FAILED', 'HTTP status 404'), 400, 'failed_image_download'],
  [failure('IMAGE_DOWNLOAD_FAILED', 'timed out', true), 400, 'failed_image_download'],
  [failure('IMAGE_DOWNLOAD_FAILED', 'background_url: HTTP 404'), 400, 'failed_bg_download'],
  [failure('INVALID_IMAGE_SOURCE', 'the URL is not usable'), 400, 'invalid_image_url'],
  [failure('INVALID_PARAMETER', 'background_url is not usable'), 400, 'invalid_bg_image_url'],
  [failure('INVALID_PARAMETER', 'region: no pixel of it'), 400, 'roi_region_empty'],
  [failure('INVALID_PARAMETER', 'background: not decoded'), 400, 'failed_to_read_image'],
  [failure('UNSUPPORTED_IMAGE_FORMAT', 'no picture'), 400, 'invalid_file_type'],
  [failure('IMAGE_TOO_LARGE', 'too many bytes'), 400, 'file_too_large'],
  [failure('IMAGE_RESOLUTION_TOO_LARGE', 'too many pixels'), 400, 'resolution_too_high'],
];

for (const [failed, status, code] of FAILURES) {
  test(`an error of the remove.bg interface › of a job: ${failed.code}, ${failed.detail}, is ${code}`, async t => {
    const jobs = app.onSubmitted(id => app.failJob(id, failed));
    const { available } = (await app.stores.ledger.balances(app.accountId)) ?? {};
    const answer = await client.form({ image_file: image() });
    await jobs.stop();
    assertRefused(t, answer, status, code);
    t.truthy(answer.headers['x-job-id']);
    t.is((await app.stores.ledger.balances(app.accountId))?.available, available);
  });
}

test('an error of the remove.bg interface › has a title for every code of the catalogue that a caller may see', t => {
  for (const [name, spec] of Object.entries(ERROR_CATALOGUE)) {
    if (spec.scope !== 'public') continue;
    const { status, code, title } = removebgErrorOf(new ContractError(name as ErrorCode, 'why'));
    t.true(status >= 400 && status < 600, name);
    // Clients know no 401, and no 413.
    t.true(status !== 401 && status !== 413, name);
    t.regex(code, /^[a-z0-9_]+$/, name);
    t.true(title.length > 5, name);
  }
});

function failure(code: ErrorCode, detail: string, retryable = false): JobFailure {
  return { code, detail, retryable };
}

const allowing = (...origins: string[]) => ({ defaultSize: 'auto', waitMs: 1, origins }) as const;

test('an account of the remove.bg interface › without credits is told so', async t => {
  const app = await openTestApp({ credits: 0 }, t);
  const answer = await new RemovebgClient(app).form();
  assertRefused(t, answer, 402, 'insufficient_credits');
});

test('an account of the remove.bg interface › over its rate is told when to come again', async t => {
  const app = await openTestApp({ submissionsPerMinute: 1, readsPerMinute: 1 }, t);
  const client = new RemovebgClient(app);
  const answers = [];
  for (let count = 0; count < 6; count += 1) answers.push(await client.form({ size: 'x' }));
  for (let count = 0; count < 6; count += 1) answers.push(await client.account());
  const over = answers.filter(({ statusCode }) => statusCode === 429);
  t.true(over.length >= 6);
  for (const answer of over) {
    assertRefused(t, answer, 429, 'rate_limit_exceeded');
    t.is(answer.headers['x-ratelimit-remaining'], '0');
  }
});

test('an account of the remove.bg interface › over its jobs in flight is told to wait', async t => {
  const app = await openTestApp({ jobsInFlightMax: 1, removebg: allowing() }, t);
  const client = new RemovebgClient(app);
  assertRefused(t, await client.form(), 503, 'service_unavailable');
  const second = await client.form({ image_file: pngHeader(9, 9) });
  assertRefused(t, second, 429, 'rate_limit_exceeded');
});

test('the remove.bg interface › is not there where the operator turned it off', async t => {
  const app = await openTestApp({ removebg: undefined }, t);
  const client = new RemovebgClient(app);
  for (const answer of [await client.form(), await client.account()]) {
    t.is(answer.statusCode, 404);
    t.is(answer.headers['content-type'], 'application/problem+json');
  }
});

test('the remove.bg interface › is called from pages of the origins that the operator allows, and of no others', async t => {
  const app = await openTestApp({ removebg: allowing('https://shop.example') }, t);
  const preflight = (origin: string) =>
    app.app.inject({ method: 'OPTIONS', url: '/v1.0/removebg', headers: { origin } });
  const allowed = await preflight('https://shop.example');
  t.is(allowed.statusCode, 204);
  t.is(allowed.headers['access-control-allow-origin'], 'https://shop.example');
  t.regex(String(allowed.headers['access-control-allow-headers']), /X-Api-Key/);
  t.regex(String(allowed.headers['access-control-allow-methods']), /POST/);
  const other = await preflight('https://other.example');
  t.is(other.headers['access-control-allow-origin'], undefined);
  t.is(other.headers.vary, 'origin');
  const client = new RemovebgClient(app);
  const refused = await client.form({ size: 'x' }, { origin: 'https://shop.example' });
  t.is(refused.headers['access-control-allow-origin'], 'https://shop.example');
  t.regex(String(refused.headers['access-control-expose-headers']), /X-Width/);
  const v1 = await app.get('/v1/account', { origin: 'https://shop.example' });
  t.is(v1.headers['access-control-allow-origin'], undefined);
});

test('the remove.bg interface › is called from every page where the operator says so', async t => {
  const app = await openTestApp({ removebg: allowing('*') }, t);
  const answer = await new RemovebgClient(app).account({ origin: 'https://any.example' });
  t.is(answer.headers['access-control-allow-origin'], '*');
});

test('the remove.bg interface › has no preflight where no origin is allowed', async t => {
  const app = await openTestApp({}, t);
  const headers = { origin: 'https://shop.example' };
  const answer = await app.app.inject({ method: 'OPTIONS', url: '/v1.0/removebg', headers });
  t.is(answer.statusCode, 405);
  t.is(answer.headers['access-control-allow-origin'], undefined);
});
