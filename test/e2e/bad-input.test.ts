/**
 * Broken pictures through the whole service: each gets its contract error, no engine dies, no
 * credit is lost, and the service goes on. What is refused before a node has it: the tests of
 * sources and of the contract.
 */
import assert from 'node:assert/strict';
import ava, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { openSource } from '../../control-plane/test/sources/loopback-source.ts';
import { descendantsOf, type RunningService, startService } from '../support/running-service.ts';

const test = ava.serial;

let service: RunningService;
let engines: number[];
let photo: Buffer;

test.before(async () => {
  photo = await sharp({
    create: { width: 320, height: 240, channels: 3, background: { r: 200, g: 90, b: 40 } },
  })
    .composite([{ input: Buffer.from(disc()), raw: { width: 120, height: 120, channels: 4 } }])
    .jpeg({ quality: 95 })
    .toBuffer();
  service = await startService();
  engines = enginePids();
  assert.ok(engines.length > 0);
});

test.after.always(() => service?.close());

function enginePids(): number[] {
  return descendantsOf(service.process.pid ?? 0)
    .filter(({ command }) => command.includes('engine-child'))
    .map(({ pid }) => pid);
}

function disc(): Uint8Array {
  const pixels = new Uint8Array(120 * 120 * 4);
  for (let i = 0; i < 120 * 120; i++) {
    const inside = Math.hypot((i % 120) - 60, Math.floor(i / 120) - 60) < 55;
    pixels.set(inside ? [20, 60, 160, 255] : [0, 0, 0, 0], i * 4);
  }
  return pixels;
}

async function refused(
  t: ExecutionContext,
  body: unknown,
  status: number,
  code: string,
): Promise<void> {
  const before = await service.credits();
  const answer = await service.post(body);
  const text = JSON.stringify(answer.body);
  t.is(answer.status, status, text);
  t.is(answer.body.code, code, text);
  t.regex(answer.headers.get('content-type') ?? '', /^application\/problem\+json/);
  t.truthy(answer.headers.get('x-request-id'));
  t.deepEqual(await service.credits(), before, 'no credit moved');
}

const base64 = (bytes: Uint8Array) => ({ image_base64: Buffer.from(bytes).toString('base64') });

test('truncated images fail, and the credit comes back', async t => {
  // Noise, so that half the file is half the picture and not an empty tail.
  const noise = Buffer.from(Array.from({ length: 96 * 96 * 3 }, (_, i) => (i * 7919) % 251));
  const picture = sharp(noise, { raw: { width: 96, height: 96, channels: 3 } });
  const files = await Promise.all([
    picture.clone().jpeg().toBuffer(),
    picture.clone().png().toBuffer(),
    picture.clone().webp().toBuffer(),
    picture.clone().avif().toBuffer(),
  ]);
  for (const file of files) {
    await refused(t, base64(file.subarray(0, file.length >> 1)), 422, 'PROCESSING_FAILED');
  }
});

test('one pixel is an image', async t => {
  const pixel = sharp({ create: { width: 1, height: 1, channels: 3, background: '#468' } });
  const { status, body } = await service.post(base64(await pixel.png().toBuffer()));
  t.is(status, 200, JSON.stringify(body));
  t.deepEqual([body.result?.width, body.result?.height], [1, 1]);
});

test('a picture behind a URL, and one that is not there', async t => {
  await using pictures = await openSource((request, response) => {
    if (request.url === '/photo.jpg') response.end(photo);
    else response.writeHead(404).end('nothing');
  });
  const { status, body } = await service.post({ image_url: `${pictures.url}/photo.jpg` });
  t.is(status, 200, JSON.stringify(body));
  await refused(t, { image_url: `${pictures.url}/404` }, 400, 'IMAGE_DOWNLOAD_FAILED');
});

test('after all that: no engine died and a photo is cut out', async t => {
  t.deepEqual(enginePids(), engines);
  const { status, body } = await service.post(base64(photo));
  t.is(status, 200, JSON.stringify(body));
  const credits = await service.credits();
  t.is(credits.reserved, 0);
});
