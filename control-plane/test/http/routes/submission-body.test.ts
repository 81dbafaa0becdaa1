/** What a submission's body may say: syntax, fields, Base64, the image's header. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { pngHeader, useTestApp } from '../../support/test-app.ts';
import { ASYNC, assertRefused, png } from './refusals.ts';

const test = ava.serial;

const app = useTestApp(test, { syncWaitMs: 60_000 });

const GIF = Buffer.from('47494638396101000100800000', 'hex').toString('base64');

test('the body: syntax before fields before the image', async t => {
  await assertRefused(t, app, '', 'INVALID_REQUEST');
  await assertRefused(t, app, '{"image_base64":"###"', 'INVALID_REQUEST');
  await assertRefused(t, app, '{"image_base64":"###","oops":1}', 'INVALID_REQUEST', 'oops');
  const twice = '{"image_base64":"###","image_base64":""}';
  await assertRefused(t, app, twice, 'INVALID_REQUEST', 'image_base64');
  await assertRefused(t, app, '{"image_base64":"###"}{', 'INVALID_REQUEST');
  const wrong = { image_base64: '###', output_format: 'gif', callback_url: 'x' };
  await assertRefused(t, app, { ...wrong, image_url: '' }, 'INVALID_IMAGE_SOURCE', 'image_url');
  await assertRefused(t, app, wrong, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format');
  const png = { ...wrong, output_format: 'png' };
  await assertRefused(t, app, png, 'INVALID_CALLBACK', 'callback_secret');
  await assertRefused(t, app, { image_base64: '###' }, 'INVALID_IMAGE_SOURCE', 'image_base64');
});

test('data URIs', async t => {
  const image = png(2, 2);
  for (const uri of ['data:', `data:image/png,${image}`, 'data:image/png;base64,']) {
    await assertRefused(t, app, { image_base64: uri }, 'INVALID_IMAGE_SOURCE', 'image_base64');
  }
  for (const prefix of ['data:;base64,', 'DATA:text/html;charset=x;BASE64,']) {
    const answer = await app.post(ASYNC, { image_base64: prefix + image });
    t.is(answer.statusCode, 202, prefix);
  }
});

test('bytes that are not an image of the contract', async t => {
  await assertRefused(t, app, { image_base64: GIF }, 'UNSUPPORTED_IMAGE_FORMAT');
  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>').toString('base64');
  const uri = `data:image/png;base64,${svg}`;
  await assertRefused(t, app, { image_base64: uri }, 'UNSUPPORTED_IMAGE_FORMAT');
  await assertRefused(t, app, { image_base64: 'AA==' }, 'UNSUPPORTED_IMAGE_FORMAT');
});

test('pixels at the bounds and over', async t => {
  await assertRefused(t, app, { image_base64: png(10_001, 1) }, 'IMAGE_RESOLUTION_TOO_LARGE');
  await assertRefused(t, app, { image_base64: png(1, 10_001) }, 'IMAGE_RESOLUTION_TOO_LARGE');
  const answer = await app.post(ASYNC, { image_base64: png(10_000, 10_000) });
  t.is(answer.statusCode, 202);
  const { input } = (await app.stores.jobs.find(answer.json().job_id))!;
  t.deepEqual(input, {
    blob: `inputs/${answer.json().job_id}`,
    bytes: 33,
    format: 'png',
    width: 10_000,
    height: 10_000,
  });
});

test('Base64 as encoders write it: no padding, line ends, escaped slashes', async t => {
  const bytes = Buffer.concat([pngHeader(4, 3), Buffer.from('??>>??>>')]);
  const text = bytes.toString('base64');
  t.true(text.includes('/') && text.includes('+') && text.endsWith('='));
  const escaped = text.replaceAll('/', '\\/').replaceAll('+', '\\u002B');
  const ways = [
    `"${text}"`,
    `"${text.replaceAll('=', '')}"`,
    `"${escaped}"`,
    JSON.stringify(text.replaceAll(/.{7}/g, '$&\r\n')),
    JSON.stringify(`data:image/webp;base64,${text}`),
  ];
  const key = { 'idempotency-key': randomUUID() };
  for (const way of ways) {
    const answer = await app.post(ASYNC, `{ "image_base64" : ${way} }`, key);
    t.is(answer.statusCode, 202, answer.payload);
    const stream = await app.blobs.openRead(`inputs/${answer.json().job_id}`);
    t.deepEqual(Buffer.concat(await stream.toArray()), bytes);
  }
});
