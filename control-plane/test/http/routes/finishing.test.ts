/** What is made of the cut-out, from the fields of a request to its job and its answers. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { BACKGROUND_BYTES_MAX } from '#contract/limits.ts';
import { backgroundBlob } from '../../../src/domain/job.ts';
import { FORM_TYPE, formOf, imagePart } from '../../support/forms.ts';
import { imageBody, pngHeader, useTestApp } from '../../support/test-app.ts';
import { ASYNC, assertRefused, SYNC, snapshot } from './refusals.ts';

const test = ava.serial;

const app = useTestApp(test, { syncWaitMs: 60_000 });

const SHOP = {
  background: '#FFF',
  crop: true,
  crop_margin: '5% 2px',
  scale: '85%',
  output_width: 1000,
  output_height: '1000',
  output_format: 'jpg',
};
const MEANT = {
  crop: { top: { percent: 5 }, right: { px: 2 }, bottom: { percent: 5 }, left: { px: 2 } },
  scalePercent: 85,
  outputWidth: 1000,
  outputHeight: 1000,
  background: { kind: 'colour', rgba: 0xffffffff },
};
const CALLBACK = {
  callback_url: 'https://example.com/hook',
  callback_secret: 'a secret of 24 characters',
};
const FILE = pngHeader(7, 5);
const SIGHT = {
  inputWidth: 2,
  inputHeight: 1,
  subject: {
    inputBox: { left: 1, top: 0, width: 1, height: 1 },
    resultBox: { left: 5, top: 6, width: 7, height: 8 },
    share: 0.5,
  },
};

const filePart = (body: Buffer) => imagePart(body, 'background_file');
const formWith = (body: Buffer) => formOf([imagePart(pngHeader(2, 1)), filePart(body)]);

async function taken(body: unknown, headers: Record<string, string> = {}) {
  const answer = await app.post(ASYNC, body, headers);
  assert.equal(answer.statusCode, 202, answer.payload);
  const job = await app.stores.jobs.find(answer.json().job_id);
  assert.ok(job);
  return job;
}

test('the fields arrive in the job, and the same values in other words are the same request', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const job = await taken(imageBody(SHOP), key);
  t.deepEqual([job.outputFormat, job.channels], ['jpeg', 'rgba']);
  t.deepEqual(job.finishing, MEANT);
  const reworded = {
    ...SHOP,
    background: 'white',
    crop: 'TRUE',
    crop_margin: '5% 2px 5.0% 2px',
    scale: '85.0%',
    position: 'center',
    output_width: '1000',
    channels: 'rgba',
    output_format: 'JPEG',
  };
  const again = await taken(imageBody(reworded), key);
  t.is(again.id, job.id);
  const other = await app.post(ASYNC, imageBody({ ...SHOP, scale: '84%' }), key);
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
});

test('what asks for nothing is the request without it', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const { id } = await taken(imageBody(), key);
  for (const nothing of [{ background: 'transparent' }, { crop: false }, { channels: 'rgba' }]) {
    const job = await taken(imageBody(nothing), key);
    t.deepEqual([job.id, job.finishing], [id, null]);
  }
});

test('a value that cannot be followed is refused by its name, before the callback', async t => {
  const wrong = { image_base64: '###', callback_url: 'x' };
  for (const [field, value] of Object.entries({
    background: 'sky blue',
    crop: 'yes',
    crop_margin: '1px',
    scale: '5%',
    position: 'left',
    size_max_megapixels: '0',
    output_width: '1e3',
    output_height: '',
    channels: 'rgb',
  })) {
    await assertRefused(t, app, { ...wrong, [field]: value }, 'INVALID_PARAMETER', field);
  }
  for (const background of [
    { background_url: 'ftp://a.example/' },
    { background_url: 'http://127.0.0.1/' },
    { background: 'red', background_url: 'https://a.example/' },
  ]) {
    await assertRefused(t, app, imageBody(background), 'INVALID_PARAMETER', 'background_url');
  }
  for (const format of [
    { output_format: 'jpeg', background: '#ffffff80' },
    { output_format: 'zip' },
  ]) {
    await assertRefused(t, app, imageBody(format), 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format');
  }
});

test('a frame that fields make larger than the image and than 50 megapixels is refused', async t => {
  const sized = (width: number, height: number, fields: Record<string, unknown>) => ({
    ...imageBody(fields),
    image_base64: pngHeader(width, height).toString('base64'),
  });
  const far = { crop: true, crop_margin: '10000px' };
  for (const [field, body] of [
    ['output_height', sized(1, 1, { output_height: 10_000 })],
    ['output_width', sized(1, 1, { output_width: 10_000, output_format: 'avif' })],
    ['crop_margin', sized(24, 18, far)],
    ['crop_margin', sized(24, 18, { ...far, output_format: 'avif' })],
    ['crop_margin', sized(24, 18, { ...far, channels: 'alpha', size_max_megapixels: 51 })],
    ['output_height', sized(24, 18, { ...far, scale: '10%', output_height: 9000 })],
  ] as const) {
    const detail = await assertRefused(t, app, body, 'INVALID_PARAMETER', field);
    t.regex(detail, /^\w+ makes a frame of \d+ pixels; at most 50000000,/);
  }
  await taken(sized(24, 18, { ...far, size_max_megapixels: 50 }));
  await taken(sized(10_000, 6000, { background: 'white' }));
  await taken(sized(10_000, 6000, { crop: true, crop_margin: '1%' }));
});

test('a background by its URL is to be downloaded, and counts by its text', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const url = 'https://backgrounds.example/b.jpg';
  const job = await taken(imageBody({ background_url: url }), key);
  t.deepEqual([job.state, job.background], ['accepted', { url, input: null }]);
  t.deepEqual(job.finishing, { background: { kind: 'picture' } });
  const other = await app.post(ASYNC, imageBody({ background_url: `${url}?` }), key);
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
});

test('a background as a file is stored beside the image, and counts by its bytes', async t => {
  const key = { ...FORM_TYPE, 'idempotency-key': randomUUID() };
  const job = await taken(formWith(FILE), key);
  const blob = backgroundBlob(job.id);
  const input = { blob, bytes: FILE.length, format: 'png', width: 7, height: 5 };
  t.deepEqual([job.state, job.background], ['ready', { url: null, input }]);
  t.deepEqual(Buffer.concat(await (await app.blobs.openRead(blob)).toArray()), FILE);
  const was = await snapshot(app);
  t.is((await taken(formWith(FILE), key)).id, job.id);
  const other = await app.post(ASYNC, formWith(pngHeader(7, 6)), key);
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
  t.deepEqual(await snapshot(app), was, 'nothing is left of what made no job');
});

test('a file that cannot be a background is refused, and nothing is left of it', async t => {
  const was = await snapshot(app);
  for (const [body, code] of [
    [Buffer.from('no picture'), 'UNSUPPORTED_IMAGE_FORMAT'],
    [pngHeader(5001, 5000), 'IMAGE_RESOLUTION_TOO_LARGE'],
    [Buffer.concat([FILE, Buffer.alloc(BACKGROUND_BYTES_MAX)]), 'IMAGE_TOO_LARGE'],
  ] as const) {
    const problem = (await app.post(ASYNC, formWith(body), FORM_TYPE)).json();
    t.is(problem.code, code);
    t.regex(problem.detail, /background/);
  }
  t.deepEqual(await snapshot(app), was);
});

test('the answer says what was seen, where something was made of the cut-out', async t => {
  const body = imageBody({ ...SHOP, ...CALLBACK });
  for (const [sight, subject] of [
    [SIGHT, { left: 1, top: 0, width: 1, height: 1, share: 0.5 }],
    [{ ...SIGHT, subject: null }, null],
    [null, null],
  ] as const) {
    app.sight = sight;
    const made = app.onSubmitted(id => app.succeedJob(id));
    const answer = await app.post(SYNC, body);
    await made.stop();
    const { job_id: id, result } = answer.json();
    t.is(answer.statusCode, 200, answer.payload);
    t.deepEqual([result.format, result.contentType], ['jpeg', 'image/jpeg']);
    t.deepEqual(result.subject, subject);
    t.deepEqual((await app.get(`${ASYNC}/${id}`)).json().result, result);
  }
  app.sight = SIGHT;
  const made = app.onSubmitted(id => app.succeedJob(id));
  const plain = (await app.post(SYNC, imageBody())).json();
  await made.stop();
  t.false('subject' in plain.result);
});
