/** What the remove.bg interface answers where no picture was made: its codes, on real answers. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, describe, it } from 'node:test';
import type { LightMyRequestResponse } from 'fastify';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import type { JobFailure } from '../../../src/domain/job.ts';
import { removebgErrorOf } from '../../../src/http/removebg/removebg-errors.ts';
import { openTestApp, pngHeader, useTestApp } from '../../support/test-app.ts';
import { IMAGE, multipart, type Parts, RemovebgClient } from './removebg-client.ts';

const BASE64 = IMAGE.toString('base64');

/** As clients read it: each error has a title, whatever else it has. */
function assertRefused(answer: LightMyRequestResponse, status: number, code: string): void {
  const { errors, ...more } = answer.json();
  assert.equal(answer.statusCode, status, answer.body);
  assert.deepEqual(more, {});
  assert.equal(errors.length, 1);
  const [error] = errors;
  assert.deepEqual(Object.keys(error).sort(), ['code', 'detail', 'title']);
  assert.equal(error.code, code, answer.body);
  assert.ok(error.title.length > 5);
  assert.doesNotMatch(answer.body, /image_base64|background_url|background_file/);
  assert.equal(answer.headers['content-type'], 'application/json; charset=utf-8');
  assert.equal(answer.headers['x-credits-charged'], '0');
  if (status === 429 || status === 503) {
    assert.match(String(answer.headers['retry-after']), /^[1-9]\d*$/);
  }
}

describe('an error of the remove.bg interface', () => {
  const app = useTestApp();
  let client: RemovebgClient;

  before(async () => {
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
    it(`${code}: ${shown}`, async () => {
      assertRefused(await client.form(parts), 400, code);
      assert.equal(await app.countJobs(), 0);
      assert.deepEqual(await app.storedFiles(), []);
    });
  }

  it('of two files comes before the second is stored', async () => {
    // Its Base64 is none: read into the upload of the first it would be the fault that is told.
    const answer = await client.form({ image_file: image(), image_file_b64: '!' });
    assertRefused(answer, 400, 'multiple_sources');
    assert.match(answer.json().errors[0].detail, /exclude each other/);
    const both = await client.form({ image_file_b64: BASE64, image_file: pngHeader(10_001, 10) });
    assertRefused(both, 400, 'multiple_sources');
  });

  it('is the same in every form of the body', async () => {
    assertRefused(await client.pairs({}), 400, 'missing_source');
    assertRefused(await client.json({}), 400, 'missing_source');
    const none = await app.app.inject({
      method: 'POST',
      url: '/v1.0/removebg',
      headers: { 'x-api-key': app.token },
    });
    assertRefused(none, 400, 'missing_source');
    const both = { image_file_b64: BASE64, image_url: 'https://a.example/' };
    assertRefused(await client.pairs(both), 400, 'multiple_sources');
    assertRefused(await client.json(both), 400, 'multiple_sources');
    assertRefused(await client.json({ image_file_b64: BASE64, crop: 'x' }), 400, 'invalid_crop');
  });

  it('says that a body cannot be read', async () => {
    assertRefused(await client.post(Buffer.from('{'), 'application/json'), 400, 'invalid_request');
    const nested = Buffer.from('{"image_file_b64":{}}');
    assertRefused(await client.post(nested, 'application/json'), 400, 'invalid_request');
    const cut = multipart({ image_file: IMAGE }).subarray(0, 100);
    const type = 'multipart/form-data; boundary=a-boundary';
    assertRefused(await client.post(cut, type), 400, 'invalid_request');
    assertRefused(await client.post(cut, 'multipart/form-data'), 400, 'invalid_request');
    const plus = Buffer.from('image_file_b64=ab+c');
    const pairs = 'application/x-www-form-urlencoded';
    assertRefused(await client.post(plus, pairs), 400, 'invalid_request');
    const twice = Buffer.from('size=hd&size=full');
    assertRefused(await client.post(twice, pairs), 400, 'invalid_request');
    const text = await client.post(IMAGE, 'text/plain');
    assertRefused(text, 415, 'unsupported_media_type');
    assert.match(String(text.headers.accept), /multipart\/form-data/);
    const gzip = await client.form({}, { 'content-encoding': 'gzip' });
    assertRefused(gzip, 415, 'unsupported_media_type');
    const large = await client.form({}, { 'content-length': '200000000' });
    assertRefused(large, 400, 'file_too_large');
    assert.deepEqual(await app.storedFiles(), []);
  });

  it('says what is wrong with the key, without asking for another scheme', async () => {
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
        assertRefused(answer, 403, code);
        assert.equal(answer.headers['www-authenticate'], undefined);
      }
    }
  });

  it('is in the same manner at paths that there are not, and with other methods', async () => {
    const improve = await app.app.inject({ method: 'POST', url: '/v1.0/improve' });
    assertRefused(improve, 404, 'not_found');
    const get = await app.app.inject({ method: 'GET', url: '/v1.0/removebg' });
    assertRefused(get, 405, 'method_not_allowed');
    assert.equal(get.headers.allow, 'POST');
    const other = await app.app.inject({ method: 'GET', url: '/v1/removebg' });
    assert.equal(other.headers['content-type'], 'application/problem+json');
  });

  it('is the load’s, with whole seconds to wait', async () => {
    const detail = 'the queue is full';
    app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', detail, { retryAfterS: 7.5 }));
    const busy = await client.form({ image_file: image() });
    assertRefused(busy, 503, 'service_unavailable');
    assert.equal(busy.headers['retry-after'], '8');
    app.refuseNewJobs(undefined);
    assert.deepEqual(await app.storedFiles(), []);
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
    it(`of a job: ${failed.code}, ${failed.detail}, is ${code}`, async () => {
      const jobs = app.onSubmitted(id => app.failJob(id, failed));
      const { available } = (await app.stores.ledger.balances(app.accountId)) ?? {};
      const answer = await client.form({ image_file: image() });
      await jobs.stop();
      assertRefused(answer, status, code);
      assert.ok(answer.headers['x-job-id']);
      assert.equal((await app.stores.ledger.balances(app.accountId))?.available, available);
    });
  }

  it('has a title for every code of the catalogue that a caller may see', () => {
    for (const [name, spec] of Object.entries(ERROR_CATALOGUE)) {
      if (spec.scope !== 'public') continue;
      const { status, code, title } = removebgErrorOf(new ContractError(name as ErrorCode, 'why'));
      assert.ok(status >= 400 && status < 600, name);
      // Clients know no 401, and no 413.
      assert.ok(status !== 401 && status !== 413, name);
      assert.match(code, /^[a-z0-9_]+$/, name);
      assert.ok(title.length > 5, name);
    }
  });
});

