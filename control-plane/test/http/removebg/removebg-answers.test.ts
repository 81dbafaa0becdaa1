/** What the remove.bg interface answers where a picture was made. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import ava from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import source from '../../../src/http/removebg/removebg-openapi.json' with { type: 'json' };
import { REMOVEBG_TEXTS } from '../../../src/services/removebg/removebg-fields.ts';
import { BASE_URL, openTestApp, pngHeader, useTestApp } from '../../support/test-app.ts';
import { IMAGE, RemovebgClient } from './removebg-client.ts';

const test = ava.serial;

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

const app = useTestApp(test);
const client = new RemovebgClient(app);
let jobs: { stop(): Promise<void> };

test.before(async () => {
  jobs = app.onSubmitted(id => app.succeedJob(id, RESULT));
});
test.after.always(() => jobs.stop());

/** No other request's. */
const image = () => Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);

async function formatOf(answer: LightMyRequestResponse): Promise<string | undefined> {
  const job = await app.stores.jobs.find(String(answer.headers['x-job-id']));
  return job?.outputFormat;
}

test('is the picture, with the headers of a recorded answer', async t => {
  const answer = await client.form({ image_file: image(), size: 'auto' });
  t.is(answer.statusCode, 200);
  t.deepEqual(answer.rawPayload, RESULT);
  const { headers } = answer;
  for (const name of RECORDED_HEADERS) assert.ok(headers[name], name);
  t.is(headers['content-type'], 'image/png');
  t.is(headers['content-length'], String(RESULT.length));
  t.deepEqual([headers['x-width'], headers['x-height']], ['2', '1']);
  t.is(headers['x-type'], 'other');
  // As whole a number as clients parse it.
  t.is(headers['x-credits-charged'], '1');
  const reset = Number(headers['x-ratelimit-reset']);
  t.true(Math.abs(reset - Date.now() / 1000) < 120, String(reset));
  for (const name of ['limit', 'remaining', 'reset'].map(part => `x-ratelimit-${part}`)) {
    t.regex(String(headers[name]), /^\d+$/);
  }
  t.is(headers['access-control-allow-origin'], undefined);
});

test('is JSON with the same bytes where that alone is accepted', async t => {
  const sent = { image_file_b64: image().toString('base64') };
  const { statusCode, headers, body } = await client.json(sent, { accept: 'application/json' });
  t.is(statusCode, 200);
  t.is(headers['content-type'], 'application/json; charset=utf-8');
  t.is(headers['content-length'], String(Buffer.byteLength(body)));
  t.is(headers.vary, 'accept');
  const { data, ...more } = JSON.parse(body);
  t.deepEqual(more, {});
  t.deepEqual(Object.keys(data).sort(), [
    'foreground_height',
    'foreground_left',
    'foreground_top',
    'foreground_width',
    'result_b64',
  ]);
  t.deepEqual(Buffer.from(data.result_b64, 'base64'), RESULT);
  t.is(headers['x-credits-charged'], '1');
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
  test(`to Accept: ${accept} is ${isJson ? 'JSON' : 'the picture'}`, async t => {
    const { headers } = await client.form({}, { accept });
    const type = isJson ? 'application/json; charset=utf-8' : 'image/png';
    t.is(headers['content-type'], type);
  });
}

test('says where the subject is, in the result', async t => {
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
    t.truthy(await quiet.stores.jobs.succeed(claim, result, 60_000, {}));
    quiet.events.jobFinal(id);
  });
  const { headers } = await other.form({ size: 'preview' });
  const named = (part: string) => headers[`x-foreground-${part}`];
  t.deepEqual(['left', 'top', 'width', 'height'].map(named), ['3', '4', '50', '60']);
  // Without the bound it would be as large as the image.
  t.deepEqual([headers['x-width'], headers['x-height']], ['200', '150']);
  t.deepEqual([headers['x-max-width'], headers['x-max-height']], ['400', '300']);
  const replay = await other.form({ size: 'preview' }, { accept: 'application/json' });
  t.is(JSON.parse(replay.body).data.foreground_width, 50);
  const none = await other.form({ size: 'hd' });
  t.is(none.headers['x-foreground-width'], '0');
  await ended.stop();
  await quiet.close();
});

test('names no type where none is asked for', async t => {
  t.is((await client.form({ type_level: 'none' })).headers['x-type'], undefined);
  t.is((await client.form({ type_level: '2' })).headers['x-type'], 'other');
});

test('is in the format that was asked for', async t => {
  for (const [format, type, stored] of [
    ['auto', 'image/png', 'png'],
    ['png', 'image/png', 'png'],
    ['jpg', 'image/jpeg', 'jpeg'],
    ['webp', 'image/webp', 'webp'],
    ['zip', 'application/zip', 'zip'],
  ]) {
    const answer = await client.form({ image_file: image(), format: format ?? '' });
    t.is(answer.statusCode, 200, answer.body.slice(0, 200));
    t.is(answer.headers['content-type'], type);
    t.is(await formatOf(answer), stored);
  }
});

test('is the same for an image in every form, with its options before it and behind', async t => {
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

test('is made of what is not empty: clients send every field they know', async t => {
  const names = ['image_url', 'image_file_b64', 'bg_image_file', 'bg_color', 'roi', 'scale'];
  const empty = Object.fromEntries([...names, 'size', 'type', 'crop_margin'].map(n => [n, '']));
  for (const answer of [
    await client.form({ ...empty, image_file: IMAGE }),
    await client.form({ ...empty, bg_image_file: Buffer.alloc(0) }),
    await client.pairs({ ...empty, image_file: '', image_file_b64: BASE64 }),
    await client.json({ ...empty, image_file_b64: BASE64 }),
  ]) {
    t.is(answer.statusCode, 200, answer.body.slice(0, 200));
  }
});

test('names the fields that it knows nothing of, and is made without them', async t => {
  const extra = { tag: 'batch 1', image_filename: 'car.jpg' };
  for (const answer of [
    await client.form(extra),
    await client.pairs({ ...extra, image_file_b64: BASE64 }),
    await client.json({ ...extra, image_file_b64: BASE64 }),
  ]) {
    t.is(answer.statusCode, 200, answer.body.slice(0, 200));
    t.is(answer.headers['x-ignored-fields'], 'tag, image_filename');
  }
  const nested = { tag: { of: ['batch 1'] }, image_filename: [{}] };
  const json = await client.json({ ...nested, image_file_b64: BASE64 });
  t.is(json.statusCode, 200, json.body.slice(0, 200));
  t.is(json.headers['x-ignored-fields'], 'tag, image_filename');
  const hostile = await client.form({ 'a, b': '1', ['n'.repeat(100)]: '1', 'x\u00e9': '1' });
  t.is(hostile.headers['x-ignored-fields'], undefined);
});

test('is given to the key in either header, in any case', async t => {
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
    t.is(answer.statusCode, 200, answer.body);
  }
});

test('of the account has exactly the keys of a recorded one', async t => {
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

test('is described by a document of OpenAPI 3.1, served without a key', async t => {
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
