/** A file in and a picture out in one request, through the real programs and a real model. */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import sharp from 'sharp';
import { ROOT, type RunningService, startService } from '../support/running-service.ts';

const PHOTO = readFileSync(path.join(ROOT, 'docs/images/demo.jpg'));

let service: RunningService;
before(async () => {
  service = await startService();
});
after(() => service?.close());

interface Sent {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer | FormData;
  readonly query?: string;
}

async function ask({ headers, body, query = '' }: Sent, key: string) {
  const answer = await fetch(`${service.baseUrl}/v1/matting${query}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'idempotency-key': key, ...headers },
    body,
  });
  const picture = Buffer.from(await answer.arrayBuffer());
  assert.equal(answer.status, 200, picture.toString('latin1').slice(0, 500));
  return { picture, header: (name: string) => String(answer.headers.get(name)) };
}

test('the picture of one request is the file behind its link, and one credit', async () => {
  const { available } = await service.credits();
  const sent = {
    headers: { 'content-type': 'application/json', accept: 'image/webp' },
    body: JSON.stringify({ image_base64: PHOTO.toString('base64') }),
  };
  const { picture, header } = await ask(sent, randomUUID());
  assert.equal(header('content-type'), 'image/webp');
  assert.equal(header('content-length'), String(picture.length));
  const sha256 = createHash('sha256').update(picture).digest('hex');
  assert.equal(header('etag'), `"${sha256}"`);
  assert.equal(header('x-credits-charged'), '1');
  assert.match(header('server-timing'), /\binfer;dur=/);
  const { width, height, channels } = await sharp(picture).metadata();
  assert.deepEqual([width, height, channels], [1200, 900, 4]);

  const [, statusUrl] = /^<([^>]+)>; rel="describedby"/.exec(header('link')) ?? [];
  const { body } = await service.get(String(statusUrl));
  assert.equal(body.job_id, header('x-job-id'));
  assert.equal(body.result?.url, header('content-location'));
  const link = await fetch(header('content-location'));
  assert.deepEqual(Buffer.from(await link.arrayBuffer()), picture);
  assert.equal((await service.credits()).available, available - 1);
});

test('a file in, the picture out: in a form, as the body itself, one request of one credit', async () => {
  const { available } = await service.credits();
  const key = randomUUID();
  const form = new FormData();
  form.set('output_format', 'avif');
  form.set('image_file', new Blob([PHOTO], { type: 'image/jpeg' }), 'photo.jpg');
  const first = await ask({ headers: { accept: 'image/*' }, body: form }, key);
  assert.equal(first.header('content-type'), 'image/avif');
  assert.equal(first.header('x-credits-charged'), '1');
  const raw = {
    headers: { accept: 'image/avif', 'content-type': 'image/jpeg' },
    body: PHOTO,
    query: '?output_format=avif',
  };
  const again = await ask(raw, key);
  assert.equal(again.header('idempotent-replayed'), 'true');
  assert.equal(again.header('x-job-id'), first.header('x-job-id'));
  assert.deepEqual(again.picture, first.picture);
  assert.equal((await service.credits()).available, available - 1);
});
