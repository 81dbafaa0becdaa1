/** Answers of servers and buckets to a download, byte for byte, by real sockets. */
import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:tls';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { type FetchLimits, GuardedFetch } from '@matting/http/outgoing/guarded-fetch.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import { openRawSource, openSource } from '@matting/http/test/loopback-source.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
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
/** A member of 64 KiB and some bytes that unpacks to nothing: all of it is an extra field. */
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
  /** `delivered`, or the error's code; `(retryable)` behind it. */
  readonly end: string;
  readonly detail: string;
  readonly file: Buffer;
}

async function fetched(
  url: string,
  limits: Partial<FetchLimits> = {},
  { signal }: { signal: AbortSignal } = new AbortController(),
): Promise<Fetched> {
  const guard = new OutgoingGuard({ policy: { fetchPorts: [], allowPrivateAddresses: true } });
  const fetcher = new ImageFetcher(new GuardedFetch(guard, limits));
  const writer = await store.createWriter('inputs/fetched');
  try {
    await fetcher.fetchImage(url, { writer, accountId: 'account', signal });
    const file = Buffer.from(await writer.readAt(0, writer.bytesWritten));
    return { end: 'delivered', detail: '', file };
  } catch (error) {
    assert.ok(error instanceof ContractError, String(error));
    const { code, retryable, message: detail } = error;
    return { end: retryable ? `${code} (retryable)` : code, detail, file: Buffer.alloc(0) };
  } finally {
    await writer.abort();
  }
}

/** Answers with these bytes, and hangs up. */
async function answering(...pieces: (string | Buffer)[]): Promise<Fetched> {
  await using source = await openRawSource(socket => {
    socket.end(Buffer.concat(pieces.map(piece => Buffer.from(piece as string, 'latin1'))));
  });
  return await fetched(`${source.url}/a.png`);
}

async function encoded(body: Buffer, ...codings: string[]): Promise<Fetched> {
  await using source = await openSource((_request, response) => {
    response.setHeader('content-encoding', codings).setHeader('content-length', body.length);
    response.end(body);
  });
  return await fetched(`${source.url}/a.png`);
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
  // The second step gives nothing for all that the first gives.
  const hollow = gzipSync(Buffer.concat(Array(IMAGE_BYTES_MAX / 65_536 + 1).fill(HOLLOW)));
  t.true(hollow.length < MIB);
  t.is((await encoded(hollow, 'gzip, gzip')).end, 'IMAGE_TOO_LARGE');
});

test('a source that sends more than the limit packed is read no further', async t => {
  let sent = 0;
  await using source = await openSource((_request, response) => {
    response.writeHead(200, { 'content-encoding': 'gzip' });
    const send = () => {
      while (response.writable && !response.destroyed) {
        sent += HOLLOW.length;
        if (!response.write(HOLLOW)) return void response.once('drain', send);
      }
    };
    send();
  });
  t.is((await fetched(`${source.url}/a.png`)).end, 'IMAGE_TOO_LARGE');
  t.true(sent < 2 * IMAGE_BYTES_MAX, `${sent}`);
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

/** Answers with each of these statuses in turn, the last one for ever; 200 has the file. */
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
  const end = await fetched(
    `${source.url}/a.png`,
    { againMs: [1, 1, 1], ...limits },
    signal && { signal },
  );
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
  // Without its Retry-After the first wait alone would be over the bound of time.
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
