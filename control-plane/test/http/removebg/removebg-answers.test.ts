/** What the remove.bg interface answers where a picture was made. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import type { LightMyRequestResponse } from 'fastify';
import source from '../../../src/http/removebg/removebg-openapi.json' with { type: 'json' };
import { REMOVEBG_TEXTS } from '../../../src/services/removebg/removebg-fields.ts';
import { BASE_URL, openTestApp, pngHeader, useTestApp } from '../../support/test-app.ts';
import { IMAGE, RemovebgClient } from './removebg-client.ts';

const RESULT = randomBytes(200_001);
const BASE64 = IMAGE.toString('base64');

/** The headers that a recorded answer of remove.bg has besides those of every HTTP answer. */
const RECORDED_HEADERS = [
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
  'x-width',
  'x-height',
  'x-max-width',
  'x-max-height',
  'x-type',
  'x-credits-charged',
  'content-type',
  'content-length',
];

describe('the answer of the remove.bg interface', () => {
  const app = useTestApp();
  const client = new RemovebgClient(app);
  let jobs: { stop(): Promise<void> };

  before(async () => {
    jobs = app.onSubmitted(id => app.succeedJob(id, RESULT));
  });
  after(() => jobs.stop());

  /** No other request's. */
  const image = () => Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);

  async function formatOf(answer: LightMyRequestResponse): Promise<string | undefined> {
    const job = await app.stores.jobs.find(String(answer.headers['x-job-id']));
    return job?.outputFormat;
  }

  it('is the picture, with the headers of a recorded answer', async () => {
    const answer = await client.form({ image_file: image(), size: 'auto' });
    assert.equal(answer.statusCode, 200);
    assert.deepEqual(answer.rawPayload, RESULT);
    const { headers } = answer;
    for (const name of RECORDED_HEADERS) assert.ok(headers[name], name);
    assert.equal(headers['content-type'], 'image/png');
    assert.equal(headers['content-length'], String(RESULT.length));
    assert.deepEqual([headers['x-width'], headers['x-height']], ['2', '1']);
    assert.equal(headers['x-type'], 'other');
    // As whole a number as clients parse it.
    assert.equal(headers['x-credits-charged'], '1');
    const reset = Number(headers['x-ratelimit-reset']);
    assert.ok(Math.abs(reset - Date.now() / 1000) < 120, String(reset));
    for (const name of ['limit', 'remaining', 'reset'].map(part => `x-ratelimit-${part}`)) {
      assert.match(String(headers[name]), /^\d+$/);
    }
    assert.equal(headers['access-control-allow-origin'], undefined);
  });

  it('is JSON with the same bytes where that alone is accepted', async () => {
    const sent = { image_file_b64: image().toString('base64') };
    const { statusCode, headers, body } = await client.json(sent, { accept: 'application/json' });
    assert.equal(statusCode, 200);
    assert.equal(headers['content-type'], 'application/json; charset=utf-8');
    assert.equal(headers['content-length'], String(Buffer.byteLength(body)));
    assert.equal(headers.vary, 'accept');
    const { data, ...more } = JSON.parse(body);
    assert.deepEqual(more, {});
    assert.deepEqual(Object.keys(data).sort(), [
      'foreground_height',
      'foreground_left',
      'foreground_top',
      'foreground_width',
      'result_b64',
    ]);
    assert.deepEqual(Buffer.from(data.result_b64, 'base64'), RESULT);
    assert.equal(headers['x-credits-charged'], '1');
  });

  for (const [accept, isJson] of [
    ['*/*', false],
    ['image/*', false],
    ['image/png', false],
    // What axios sends of itself, whose callers write the answer to a file.
    ['application/json, text/plain, */*', false],
    ['text/html, */*;q=0.1', false],
    ['application/json', true],
    ['application/json;q=0.9', true],
    ['application/json, text/plain', true],
    ['image/png;q=0.5, application/json', true],
    ['image/png, application/json;q=0.5', false],
    ['nonsense', false],
  ] as const) {
    it(`to Accept: ${accept} is ${isJson ? 'JSON' : 'the picture'}`, async () => {
      const { headers } = await client.form({}, { accept });
      const type = isJson ? 'application/json; charset=utf-8' : 'image/png';
      assert.equal(headers['content-type'], type);
    });
  }

  it('says where the subject is, in the result', async () => {
    const quiet = await openTestApp();
    const other = new RemovebgClient(quiet);
    const resultBox = { left: 3, top: 4, width: 50, height: 60 };
    const inputBox = { left: 6, top: 8, width: 100, height: 120 };
    const subjects = [{ inputBox, resultBox, share: 0.5 }, null];
    const ended = quiet.onSubmitted(async id => {
      const claim = await quiet.startJob(id);
      const writer = await quiet.blobs.createWriter(`results/${id}-1`);
      await writer.write(RESULT);
      await writer.commit();
      const sight = { inputWidth: 400, inputHeight: 300, subject: subjects.shift() ?? null };
      const bytes = RESULT.length;
      const file = { blob: `results/${id}-1`, token: id, sealedToken: 'sealed', bytes };
      const picture = { format: 'png', width: 200, height: 150, sha256: 'ab'.repeat(32) } as const;
      const result = { ...file, ...picture, sight };
      assert.ok(await quiet.stores.jobs.succeed(claim, result, 60_000, {}));
      quiet.events.jobFinal(id);
    });
    const { headers } = await other.form({ size: 'preview' });
    const named = (part: string) => headers[`x-foreground-${part}`];
    assert.deepEqual(['left', 'top', 'width', 'height'].map(named), ['3', '4', '50', '60']);
    // Without the bound it would be as large as the image.
    assert.deepEqual([headers['x-width'], headers['x-height']], ['200', '150']);
    assert.deepEqual([headers['x-max-width'], headers['x-max-height']], ['400', '300']);
    const replay = await other.form({ size: 'preview' }, { accept: 'application/json' });
    assert.equal(JSON.parse(replay.body).data.foreground_width, 50);
    const none = await other.form({ size: 'hd' });
    assert.equal(none.headers['x-foreground-width'], '0');
    await ended.stop();
    await quiet.close();
  });

  it('names no type where none is asked for', async () => {
    assert.equal((await client.form({ type_level: 'none' })).headers['x-type'], undefined);
    assert.equal((await client.form({ type_level: '2' })).headers['x-type'], 'other');
  });

  it('is in the format that was asked for', async () => {
    for (const [format, type, stored] of [
      ['auto', 'image/png', 'png'],
      ['png', 'image/png', 'png'],
      ['jpg', 'image/jpeg', 'jpeg'],
      ['webp', 'image/webp', 'webp'],
      ['zip', 'application/zip', 'zip'],
    ]) {
      const answer = await client.form({ image_file: image(), format: format ?? '' });
      assert.equal(answer.statusCode, 200, answer.body.slice(0, 200));
      assert.equal(answer.headers['content-type'], type);
      assert.equal(await formatOf(answer), stored);
    }
  });

  it('is the same for an image in every form, with its options before it and behind', async () => {
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
      assert.equal(statusCode, 200, body.slice(0, 200));
      assert.equal(headers['x-job-id'], first.headers['x-job-id']);
      assert.equal(headers['x-credits-charged'], '0');
      assert.deepEqual(rawPayload, RESULT);
    }
  });

  it('is made of what is not empty: clients send every field they know', async () => {
    const names = ['image_url', 'image_file_b64', 'bg_image_file', 'bg_color', 'roi', 'scale'];
    const empty = Object.fromEntries([...names, 'size', 'type', 'crop_margin'].map(n => [n, '']));
    for (const answer of [
      await client.form({ ...empty, image_file: IMAGE }),
      await client.form({ ...empty, bg_image_file: Buffer.alloc(0) }),
      await client.pairs({ ...empty, image_file: '', image_file_b64: BASE64 }),
      await client.json({ ...empty, image_file_b64: BASE64 }),
    ]) {
      assert.equal(answer.statusCode, 200, answer.body.slice(0, 200));
    }
  });

  it('names the fields that it knows nothing of, and is made without them', async () => {
    const extra = { tag: 'batch 1', image_filename: 'car.jpg' };
    for (const answer of [
      await client.form(extra),
      await client.pairs({ ...extra, image_file_b64: BASE64 }),
      await client.json({ ...extra, image_file_b64: BASE64 }),
    ]) {
      assert.equal(answer.statusCode, 200, answer.body.slice(0, 200));
      assert.equal(answer.headers['x-ignored-fields'], 'tag, image_filename');
    }
    const nested = { tag: { of: ['batch 1'] }, image_filename: [{}] };
    const json = await client.json({ ...nested, image_file_b64: BASE64 });
    assert.equal(json.statusCode, 200, json.body.slice(0, 200));
    assert.equal(json.headers['x-ignored-fields'], 'tag, image_filename');
    const hostile = await client.form({ 'a, b': '1', ['n'.repeat(100)]: '1', 'x\u00e9': '1' });
    assert.equal(hostile.headers['x-ignored-fields'], undefined);
  });

  it('is given to the key in either header, in any case', async () => {
    for (const headers of [
      { 'x-api-key': app.token },
      { 'X-API-KEY': app.token },
      { 'x-api-key': '', authorization: `Bearer ${app.token}` },
      { 'x-api-key': app.token, authorization: 'Basic cHJveHk6cGFzcw==' },
    ]) {
      const sent = Object.fromEntries(
        Object.entries({ 'x-api-key': '', ...headers }).filter(
          ([name]) => !('X-API-KEY' in headers && name === 'x-api-key'),
        ),
      );
      const answer = await app.app.inject({ method: 'GET', url: '/v1.0/account', headers: sent });
      assert.equal(answer.statusCode, 200, answer.body);
    }
  });

  it('of the account has exactly the keys of a recorded one', async () => {
    const answer = await client.account();
    assert.equal(answer.statusCode, 200);
    const { available } = (await app.stores.ledger.balances(app.accountId)) ?? {};
    assert.deepEqual(answer.json(), {
      data: {
        attributes: {
          credits: { subscription: 0, payg: available, enterprise: 0, total: available },
          api: { free_calls: 0, sizes: 'all' },
        },
      },
    });
    assert.ok(answer.headers['x-ratelimit-remaining']);
  });

  it('is described by a document of OpenAPI 3.1, served without a key', async () => {
    const answer = await app.app.inject('/v1.0/openapi.json');
    assert.equal(answer.statusCode, 200);
    const document = answer.json() as typeof source;
    assert.deepEqual(document.servers, [{ url: BASE_URL }]);
    const schema = readFileSync('test/contract/openapi-schema/oas-3.1.json', 'utf8');
    const ajv = new Ajv2020({ strict: false, allErrors: true });
    addFormats.default(ajv);
    ajv.addFormat('media-range', true);
    assert.ok(ajv.validate(JSON.parse(schema), document), ajv.errorsText(ajv.errors));
    const { properties } = document.components.schemas.Fields;
    const described = Object.keys(properties).sort();
    assert.deepEqual(described, [...REMOVEBG_TEXTS, 'image_file_b64'].sort());
  });
});
