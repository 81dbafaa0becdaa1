import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Job } from '@matting/core/jobs/job.ts';
import { BASE_URL, imageBody, pngHeader } from '@matting/core/test/support/test-app.ts';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import ava, { type ExecutionContext } from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { removebgErrorOf } from './removebg-errors.ts';
import source from './removebg-openapi.json' with { type: 'json' };
import { REMOVEBG_TEXTS } from './removebg-values.ts';
import {
  IMAGE,
  openTestApp,
  type Parts,
  RemovebgClient,
  useTestApp,
} from './test/removebg-client.ts';

const test = ava.serial;

const RESULT = randomBytes(200_001);
const BASE64 = IMAGE.toString('base64');

const app = useTestApp(test);
const client = new RemovebgClient(app);

function succeeding(t: ExecutionContext): void {
  const jobs = app.onSubmitted(id => app.succeedJob(id, RESULT));
  t.teardown(() => jobs.stop());
}

const image = () => Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);

/** Clients need a title in each error. */
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

/** removebg-request.test.ts tests the values of each field. */
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
  [{ roi: '0 0 41px 31px' }, 'roi_exceeds_bounds'],
  [{ roi: '9px 9px 9px 20px' }, 'roi_region_empty'],
  [{ crop: 'true', crop_margin: '500px', scale: '10%' }, 'invalid_crop_margin'],
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
  // The second field is not Base64. If the service read it first, the error would say so.
  const answer = await client.form({ image_file: image(), image_file_b64: '!' });
  assertRefused(t, answer, 400, 'multiple_sources');
  t.regex(answer.json().errors[0].detail, /Send one of/);
  const both = await client.form({ image_file_b64: BASE64, image_file: pngHeader(10_001, 10) });
  assertRefused(t, both, 400, 'multiple_sources');
});

test('an error of the remove.bg interface › has its code, whatever the body and its type are', async t => {
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
  // test/contract/bodies.test.ts has every body that is refused.
  assertRefused(t, await client.post(Buffer.from('{'), 'application/json'), 400, 'invalid_request');
  assertRefused(t, await client.post(IMAGE, 'text/plain'), 415, 'unsupported_media_type');
  const large = await client.form({}, { 'content-length': '200000000' });
  assertRefused(t, large, 400, 'file_too_large');
});

test('an error of the remove.bg interface › says what is wrong with the key, without asking for another scheme', async t => {
  for (const [headers, code] of [
    [{ 'x-api-key': '' }, 'auth_failed'],
    [{ 'x-api-key': 'wrong' }, 'invalid_api_key'],
    [{ 'x-api-key': 'mk_'.padEnd(1000, 'x') }, 'invalid_api_key'],
    [{ 'x-api-key': ['', ''] }, 'invalid_api_key'],
    [{ 'x-api-key': '', authorization: 'Bearer wrong' }, 'invalid_api_key'],
    [{ 'x-api-key': '', authorization: 'Basic abc' }, 'invalid_api_key'],
    [{ 'x-api-key': '', authorization: 'Bearer ' }, 'invalid_api_key'],
    [{ 'x-api-key': '', authorization: ' ' }, 'auth_failed'],
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

const FAILURES: readonly [NonNullable<Job['failure']>, number, string][] = [
  [failure('PROCESSING_FAILED', 'the image cannot be decoded'), 400, 'failed_to_read_image'],
  [failure('PROCESSING_FAILED', 'every attempt was lost', true), 503, 'processing_failed'],
  [failure('IMAGE_DOWNLOAD_FAILED', 'HTTP status 404'), 400, 'failed_image_download'],
  [failure('IMAGE_DOWNLOAD_FAILED', 'timed out', true), 400, 'failed_image_download'],
  [failure('IMAGE_DOWNLOAD_FAILED', 'background_url: HTTP 404'), 400, 'failed_bg_download'],
  [failure('INVALID_IMAGE_SOURCE', 'the URL is not usable'), 400, 'invalid_image_url'],
  [failure('INVALID_PARAMETER', 'background_url is not usable'), 400, 'invalid_bg_image_url'],
  [failure('INVALID_PARAMETER', 'region: no pixel of it'), 400, 'roi_region_empty'],
  [failure('INVALID_PARAMETER', 'background: not decoded'), 400, 'failed_to_read_image'],
  [failure('NO_SUBJECT', 'none was seen'), 400, 'unknown_foreground'],
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
    // Clients know neither 401 nor 413.
    t.true(status !== 401 && status !== 413, name);
    t.regex(code, /^[a-z0-9_]+$/, name);
    t.true(title.length > 5, name);
    // An error about the picture has a code of remove.bg's.
    if (spec.about === 'picture') t.not(code, name.toLowerCase(), name);
  }
});

function failure(code: ErrorCode, detail: string, retryable = false): NonNullable<Job['failure']> {
  return { code, detail, retryable };
}

const allowing = (...origins: string[]) => ({ origins });

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
  const app = await openTestApp({ jobsInFlightMax: 1, syncWaitMs: 1 }, t);
  const client = new RemovebgClient(app);
  assertRefused(t, await client.form(), 503, 'service_unavailable');
  const second = await client.form({ image_file: pngHeader(9, 9) });
  assertRefused(t, second, 429, 'rate_limit_exceeded');
});

