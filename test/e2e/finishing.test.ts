/**
 * A file in and a picture out in one request, and finishing from the fields of a request to the
 * picture, through the real programs and a real model.
 */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import sharp from 'sharp';
import {
  type LoopbackSource,
  openSource,
} from '../../control-plane/test/sources/loopback-source.ts';
import {
  ROOT,
  type RunningService,
  startService,
  type WireJob,
} from '../support/running-service.ts';

const test = ava.serial;

const PHOTO = readFileSync(path.join(ROOT, 'docs/images/demo.jpg'));
const [WIDTH, HEIGHT] = [1200, 900];
/** JPEG changes colours by a little. */
const NEAR = 12;

type Subject = Readonly<Record<'left' | 'top' | 'width' | 'height' | 'share', number>>;
type Colour = readonly [red: number, green: number, blue: number];

let service: RunningService;
let pictures: LoopbackSource;
let blue: Buffer;

test.before(async () => {
  blue = await plain([0, 0, 255], 64, 48);
  pictures = await openSource(({ url }, response) => {
    const found = url === '/photo' ? PHOTO : url === '/blue' ? blue : undefined;
    response.writeHead(found === undefined ? 404 : 200).end(found);
  });
  service = await startService();
});
test.after.always(async () => {
  await pictures?.[Symbol.asyncDispose]();
  await service?.close();
});

function plain([r, g, b]: Colour, width: number, height: number): Promise<Buffer> {
  const background = { r, g, b };
  return sharp({ create: { width, height, channels: 3, background } })
    .png()
    .toBuffer();
}

interface Made {
  readonly job: WireJob;
  readonly subject: Subject | null | undefined;
  readonly file: Buffer;
}

async function made(fields: Readonly<Record<string, string | Blob>>): Promise<Made> {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  if (!('image_url' in fields)) form.set('image_file', new Blob([PHOTO]), 'photo.jpg');
  const answer = await fetch(`${service.baseUrl}/v1/matting`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'idempotency-key': randomUUID() },
    body: form,
  });
  const job = (await answer.json()) as WireJob;
  const { result } = job;
  if (result === undefined) return { job, subject: undefined, file: Buffer.alloc(0) };
  const file = Buffer.from(await (await fetch(result.url)).arrayBuffer());
  return { job, subject: (result as { subject?: Subject | null }).subject, file };
}

/** RGB, and where no pixel is near to `background`: the subject. */
async function pixelsOf(file: Buffer, background: Colour) {
  const { data, info } = await sharp(file)
    .removeAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true });
  const { width, height } = info;
  const isBackground = (x: number, y: number) => {
    const at = (y * width + x) * 3;
    return background.every(
      (value, channel) => Math.abs(data.readUInt8(at + channel) - value) < NEAR,
    );
  };
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (isBackground(x, y)) continue;
      left = Math.min(left, x);
      right = Math.max(right, x + 1);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y + 1);
    }
  }
  const corners = [isBackground(0, 0), isBackground(width - 1, height - 1)];
  return { width, height, corners, box: { left, top, width: right - left, height: bottom - top } };
}

test('white, square, the subject 85 % of the frame, as JPEG: in one call', async t => {
  const { job, subject, file } = await made({
    crop: 'true',
    scale: '85%',
    output_width: '500',
    output_height: '500',
    background: 'white',
    output_format: 'jpg',
  });
  t.is(job.status, 'succeeded', JSON.stringify(job));
  t.deepEqual([job.result?.contentType, job.credits.charged], ['image/jpeg', 1]);
  const { format, hasAlpha, chromaSubsampling } = await sharp(file).metadata();
  t.deepEqual([format, hasAlpha, chromaSubsampling], ['jpeg', false, '4:4:4']);
  const { width, height, corners, box } = await pixelsOf(file, [255, 255, 255]);
  t.deepEqual([width, height, corners], [500, 500, [true, true]]);
  const side = Math.max(box.width, box.height);
  t.true(Math.abs(side - 0.85 * 500) <= 8, `the subject is ${side} of 500 pixels`);
  t.true(
    Math.abs(box.left + box.width / 2 - 250) <= 8,
    `${JSON.stringify(box)} is not in the middle`,
  );
  assert.ok(subject);
  t.true(subject.left + subject.width <= WIDTH && subject.top + subject.height <= HEIGHT);
  t.true(subject.share > 0.05 && subject.share < 0.9, `a share of ${subject.share}`);
  const ratio = subject.width / subject.height;
  t.true(Math.abs(ratio - box.width / box.height) < 0.05, 'its proportions are kept');
});