function failure(code: ErrorCode, detail: string, retryable = false): JobFailure {
  return { code, detail, retryable };
}

const allowing = (...origins: string[]) => ({ defaultSize: 'auto', waitMs: 1, origins }) as const;

describe('an account of the remove.bg interface', () => {
  it('without credits is told so', async t => {
    const app = await openTestApp({ credits: 0 }, t);
    const answer = await new RemovebgClient(app).form();
    assertRefused(answer, 402, 'insufficient_credits');
  });

  it('over its rate is told when to come again', async t => {
    const app = await openTestApp({ submissionsPerMinute: 1, readsPerMinute: 1 }, t);
    const client = new RemovebgClient(app);
    const answers = [];
    for (let count = 0; count < 6; count += 1) answers.push(await client.form({ size: 'x' }));
    for (let count = 0; count < 6; count += 1) answers.push(await client.account());
    const over = answers.filter(({ statusCode }) => statusCode === 429);
    assert.ok(over.length >= 6);
    for (const answer of over) {
      assertRefused(answer, 429, 'rate_limit_exceeded');
      assert.equal(answer.headers['x-ratelimit-remaining'], '0');
    }
  });

  it('over its jobs in flight is told to wait', async t => {
    const app = await openTestApp({ jobsInFlightMax: 1, removebg: allowing() }, t);
    const client = new RemovebgClient(app);
    assertRefused(await client.form(), 503, 'service_unavailable');
    const second = await client.form({ image_file: pngHeader(9, 9) });
    assertRefused(second, 429, 'rate_limit_exceeded');
  });
});

describe('the remove.bg interface', () => {
  it('is not there where the operator turned it off', async t => {
    const app = await openTestApp({ removebg: undefined }, t);
    const client = new RemovebgClient(app);
    for (const answer of [await client.form(), await client.account()]) {
      assert.equal(answer.statusCode, 404);
      assert.equal(answer.headers['content-type'], 'application/problem+json');
    }
  });

  it('is called from pages of the origins that the operator allows, and of no others', async t => {
    const app = await openTestApp({ removebg: allowing('https://shop.example') }, t);
    const preflight = (origin: string) =>
      app.app.inject({ method: 'OPTIONS', url: '/v1.0/removebg', headers: { origin } });
    const allowed = await preflight('https://shop.example');
    assert.equal(allowed.statusCode, 204);
    assert.equal(allowed.headers['access-control-allow-origin'], 'https://shop.example');
    assert.match(String(allowed.headers['access-control-allow-headers']), /X-Api-Key/);
    assert.match(String(allowed.headers['access-control-allow-methods']), /POST/);
    const other = await preflight('https://other.example');
    assert.equal(other.headers['access-control-allow-origin'], undefined);
    assert.equal(other.headers.vary, 'origin');
    const client = new RemovebgClient(app);
    const refused = await client.form({ size: 'x' }, { origin: 'https://shop.example' });
    assert.equal(refused.headers['access-control-allow-origin'], 'https://shop.example');
    assert.match(String(refused.headers['access-control-expose-headers']), /X-Width/);
    const v1 = await app.get('/v1/account', { origin: 'https://shop.example' });
    assert.equal(v1.headers['access-control-allow-origin'], undefined);
  });

  it('is called from every page where the operator says so', async t => {
    const app = await openTestApp({ removebg: allowing('*') }, t);
    const answer = await new RemovebgClient(app).account({ origin: 'https://any.example' });
    assert.equal(answer.headers['access-control-allow-origin'], '*');
  });

  it('has no preflight where no origin is allowed', async t => {
    const app = await openTestApp({}, t);
    const headers = { origin: 'https://shop.example' };
    const answer = await app.app.inject({ method: 'OPTIONS', url: '/v1.0/removebg', headers });
    assert.equal(answer.statusCode, 405);
    assert.equal(answer.headers['access-control-allow-origin'], undefined);
  });
});
