import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { createServer } from 'node:tls';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { type FetchLimits, GuardedFetch } from '@matting/http/outgoing/guarded-fetch.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import { openRawSource, openSource } from '@matting/http/test/loopback-source.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { BACKGROUND_BYTES_MAX, IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import { openDirectoryBlobStore } from '@matting/storage/directory-store.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import { pngHeader } from '../test/support/test-app.ts';
import { ImageFetcher } from './fetch-image.ts';

const test = ava.serial;

const MIB = 1024 * 1024;
const FILE = Buffer.concat([pngHeader(40, 30), Buffer.from('the rest of a picture')]);
const GZIP = gzipSync(FILE);
/** A gzip member of 64 KiB that unpacks to nothing: an extra field fills it. */
const HOLLOW = Buffer.concat([
  Buffer.from('1f8b0804000000000003ffff', 'hex'),
  Buffer.alloc(65_535),
  Buffer.from('03000000000000000000', 'hex'),
]);

const root = await temporaryFolder({ teardown: test.after.always });
let store: BlobStore;
test.before(async () => {
  store = await openDirectoryBlobStore(root);
});

interface Fetched {
  /** `delivered`, or the error's code; `(retryable)` follows it. */
  readonly end: string;
  readonly detail: string;
  readonly file: Buffer;
  readonly cause?: unknown;
}

interface Way {
  readonly signal?: AbortSignal | undefined;
  readonly kind?: 'image' | 'background';
  readonly allowPrivateAddresses?: boolean;
}

function fetcherWith(limits: Partial<FetchLimits>, allowPrivateAddresses = true): ImageFetcher {
  const guard = new OutgoingGuard({ policy: { fetchPorts: [], allowPrivateAddresses } });
  return new ImageFetcher(new GuardedFetch(guard, limits));
}

async function fetched(
  url: string,
  limits: Partial<FetchLimits> = {},
  { signal = new AbortController().signal, kind = 'image', allowPrivateAddresses }: Way = {},
): Promise<Fetched> {
  const fetcher = fetcherWith(limits, allowPrivateAddresses);
  const writer = await store.createWriter('inputs/fetched');
  try {
    await fetcher.fetchImage(url, { writer, accountId: 'account', signal, kind });
    const file = Buffer.from(await writer.readAt(0, writer.bytesWritten));
    return { end: 'delivered', detail: '', file };
  } catch (error) {
    assert.ok(error instanceof ContractError, String(error));
    const { code, retryable, message: detail } = error;
    // Callers see no address and no system error.
    assert.doesNotMatch(detail, /127\.0\.0\.1|ECONN|localhost/);
    const cause = ((error.cause as Error)?.cause as NodeJS.ErrnoException)?.code;
    return { end: retryable ? `${code} (retryable)` : code, detail, file: Buffer.alloc(0), cause };
  } finally {
    await writer.abort();
  }
}

async function from(handler: RequestListener, limits: Partial<FetchLimits> = {}, way: Way = {}) {
  await using source = await openSource(handler);
  return await fetched(`${source.url}/a.png`, limits, way);
}

async function answering(...pieces: (string | Buffer)[]): Promise<Fetched> {
  await using source = await openRawSource(socket => {
    socket.end(Buffer.concat(pieces.map(piece => Buffer.from(piece as string, 'latin1'))));
  });
  return await fetched(`${source.url}/a.png`);
}

function encoded(body: Buffer, ...codings: string[]): Promise<Fetched> {
  return from((_request, response) => {
    response.setHeader('content-encoding', codings).setHeader('content-length', body.length);
    response.end(body);
  });
}

function isFile(t: ExecutionContext, { end, file, detail }: Fetched, what: string): void {
  t.deepEqual([end, file.equals(FILE)], ['delivered', true], `${what}: ${detail}`);
}

test('a Content-Encoding that a bucket stored by mistake changes nothing', async t => {
  for (const codings of [
    ...['aws-chunked', 'UTF-8', 'utf8', 'base64', 'binary', 'none', 'identity', '', 'null'],
    ...['identity, identity', 'aws-chunked,', ',', 'image/png', 'x-aws-chunked'],
  ]) {
    isFile(t, await encoded(FILE, codings), codings);
  }
  isFile(t, await encoded(FILE, 'aws-chunked', 'identity'), 'two headers');
});

test('gzip is unpacked, also in gzip and beside a token that means nothing', async t => {
  for (const coding of ['gzip', 'x-gzip', 'GZip', 'gzip, aws-chunked', 'aws-chunked,gzip']) {
    isFile(t, await encoded(GZIP, coding), coding);
  }
  isFile(t, await encoded(gzipSync(GZIP), 'gzip, gzip'), 'twice');
  isFile(t, await encoded(gzipSync(GZIP), 'gzip', 'x-gzip'), 'twice, by two headers');
  const parts = Buffer.concat([gzipSync(FILE.subarray(0, 20)), gzipSync(FILE.subarray(20))]);
  isFile(t, await encoded(parts, 'gzip'), 'of two members');
  isFile(t, await encoded(Buffer.concat([GZIP, Buffer.alloc(512)]), 'gzip'), 'padded with zeros');
  isFile(
    t,
    await answering('HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n', GZIP),
    'no length',
  );
});

test('gzip that is damaged, incomplete or followed by something is refused for good', async t => {
  for (const [what, body] of Object.entries({
    none: FILE,
    empty: Buffer.alloc(0),
    'cut in its header': GZIP.subarray(0, 6),
    'cut in its data': GZIP.subarray(0, 30),
    'cut in its checksum': GZIP.subarray(0, -4),
    'another checksum': Buffer.concat([GZIP.subarray(0, -8), Buffer.alloc(8, 1)]),
    'followed by text': Buffer.concat([GZIP, Buffer.from('<!-- cached -->')]),
    'followed by half a member': Buffer.concat([GZIP, GZIP.subarray(0, 20)]),
  })) {
    const { end, detail } = await encoded(body, 'gzip');
    t.is(end, 'IMAGE_DOWNLOAD_FAILED', what);
    t.regex(detail, /gzip/, what);
  }
  t.is((await encoded(GZIP, 'gzip, gzip')).end, 'IMAGE_DOWNLOAD_FAILED', 'packed once');
  t.is((await encoded(gzipSync(GZIP), 'gzip')).end, 'UNSUPPORTED_IMAGE_FORMAT', 'packed twice');
});

test('a connection that breaks in gzip may be tried again', async t => {
  const head = `HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ${GZIP.length}\r\n`;
  for (const more of ['', 'connection: close\r\n']) {
    const { end } = await answering(`${head}${more}\r\n`, GZIP.subarray(0, 30));
    t.is(end, 'IMAGE_DOWNLOAD_FAILED (retryable)', more);
  }
});

test('the limit holds for received and for unpacked bytes, at each step', async t => {
  const zeros = Buffer.alloc(IMAGE_BYTES_MAX - FILE.length);
  const whole = await encoded(gzipSync(Buffer.concat([FILE, zeros])), 'gzip');
  t.deepEqual([whole.end, whole.file.length], ['delivered', IMAGE_BYTES_MAX]);
  const bomb = gzipSync(Buffer.concat([FILE, zeros, Buffer.from('x')]));
  t.true(bomb.length < MIB);
  t.is((await encoded(bomb, 'gzip')).end, 'IMAGE_TOO_LARGE');
  t.is((await encoded(gzipSync(bomb), 'gzip, gzip')).end, 'IMAGE_TOO_LARGE');
  // Unpacks twice to nothing.
  const hollow = gzipSync(Buffer.concat(Array(IMAGE_BYTES_MAX / 65_536 + 1).fill(HOLLOW)));
  t.true(hollow.length < MIB);
  t.is((await encoded(hollow, 'gzip, gzip')).end, 'IMAGE_TOO_LARGE');
});

for (const [what, headers, bytesMax] of [
  ['packed', { 'content-encoding': 'gzip' }, 2 * IMAGE_BYTES_MAX],
  ['of no announced length', {}, 2 * IMAGE_BYTES_MAX],
  // Two sockets' buffers take this much.
  ['as announced', { 'content-length': IMAGE_BYTES_MAX + 1 }, IMAGE_BYTES_MAX / 2],
] as const) {
  test(`a source that sends more than the limit ${what} is read no further`, async t => {
    let sent = 0;
    const { end } = await from((_request, response) => {
      response.writeHead(200, headers);
      const send = () => {
        while (response.writable && !response.destroyed) {
          sent += HOLLOW.length;
          if (!response.write(HOLLOW)) return void response.once('drain', send);
        }
      };
      send();
    });
    t.is(end, 'IMAGE_TOO_LARGE');
    t.true(sent < bytesMax, `${sent}`);
  });
}

test('a source may send as much as the limit', async t => {
  const { end, file } = await from((_request, response) => {
    response.write(FILE);
    response.end(Buffer.alloc(IMAGE_BYTES_MAX - FILE.length));
  });
  t.deepEqual([end, file.length], ['delivered', IMAGE_BYTES_MAX]);
});

test('another compression is refused by its name', async t => {
  for (const [coding, body] of [
    ['br', brotliCompressSync(FILE)],
    ['zstd', zstdCompressSync(FILE)],
    ['deflate', deflateSync(FILE)],
    ['compress', FILE],
    ['x-compress', FILE],
    ['gzip, br', GZIP],
  ] as const) {
    const { end, detail } = await encoded(body, coding);
    t.is(end, 'IMAGE_DOWNLOAD_FAILED', coding);
    t.regex(detail, new RegExp(`Content-Encoding ${coding.replace('x-', '')}\\.`), coding);
  }
  t.regex((await encoded(GZIP, 'gzip, gzip, gzip')).detail, /at most twice/);
});

const OK = 'HTTP/1.1 200 OK\r\n';
const SIZED = `${OK}content-length: ${FILE.length}\r\n`;
const CHUNK = `${FILE.length.toString(16)}\r\n${FILE.toString('latin1')}\r\n0\r\n\r\n`;

test('an answer that is no valid HTTP is refused for good', async t => {
  for (const [what, head] of Object.entries({
    'two lengths': `${SIZED}content-length: 5\r\n\r\n`,
    'one length twice': `${SIZED}content-length: ${FILE.length}\r\n\r\n`,
    'a length and chunks': `${SIZED}transfer-encoding: chunked\r\n\r\n${CHUNK}`,
    'chunks and a length': `${OK}transfer-encoding: chunked\r\ncontent-length: 9\r\n\r\n${CHUNK}`,
    'a negative length': `${OK}content-length: -2\r\n\r\n`,
    'a length in words': `${OK}content-length: 5x\r\n\r\n`,
    'an endless length': `${OK}content-length: ${'9'.repeat(30)}\r\n\r\n`,
    'another protocol': 'HTTP/1.1 101 Next\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n',
    'another protocol, unnamed': 'HTTP/1.1 101 Next\r\n\r\n',
    'no HTTP': 'SSH-2.0-OpenSSH_9.2\r\n',
    'too many headers': `${OK}${'x-noise: noise\r\n'.repeat(3000)}\r\n`,
    'a broken chunk': `${OK}transfer-encoding: chunked\r\n\r\nZZ\r\n`,
    'a name with a blank': `${SIZED}a b: c\r\n\r\n`,
    'a zero byte': `${SIZED}a: b\0c\r\n\r\n`,
    'bare line feeds': `HTTP/1.1 200 OK\ncontent-length: ${FILE.length}\n\n`,
    'a status of two digits': 'HTTP/1.1 20 OK\r\n\r\n',
    'HTTP 0.9': '',
    'HTTP 2': `HTTP/2 200\r\ncontent-length: ${FILE.length}\r\n\r\n`,
  })) {
    const { end, detail } = await answering(head, FILE);
    t.is(end, 'IMAGE_DOWNLOAD_FAILED', what);
    t.is(detail, 'image_url: the source did not answer with valid HTTP.', what);
  }
});

test('an answer that breaks off may be tried again', async t => {
  const half = FILE.subarray(0, 30);
  for (const [what, head, body] of [
    ['at once', '', Buffer.alloc(0)],
    ['in a header', `${OK}content-`, Buffer.alloc(0)],
    ['in the body', `${SIZED}\r\n`, half],
    ['in the body, as announced', `${SIZED}connection: close\r\n\r\n`, half],
    ['in a chunk', `${OK}transfer-encoding: chunked\r\n\r\n64\r\n`, half],
  ] as const) {
    t.is((await answering(head, body)).end, 'IMAGE_DOWNLOAD_FAILED (retryable)', what);
  }
});

/** Repeats the last status; 200 has the file. */
async function inTurn(
  answers: readonly (readonly [status: number, retryAfter?: string])[],
  limits: Partial<FetchLimits> = {},
  signal?: AbortSignal,
) {
  await using source = await openSource((_request, response) => {
    const [status, retryAfter] = answers[source.requests.length - 1] ?? answers.at(-1)!;
    if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
    response.writeHead(status).end(status === 200 ? FILE : 'later');
  });
  const end = await fetched(`${source.url}/a.png`, { againMs: [1, 1, 1], ...limits }, { signal });
  return { ...end, requests: source.requests.length };
}

test('a busy source is tried again within a number of tries', async t => {
  for (const status of [429, 502, 503, 504]) {
    const once = await inTurn([[status], [200]]);
    isFile(t, once, String(status));
    t.is(once.requests, 2);
    const never = await inTurn([[status]]);
    t.deepEqual([never.end, never.requests], ['IMAGE_DOWNLOAD_FAILED (retryable)', 4]);
    t.regex(never.detail, new RegExp(`status ${status}`));
  }
  const other = await inTurn([[503], [502], [404]]);
  t.deepEqual([other.end, other.requests], ['IMAGE_DOWNLOAD_FAILED', 3]);
  t.regex(other.detail, /status 404/, 'the last answer');
  for (const status of [400, 404, 500, 501]) {
    t.is((await inTurn([[status], [200]])).requests, 1, `${status} says nothing of later`);
  }
});

test('a busy source is tried again when it asks to, within a bound', async t => {
  // Without Retry-After the first wait alone would exceed the bound.
  const bound = { againMs: [60_000, 60_000], againMsMax: 2500 };
  const asked = await inTurn([[503, '1'], [200]], bound);
  isFile(t, asked, 'within the bound');
  const date = new Date(Date.now() + 2000).toUTCString();
  isFile(t, await inTurn([[429, date], [200]], bound), 'a date');
  for (const [what, later] of Object.entries({
    more: '3',
    unreadable: 'soon',
    date: 'Mon, 01 Jan 2300 00:00:00 GMT',
  })) {
    t.is((await inTurn([[503, later], [200]], bound)).requests, 1, what);
  }
  t.is((await inTurn([[503, '2'], [503, '2'], [200]], bound)).requests, 2, 'all waits together');
});

test('a busy source is tried no longer than a request may take, and not after it is given up', async t => {
  const late = await inTurn([[503, '5']], { totalMs: 300 });
  t.deepEqual([late.end, late.requests], ['IMAGE_DOWNLOAD_FAILED (retryable)', 1]);
  t.regex(late.detail, /status 503/);
  const giveUp = new AbortController();
  const aborted = inTurn([[503, '5']], {}, giveUp.signal);
  setTimeout(() => giveUp.abort(new ContractError('JOB_CANCELLED', 'given up')), 200);
  t.is((await aborted).end, 'JOB_CANCELLED');
});

test('an odd answer with a certain length of body is read', async t => {
  for (const [what, head] of Object.entries({
    'early hints': `HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n${SIZED}\r\n`,
    'no reason': `HTTP/1.1 200\r\ncontent-length: ${FILE.length}\r\n\r\n`,
    'HTTP 1.0': 'HTTP/1.0 200 OK\r\n\r\n',
    'the type of S3': `${SIZED}content-type: binary/octet-stream\r\n\r\n`,
    'an offer to upgrade': `${SIZED}connection: upgrade\r\nupgrade: h2c\r\n\r\n`,
  })) {
    isFile(t, await answering(head, FILE), what);
  }
});

test('a source without TLS or without a valid certificate is named as that', async t => {
  const server = createServer(() => undefined);
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  await using plain = await openRawSource(socket => socket.end('HTTP/1.1 400 No\r\n\r\n'));
  for (const port of [(server.address() as AddressInfo).port, plain.port]) {
    const { end, detail } = await fetched(`https://127.0.0.1:${port}/a.png`);
    t.is(end, 'IMAGE_DOWNLOAD_FAILED');
    t.regex(detail, /no valid certificate/);
  }
});

test('a status that is not 200 fails the download, and says whether it may pass', async t => {
  const mayPass = [429, 500, 502, 503, 504];
  for (const status of [400, 401, 403, 404, 408, 410, 451, 204, 206, 304, ...mayPass]) {
    const { end } = await inTurn([[status]], { againMs: [] });
    const failed = 'IMAGE_DOWNLOAD_FAILED';
    t.is(end, mayPass.includes(status) ? `${failed} (retryable)` : failed, String(status));
  }
});

test('a source that is not there, or that is slow, meets the bound of its stage and may be tried again', async t => {
  const away = await openSource(() => assert.fail());
  await away[Symbol.asyncDispose]();
  t.is((await fetched(away.url)).end, 'IMAGE_DOWNLOAD_FAILED (retryable)');
  const silent: RequestListener = () => undefined;
  const half: RequestListener = (_request, response) => {
    response.writeHead(200, { 'content-length': FILE.length });
    response.write(FILE.subarray(0, 40));
  };
  const drips: RequestListener = (_request, response) => {
    const timer = setInterval(() => response.write('x'), 20);
    response.on('close', () => clearInterval(timer));
  };
  for (const [handler, limits, cause] of [
    [silent, { firstByteMs: 100 }, 'UND_ERR_HEADERS_TIMEOUT'],
    [half, { idleMs: 100 }, 'UND_ERR_BODY_TIMEOUT'],
    [drips, { totalMs: 200 }, undefined],
  ] as const) {
    const met = await from(handler, limits);
    t.is(met.end, 'IMAGE_DOWNLOAD_FAILED (retryable)');
    if (cause !== undefined) t.is(met.cause, cause);
  }
});

test('a source that sends something else is no image, whatever it calls it', async t => {
  const html: RequestListener = (_request, response) => {
    response.writeHead(200, { 'content-type': 'image/png' }).end('<!doctype html><p>Sign in');
  };
  t.is((await from(html)).end, 'UNSUPPORTED_IMAGE_FORMAT');
  const short = `${OK}content-length: 4\r\n\r\n`;
  t.is((await answering(short, FILE)).end, 'UNSUPPORTED_IMAGE_FORMAT', 'less than it has');
});

test('a lease that is lost ends the fetch with its own reason, at every stage', async t => {
  const writer = await store.createWriter('inputs/fetched');
  t.teardown(() => writer.abort());
  const fetchImage = (url: string, signal: AbortSignal) =>
    fetcherWith({}).fetchImage(url, { writer, accountId: 'account', signal });
  for (const begins of [false, true]) {
    const lease = new AbortController();
    const reason = new Error('lease lost');
    await using source = await openSource((_request, response) => {
      if (begins) response.write(FILE.subarray(0, 40));
      setTimeout(() => lease.abort(reason), 20);
    });
    t.is(await t.throwsAsync(fetchImage(source.url, lease.signal)), reason);
  }
  const over = AbortSignal.abort(new Error('already lost'));
  await t.throwsAsync(fetchImage('http://127.0.0.1:9/', over), { message: /already lost/ });
});

test('a redirected image in pieces, of another media type, is taken with its header', async t => {
  await using source = await openSource((request, response) => {
    if (request.url === '/a') response.writeHead(308, { location: '/b' }).end();
    else {
      response.writeHead(200, { 'content-type': 'text/html', 'content-encoding': 'identity' });
      response.write(FILE.subarray(0, 5));
      setTimeout(() => response.end(FILE.subarray(5)), 10);
    }
  });
  const writer = await store.createWriter('inputs/fetched');
  t.teardown(() => writer.abort());
  const { signal } = new AbortController();
  const as = { accountId: 'account', signal };
  const { bytes, header } = await fetcherWith({}).fetchImage(`${source.url}/a`, { ...as, writer });
  t.is(bytes, FILE.length);
  t.deepEqual(header, { format: 'png', width: 40, height: 30, animated: false });
  const broken = { ...writer, write: () => Promise.reject(new Error('disk full')) };
  const fails = fetcherWith({}).fetchImage(`${source.url}/b`, { ...as, writer: broken as never });
  await t.throwsAsync(fails, { message: /disk full/ });
});

const kind = 'background';

test('a background has bounds of its own, and says in every error that it is the background', async t => {
  const wide = pngHeader(5001, 5000);
  for (const [file, code] of [
    [wide, 'IMAGE_RESOLUTION_TOO_LARGE'],
    [Buffer.concat([FILE, Buffer.alloc(BACKGROUND_BYTES_MAX)]), 'IMAGE_TOO_LARGE'],
    [Buffer.from('no picture'), 'UNSUPPORTED_IMAGE_FORMAT'],
  ] as const) {
    for (const announced of [true, false]) {
      const sends: RequestListener = (_request, response) => {
        if (announced) response.setHeader('content-length', file.length);
        response.end(file);
      };
      const { end, detail } = await from(sends, {}, { kind });
      t.is(end, code);
      t.regex(detail, /background/);
    }
  }
  const taken = await from((_request, response) => response.end(wide));
  t.is(taken.end, 'delivered', 'an image may be as large');
  const busy = await from(
    (_request, response) => response.writeHead(503).end(),
    { againMs: [] },
    { kind },
  );
  t.is(busy.end, 'IMAGE_DOWNLOAD_FAILED (retryable)');
  t.regex(busy.detail, /^background_url: /);
  for (const [kind, code] of [
    ['background', 'INVALID_PARAMETER'],
    ['image', 'INVALID_IMAGE_SOURCE'],
  ] as const) {
    const way = { kind, allowPrivateAddresses: false };
    t.is((await fetched('http://127.0.0.1:9/', {}, way)).end, code);
  }
});

test('no unfinished file is left behind, after all of the above', async t => {
  t.deepEqual(await readdir(path.join(root, 'tmp')), []);
});