test('a picture behind the subject: as a file, and by its URL beside image_url', async t => {
  const red = await plain([255, 0, 0], 40, 90);
  const byFile = await made({ background_file: new Blob([red], { type: 'image/png' }) });
  const byUrl = await made({
    image_url: `${pictures.url}/photo`,
    background_url: `${pictures.url}/blue`,
  });
  t.deepEqual(
    pictures.requests.map(request => request.split(' ')[1]),
    ['/photo', '/blue'],
  );
  for (const [{ job, file, subject }, colour] of [
    [byFile, [255, 0, 0]],
    [byUrl, [0, 0, 255]],
  ] as const) {
    t.is(job.status, 'succeeded', JSON.stringify(job));
    const { width, height, corners } = await pixelsOf(file, colour);
    t.deepEqual([width, height, corners], [WIDTH, HEIGHT, [true, true]]);
    const { isOpaque } = await sharp(file).stats();
    t.truthy(isOpaque);
    t.truthy(subject);
  }
});

test('the matte alone, the same as the alpha of the cut-out', async t => {
  const { file } = await made({ channels: 'alpha' });
  const plainOne = await made({});
  t.false('subject' in (plainOne.job.result ?? {}));
  const grey = await sharp(file).metadata();
  t.deepEqual([grey.width, grey.height, grey.hasAlpha], [WIDTH, HEIGHT, false]);
  const matte = await sharp(file).extractChannel(0).raw().toBuffer();
  const alpha = await sharp(plainOne.file).extractChannel(3).raw().toBuffer();
  t.deepEqual(matte, alpha);
});

test('a background that cannot be had or decoded ends the job and costs nothing', async t => {
  const { available } = await service.credits();
  const gone = await made({ background_url: `${pictures.url}/gone` });
  t.is(gone.job.code, 'IMAGE_DOWNLOAD_FAILED');
  t.regex(gone.job.detail ?? '', /background/);
  const cut = (await plain([1, 2, 3], 500, 500)).subarray(0, 80);
  const broken = await made({ background_file: new Blob([Uint8Array.from(cut)]) });
  t.is(broken.job.code, 'INVALID_PARAMETER');
  t.deepEqual(await service.credits(), { available, reserved: 0 });
});

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

test('the picture of one request is the file behind its link, and one credit', async t => {
  const { available } = await service.credits();
  const sent = {
    headers: { 'content-type': 'application/json', accept: 'image/webp' },
    body: JSON.stringify({ image_base64: PHOTO.toString('base64') }),
  };
  const { picture, header } = await ask(sent, randomUUID());
  t.is(header('content-type'), 'image/webp');
  t.is(header('content-length'), String(picture.length));
  const sha256 = createHash('sha256').update(picture).digest('hex');
  t.is(header('etag'), `"${sha256}"`);
  t.is(header('x-credits-charged'), '1');
  t.regex(header('server-timing'), /\binfer;dur=/);
  const { width, height, channels } = await sharp(picture).metadata();
  t.deepEqual([width, height, channels], [1200, 900, 4]);

  const [, statusUrl] = /^<([^>]+)>; rel="describedby"/.exec(header('link')) ?? [];
  const { body } = await service.get(String(statusUrl));
  t.is(body.job_id, header('x-job-id'));
  t.is(body.result?.url, header('content-location'));
  const link = await fetch(header('content-location'));
  t.deepEqual(Buffer.from(await link.arrayBuffer()), picture);
  t.is((await service.credits()).available, available - 1);
});

test('a file in, the picture out: in a form, as the body itself, one request of one credit', async t => {
  const { available } = await service.credits();
  const key = randomUUID();
  const form = new FormData();
  form.set('output_format', 'avif');
  form.set('image_file', new Blob([PHOTO], { type: 'image/jpeg' }), 'photo.jpg');
  const first = await ask({ headers: { accept: 'image/*' }, body: form }, key);
  t.is(first.header('content-type'), 'image/avif');
  t.is(first.header('x-credits-charged'), '1');
  const raw = {
    headers: { accept: 'image/avif', 'content-type': 'image/jpeg' },
    body: PHOTO,
    query: '?output_format=avif',
  };
  const again = await ask(raw, key);
  t.is(again.header('idempotent-replayed'), 'true');
  t.is(again.header('x-job-id'), first.header('x-job-id'));
  t.deepEqual(again.picture, first.picture);
  t.is((await service.credits()).available, available - 1);
});