test('the remove.bg interface › is not there where the operator turned it off', async t => {
  const app = await openTestApp({ settings: { removebg: undefined } }, t);
  const client = new RemovebgClient(app);
  for (const answer of [await client.form(), await client.account()]) {
    t.is(answer.statusCode, 404);
    t.is(answer.headers['content-type'], 'application/problem+json');
  }
});

test('the remove.bg interface › is called from pages of the origins that the operator allows, and of no others', async t => {
  const app = await openTestApp({ settings: { removebg: allowing('https://shop.example') } }, t);
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

const UNKNOWN_CALLS = [
  ['POST', '/v1.0/removebg/', 404],
  ['GET', '/v1.0/nothing', 404],
  ['PUT', '/v1.0/removebg', 405],
  ['DELETE', '/v1.0/account', 405],
] as const;
for (const [method, url, status] of UNKNOWN_CALLS) {
  test(`the remove.bg interface › lets a page read why it refuses ${method} ${url}`, async t => {
    const app = await openTestApp({ settings: { removebg: allowing('https://shop.example') } }, t);
    const headers = {
      origin: 'https://shop.example',
      'access-control-request-method': method,
      'access-control-request-headers': 'x-api-key,x-requested-with',
    };
    const preflight = await app.app.inject({ method: 'OPTIONS', url, headers });
    t.is(preflight.statusCode, 204);
    t.is(preflight.headers['access-control-allow-origin'], 'https://shop.example');
    t.true(String(preflight.headers['access-control-allow-methods']).includes(method));
    const answer = await app.app.inject({ method, url, headers });
    assertRefused(t, answer, status, status === 404 ? 'not_found' : 'method_not_allowed');
    t.is(answer.headers['access-control-allow-origin'], 'https://shop.example');
    t.is(answer.headers.vary, 'origin');
  });
}

test('the remove.bg interface › refuses a path with two slashes in its own form', async t => {
  const answer = await app.app.inject({ method: 'POST', url: 'http://127.0.0.1//v1.0/removebg' });
  assertRefused(t, answer, 404, 'not_found');
  t.regex(answer.body, /Did you mean/);
});

test('the remove.bg interface › is called from every page where the operator says so, and from none otherwise', async t => {
  const open = await openTestApp({ settings: { removebg: allowing('*') } }, t);
  const called = await new RemovebgClient(open).account({ origin: 'https://any.example' });
  t.is(called.headers['access-control-allow-origin'], '*');
  const headers = { origin: 'https://shop.example' };
  const answer = await app.app.inject({ method: 'OPTIONS', url: '/v1.0/removebg', headers });
  t.is(answer.statusCode, 405);
  t.is(answer.headers['access-control-allow-origin'], undefined);
});

test('the answer › is the picture', async t => {
  succeeding(t);
  const answer = await client.form({ image_file: image(), size: 'auto' });
  t.is(answer.statusCode, 200);
  t.deepEqual(answer.rawPayload, RESULT);
  const { headers } = answer;
  t.is(headers['content-type'], 'image/png');
  t.is(headers['content-length'], String(RESULT.length));
  t.deepEqual([headers['x-width'], headers['x-height']], ['2', '1']);
  t.is(headers['x-type'], 'other');
  t.is(headers['x-credits-charged'], '1');
  const reset = Number(headers['x-ratelimit-reset']);
  t.true(Math.abs(reset - Date.now() / 1000) < 120, String(reset));
  t.is(headers['access-control-allow-origin'], undefined);
});

test('the answer › to a page varies by both what it accepts and where it is', async t => {
  const app = await openTestApp({ settings: { removebg: allowing('https://shop.example') } }, t);
  const jobs = app.onSubmitted(id => app.succeedJob(id, RESULT));
  t.teardown(() => jobs.stop());
  const refused = await new RemovebgClient(app).form({ size: 'x' });
  t.is(refused.headers.vary, 'origin');
  const sent = { image_file: image(), size: 'auto' };
  const answer = await new RemovebgClient(app).form(sent, { accept: 'application/json' });
  t.is(answer.statusCode, 200, answer.body);
  t.is(answer.headers.vary, 'accept, origin');
});

test('the answer › is JSON with the same bytes where that alone is accepted', async t => {
  succeeding(t);
  const sent = { image_file_b64: image().toString('base64') };
  const { statusCode, headers, body } = await client.json(sent, { accept: 'application/json' });
  t.is(statusCode, 200);
  t.is(headers['content-type'], 'application/json; charset=utf-8');
  t.is(headers['content-length'], String(Buffer.byteLength(body)));
  t.is(headers.vary, 'accept');
  const { data } = JSON.parse(body);
  t.deepEqual(Buffer.from(data.result_b64, 'base64'), RESULT);
  t.is(headers['x-credits-charged'], '1');
});

for (const [accept, isJson] of [
  ['*/*', false],
  ['image/png', false],
  // axios sends this by default, and its callers write the answer to a file.
  ['application/json, text/plain, */*', false],
  ['application/json', true],
  ['image/png;q=0.5, application/json', true],
  ['image/png, application/json;q=0.5', false],
  ['nonsense', false],
] as const) {
  test(`the answer › to Accept: ${accept} is ${isJson ? 'JSON' : 'the picture'}`, async t => {
    succeeding(t);
    const { headers } = await client.form({}, { accept });
    const type = isJson ? 'application/json; charset=utf-8' : 'image/png';
    t.is(headers['content-type'], type);
  });
}

test('the answer › says where the subject is, in the result', async t => {
  succeeding(t);
  t.teardown(() => {
    app.sight = null;
  });
  const input = { inputWidth: 400, inputHeight: 300 };
  const inputBox = { left: 6, top: 8, width: 100, height: 120 };
  const resultBox = { left: 3, top: 4, width: 50, height: 60 };
  app.sight = { ...input, subject: { inputBox, resultBox, share: 0.5 } };
  const sent = { image_file: image(), size: 'preview' };
  const { headers } = await client.form(sent);
  const named = (part: string) => headers[`x-foreground-${part}`];
  t.deepEqual(['left', 'top', 'width', 'height'].map(named), ['3', '4', '50', '60']);
  // Without the bound the result would be as large as the image.
  t.deepEqual([headers['x-width'], headers['x-height']], ['2', '1']);
  t.deepEqual([headers['x-max-width'], headers['x-max-height']], ['400', '300']);
  const replay = await client.form(sent, { accept: 'application/json' });
  t.is(JSON.parse(replay.body).data.foreground_width, 50);
  const job = await app.stores.jobs.find(String(headers['x-job-id']));
  t.is(job?.noSubject, 'fail', 'without one it is unknown_foreground');
});

test('the answer › is the same for an image in every form, with its options before it and behind', async t => {
  succeeding(t);
  const file = image();
  const first = await client.form({ image_file: file, size: 'hd', crop: 'true' });
  const base64 = file.toString('base64');
  const again = [
    await client.form({ size: 'hd', crop: 'true', image_file: file }),
    await client.form({ image_file: '', size: 'hd', crop: 'true', image_file_b64: base64 }),
    await client.pairs({ crop: '1', size: 'HD', image_file_b64: base64 }),
    await client.pairs({
      image_file_b64: `data:image/png;base64,${base64}`,
      size: 'hd',
      crop: '1',
    }),
    await client.json({ size: 'hd', crop: true, image_file_b64: base64, roi: null }),
  ];
  for (const { statusCode, headers, rawPayload, body } of again) {
    t.is(statusCode, 200, body.slice(0, 200));
    t.is(headers['x-job-id'], first.headers['x-job-id']);
    t.is(headers['x-credits-charged'], '0');
    t.deepEqual(rawPayload, RESULT);
  }
});

test('the answer › is made of what is not empty: clients send every field they know', async t => {
  succeeding(t);
  const names = ['image_url', 'image_file_b64', 'bg_image_file', 'bg_color', 'roi', 'scale'];
  const empty = Object.fromEntries([...names, 'size', 'type', 'crop_margin'].map(n => [n, '']));
  for (const answer of [
    await client.form({ ...empty, image_file: IMAGE }),
    await client.form({ ...empty, bg_image_file: Buffer.alloc(0) }),
    await client.pairs({ ...empty, image_file: '', image_file_b64: BASE64 }),
    await client.json({ ...empty, image_file_b64: BASE64 }),
  ]) {
    t.is(answer.statusCode, 200, answer.body.slice(0, 200));
    t.notRegex(String(answer.headers['x-ignored-fields']), /type/);
  }
});

test('the answer › names the fields that it knows nothing of, and is made without them', async t => {
  succeeding(t);
  const extra = { type: 'car', tag: 'batch 1', image_filename: 'car.jpg' };
  for (const answer of [
    await client.form(extra),
    await client.pairs({ ...extra, image_file_b64: BASE64 }),
    await client.json({ ...extra, image_file_b64: BASE64 }),
  ]) {
    t.is(answer.statusCode, 200, answer.body.slice(0, 200));
    t.is(answer.headers['x-ignored-fields'], 'tag, image_filename, type');
  }
  const nested = { tag: { of: ['batch 1'] }, image_filename: [{}] };
  const json = await client.json({ ...nested, image_file_b64: BASE64 });
  t.is(json.statusCode, 200, json.body.slice(0, 200));
  t.is(json.headers['x-ignored-fields'], 'tag, image_filename');
  const hostile = await client.form({ 'a, b': '1', ['n'.repeat(100)]: '1', 'x\u00e9': '1' });
  t.is(hostile.headers['x-ignored-fields'], undefined);
});

/** The fields of remove.bg's reference: values with an effect, and values without. */
const REFERENCE: readonly (readonly [
  field: string,
  followed: readonly (string | Buffer)[],
  lost?: readonly string[],
  beside?: Parts,
])[] = [
  ['image_file', [IMAGE]],
  ['image_file_b64', [BASE64], [], { image_file: '' }],
  ['image_url', ['https://a.example/1.jpg'], [], { image_file: '' }],
  ['size', 'preview full 50MP auto medium hd 4k small regular'.split(' ')],
  ['type', [], 'auto car product person animal graphic transportation'.split(' ')],
  ['type_level', ['none'], ['1', '2', 'latest']],
  ['format', ['auto', 'png', 'webp', 'jpg', 'zip']],
  ['roi', ['0% 0% 100% 100%', '1px 2px 30px 20px']],
  ['crop', ['true', 'false']],
  ['crop_margin', ['0', '30px', '10%', '10% 30px', '1px 2% 3px 4%'], [], { crop: 'true' }],
  ['scale', ['original', '10%', '100%']],
  ['position', ['original', 'center', '0%', '100% 50%'], [], { scale: '50%' }],
  ['channels', ['rgba', 'alpha']],
  ['add_shadow', [], ['true', 'false']],
  ['shadow_type', ['drop'], ['auto', 'car', '3D', 'none']],
  ['shadow_type', [], ['drop'], { channels: 'alpha' }],
  ['shadow_type[car]', [], ['car']],
  ['shadow_opacity', ['1', '100', 'auto'], [], { shadow_type: 'drop' }],
  ['shadow_opacity', [], ['60']],
  ['shadow_opacity[car]', [], ['90']],
  // The reference had this one until 2021.
  ['shadow_method', [], ['latest', 'legacy']],
  ['semitransparency', [], ['true', 'false']],
  ['bg_color', ['81d4fa', 'fff', '81d4fa77', 'green']],
  ['bg_image_url', ['https://a.example/1.jpg']],
  ['bg_image_file', [IMAGE]],
];
const TYPES: Readonly<Record<string, string>> = {
  auto: 'image/png',
  png: 'image/png',
  jpg: 'image/jpeg',
  webp: 'image/webp',
  zip: 'application/zip',
};
const REFERENCE_HEADERS = [
  ...['X-Type', 'X-Width', 'X-Height', 'X-Credits-Charged'],
  ...['Limit', 'Remaining', 'Reset'].map(part => `X-RateLimit-${part}`),
  ...['Top', 'Left', 'Width', 'Height'].map(part => `X-Foreground-${part}`),
];
/** invalid_dimensions is failed_to_read_image here. */
const REFERENCE_CODES = [
  'failed_bg_download failed_image_download failed_to_read_image file_too_large',
  'invalid_bg_color invalid_bg_image_url invalid_channels invalid_crop_margin invalid_file_type',
  'invalid_format invalid_image_url invalid_position invalid_roi invalid_scale',
  'invalid_semitransparency invalid_size missing_source multiple_bg_sources multiple_sources',
  'resolution_too_high roi_exceeds_bounds roi_region_empty unknown_foreground',
].flatMap(line => line.split(' '));

test('everything in remove.bg’s reference › does what docs/removebg.md says', async t => {
  succeeding(t);
  const page = readFileSync('docs/removebg.md', 'utf8');
  const rows = page.split('\n').filter(line => line.startsWith('|'));
  for (const [field, followed, lost = [], others = {}] of REFERENCE) {
    const about = rows.filter(row => row.split('|')[1]?.includes(`\`${field}\``)).join();
    const hasLost = REFERENCE.some(([name, , values]) => name === field && values?.length);
    t.is(about.includes('no effect'), hasLost, `${field}: ${about}`);
    t.not(about, '', field);
    for (const value of [...followed, ...lost]) {
      const { statusCode, headers, body } = await client.form({ ...others, [field]: value });
      t.is(statusCode, 200, `${field}=${value}: ${body.slice(0, 200)}`);
      const named = lost.some(one => one === value) ? field : undefined;
      t.is(headers['x-ignored-fields'], named, `${field}=${value}`);
      const isUntyped = field === 'type_level' && value === 'none';
      t.is(headers['x-type'], isUntyped ? undefined : 'other');
      if (field === 'format') t.is(headers['content-type'], TYPES[String(value)]);
    }
  }
  const described = source.paths['/v1.0/removebg'].post.responses['200'].headers;
  t.deepEqual(
    REFERENCE_HEADERS.filter(name => !Object.hasOwn(described, name)),
    [],
  );
  const provoked = new Set([...REFUSED.map(([, code]) => code), ...FAILURES.map(row => row[2])]);
  for (const code of REFERENCE_CODES) {
    const [, field] = /^invalid_(.*)/.exec(code) ?? [];
    t.true(page.includes(`\`${code}\``) || REFERENCE.some(([name]) => name === field), code);
    if (!provoked.has(code)) assertRefused(t, await client.form({ [`${field}`]: '<>' }), 400, code);
  }
});

test('the answer › is given to the key in either header, in any case', async t => {
  succeeding(t);
  for (const headers of [
    { 'X-API-KEY': app.token },
    { 'x-api-key': '', authorization: `Bearer ${app.token}` },
    { 'x-api-key': app.token, authorization: 'Basic cHJveHk6cGFzcw==' },
  ]) {
    const answer = await app.app.inject({ url: '/v1.0/account', headers });
    t.is(answer.statusCode, 200, answer.body);
  }
});

test('the answer › of the account has exactly the keys of a recorded one', async t => {
  succeeding(t);
  const answer = await client.account();
  t.is(answer.statusCode, 200);
  const { available } = (await app.stores.ledger.balances(app.accountId)) ?? {};
  t.deepEqual(answer.json(), {
    data: {
      attributes: {
        credits: { subscription: 0, payg: available, enterprise: 0, total: available },
        api: { free_calls: 0, sizes: 'all' },
      },
    },
  });
  t.truthy(answer.headers['x-ratelimit-remaining']);
});

test('the answer › of the account has what a key with a cap can spend', async t => {
  const totalOf = async (credits: number) => {
    const cap = { credits, period: 'total' } as const;
    const token = await app.createKey({ cap });
    const total = async () =>
      (await client.account({ 'x-api-key': token })).json().data.attributes.credits.total;
    const before = await total();
    await app.post('/v1/matting/jobs', imageBody(), { authorization: `Bearer ${token}` });
    return [before, await total()];
  };
  const { available = 0 } = (await app.stores.ledger.balances(app.accountId)) ?? {};
  t.deepEqual(await totalOf(3), [3, 2]);
  t.deepEqual(await totalOf(1), [1, 0]);
  t.deepEqual(await totalOf(available * 2), [available - 2, available - 3]);
});

test('the answer › is described by a document of OpenAPI 3.1, served without a key', async t => {
  succeeding(t);
  const answer = await app.app.inject('/v1.0/openapi.json');
  t.is(answer.statusCode, 200);
  const document = answer.json() as typeof source;
  t.deepEqual(document.servers, [{ url: BASE_URL }]);
  const schema = readFileSync('test/contract/openapi-schema/oas-3.1.json', 'utf8');
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addFormat('media-range', true);
  t.truthy(ajv.validate(JSON.parse(schema), document), ajv.errorsText(ajv.errors));
  const { properties } = document.components.schemas.Fields;
  const described = Object.keys(properties).sort();
  t.deepEqual(described, [...REMOVEBG_TEXTS, 'image_file_b64'].sort());
});
