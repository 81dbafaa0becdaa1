/**
 * Hostile and broken input through the whole service: each gets its contract error, no engine dies,
 * no credit is lost, and the service goes on.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import sharp from 'sharp';
import { IMAGE_BYTES_MAX } from '#contract/limits.ts';
import { descendantsOf, type RunningService, startService } from '../support/running-service.ts';

let service: RunningService;
let engines: number[];
let photo: Buffer;
const servers: Server[] = [];

before(async () => {
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

after(async () => {
  for (const server of servers) server.close();
  await service?.close();
});

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

async function refused(body: unknown, status: number, code: string): Promise<void> {
  const before = await service.credits();
  const answer = await service.post(body);
  const text = JSON.stringify(answer.body);
  assert.equal(answer.status, status, text);
  assert.equal(answer.body.code, code, text);
  assert.match(answer.headers.get('content-type') ?? '', /^application\/problem\+json/);
  assert.ok(answer.headers.get('x-request-id'));
  assert.deepEqual(await service.credits(), before, 'no credit moved');
}

const base64 = (bytes: Uint8Array) => ({ image_base64: Buffer.from(bytes).toString('base64') });

test('bodies that are no request', async () => {
  await refused('', 400, 'INVALID_REQUEST');
  await refused('{"image_base64":', 400, 'INVALID_REQUEST');
  await refused('[]', 400, 'INVALID_REQUEST');
  await refused({ ...base64(photo), callbak_url: 'x' }, 400, 'INVALID_REQUEST');
  await refused({ image_base64: 7 }, 400, 'INVALID_REQUEST');
  await refused({}, 400, 'INVALID_IMAGE_SOURCE');
  await refused(
    { ...base64(photo), image_url: 'https://example.com/a.jpg' },
    400,
    'INVALID_IMAGE_SOURCE',
  );
  await refused({ image_base64: 'not*base64' }, 400, 'INVALID_IMAGE_SOURCE');
  await refused({ image_base64: '' }, 400, 'INVALID_IMAGE_SOURCE');
  await refused({ ...base64(photo), output_format: 'gif' }, 400, 'UNSUPPORTED_OUTPUT_FORMAT');
  const half = { ...base64(photo), callback_url: 'https://example.com/x' };
  await refused(half, 400, 'INVALID_CALLBACK');
  await refused({ ...half, callback_secret: 's'.repeat(23) }, 400, 'INVALID_CALLBACK');
});

test('bytes that are no supported image', async () => {
  const gifs = await Promise.all([20, 30].map(size => solid(size).gif().toBuffer()));
  const text = Buffer.from('this is text that was called photo.png');
  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>');
  const pdf = Buffer.from('%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer<<>>\n%%EOF\n');
  const tiff = await solid(20).tiff().toBuffer();
  for (const bytes of [text, svg, pdf, tiff, ...gifs]) {
    await refused(base64(bytes), 400, 'UNSUPPORTED_IMAGE_FORMAT');
  }
});

test('animations', async () => {
  const frames = Buffer.concat([Buffer.alloc(16 * 16 * 3, 10), Buffer.alloc(16 * 16 * 3, 200)]);
  const animated = sharp(frames, {
    raw: { width: 16, height: 32, channels: 3, pageHeight: 16 },
  });
  await refused(base64(await animated.clone().webp().toBuffer()), 400, 'UNSUPPORTED_IMAGE_FORMAT');
  await refused(base64(await animated.clone().gif().toBuffer()), 400, 'UNSUPPORTED_IMAGE_FORMAT');
});

test('too many pixels, too many bytes', async () => {
  const wide = sharp({ create: { width: 10_001, height: 1, channels: 3, background: 'red' } });
  await refused(base64(await wide.png().toBuffer()), 400, 'IMAGE_RESOLUTION_TOO_LARGE');
  await refused(base64(avifClaiming(17_000, 17_000)), 400, 'IMAGE_RESOLUTION_TOO_LARGE');
  const tooLarge = Buffer.alloc(IMAGE_BYTES_MAX + 1);
  photo.copy(tooLarge);
  await refused(base64(tooLarge), 413, 'IMAGE_TOO_LARGE');
});

test('truncated images fail, and the credit comes back', async () => {
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
    await refused(base64(file.subarray(0, file.length >> 1)), 422, 'PROCESSING_FAILED');
  }
});

test('one pixel is an image', async () => {
  const { status, body } = await service.post(base64(await solid(1).png().toBuffer()));
  assert.equal(status, 200, JSON.stringify(body));
  assert.deepEqual([body.result?.width, body.result?.height], [1, 1]);
});

test('URLs that misbehave', async () => {
  const url = await hostile();
  const ok = await service.post({ image_url: `${url}/photo.jpg` });
  assert.equal(ok.status, 200, JSON.stringify(ok.body));
  await refused({ image_url: `${url}/404` }, 400, 'IMAGE_DOWNLOAD_FAILED');
  await refused({ image_url: `${url}/loop` }, 400, 'IMAGE_DOWNLOAD_FAILED');
  await refused({ image_url: `${url}/html` }, 400, 'UNSUPPORTED_IMAGE_FORMAT');
  await refused({ image_url: `${url}/short` }, 400, 'IMAGE_DOWNLOAD_FAILED');
  await refused({ image_url: `${url}/claims-100-mb` }, 413, 'IMAGE_TOO_LARGE');
  await refused({ image_url: `${url}/endless` }, 413, 'IMAGE_TOO_LARGE');
  await refused({ image_url: 'ftp://127.0.0.1/a' }, 400, 'INVALID_IMAGE_SOURCE');
});

test('a URL that hangs ends as a download that may be tried again', {
  timeout: 120_000,
}, async () => {
  const url = await hostile();
  const before = await service.credits();
  const { status, body } = await service.post({ image_url: `${url}/hang` });
  assert.equal(status, 400, JSON.stringify(body));
  assert.equal(body.code, 'IMAGE_DOWNLOAD_FAILED');
  assert.equal(body.retryable, true);
  assert.deepEqual(await service.credits(), before);
});

test('after all that: no engine died and a photo is cut out', async () => {
  assert.deepEqual(enginePids(), engines);
  const { status, body } = await service.post(base64(photo));
  assert.equal(status, 200, JSON.stringify(body));
  const credits = await service.credits();
  assert.equal(credits.reserved, 0);
});

function solid(size: number) {
  return sharp({ create: { width: size, height: size, channels: 3, background: '#468' } });
}

/** A real AVIF whose image spatial extents (ispe) were raised: the header lies, the pixels are few. */
function avifClaiming(width: number, height: number): Buffer {
  const box = (type: string, ...parts: Uint8Array[]) => {
    const body = Buffer.concat(parts);
    const head = Buffer.alloc(8);
    head.writeUInt32BE(body.length + 8, 0);
    head.write(type, 4, 'latin1');
    return Buffer.concat([head, body]);
  };
  const full = (...bytes: number[]) => Buffer.from([0, 0, 0, 0, ...bytes]);
  const extents = Buffer.alloc(12);
  extents.writeUInt32BE(width, 4);
  extents.writeUInt32BE(height, 8);
  const item = Buffer.concat([full(0, 1, 0, 0), Buffer.from('av01\0', 'latin1')]);
  item[0] = 2; // infe version 2
  const meta = box(
    'meta',
    full(),
    box('hdlr', full(0, 0, 0, 0), Buffer.from('pict', 'latin1'), Buffer.alloc(13)),
    box('pitm', full(0, 1)),
    box('iinf', full(0, 1), box('infe', item)),
    box('iprp', box('ipco', box('ispe', extents)), box('ipma', full(0, 0, 0, 1, 0, 1, 1, 1))),
  );
  const brands = Buffer.from('avif\0\0\0\0avifmif1miaf', 'latin1');
  return Buffer.concat([box('ftyp', brands), meta, box('mdat', Buffer.alloc(64))]);
}

async function hostile(): Promise<string> {
  const server = createServer((request, response) => {
    switch (request.url) {
      case '/photo.jpg':
        return response.end(photo);
      case '/loop':
        return response.writeHead(302, { location: '/loop' }).end();
      case '/html':
        return response
          .writeHead(200, { 'content-type': 'image/png' })
          .end('<html>no picture</html>');
      case '/hang':
        return;
      case '/short':
        response.writeHead(200, { 'content-length': photo.length + 1000 });
        response.write(photo);
        return response.socket?.end();
      case '/claims-100-mb':
        response.writeHead(200, { 'content-length': 100_000_000 });
        return response.write(photo);
      case '/endless':
        response.writeHead(200);
        return pour(response);
      default:
        return response.writeHead(404).end('nothing');
    }
  });
  servers.push(server.listen(0, '127.0.0.1'));
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function pour(response: import('node:http').ServerResponse): void {
  const chunk = Buffer.alloc(1 << 20);
  const more = () => {
    while (!response.destroyed && response.write(chunk));
  };
  response.on('drain', more);
  more();
}
