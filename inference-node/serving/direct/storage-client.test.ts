/**
 * Tests what a storage, or a server in its place, may do to a node that gets and puts files; and
 * which one it is.
 */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { drip } from '@matting/test-support/dripping.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { ownClock } from '../test/own-clock.ts';
import {
  type Answer,
  bytes,
  half,
  reset,
  ScriptedStorage,
  silence,
  status,
} from '../test/scripted-storage.ts';
import { parseOrigin, requirePutHeaders, requireUrlOf } from './direct-origins.ts';
import { type Limits, STORAGE_BOUNDS, StorageClient } from './storage-client.ts';

const test = ava.serial;

const FILE = 'ten bytes.';
const XML = '<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>no</Message></Error>';

let storage: ScriptedStorage;
let client: StorageClient;

test.beforeEach(async () => {
  storage = await ScriptedStorage.start(bytes(FILE));
  client = new StorageClient({ ...STORAGE_BOUNDS, retryWaitMs: 1 });
});

test.afterEach.always(async () => {
  await client.close();
  await storage.close();
});

function limits(changes: Partial<Limits> = {}): Limits {
  return { signal: new AbortController().signal, withinMs: 60_000, ...changes };
}

const url = () => ({ origin: storage.origin, path: '/bucket/inputs/1?X-Amz-Signature=secret' });

async function get(changes?: Partial<Limits>): Promise<string> {
  const into = Buffer.alloc(FILE.length);
  await client.get(url(), into, limits(changes));
  return into.toString();
}

async function put(file: string | Buffer = FILE): Promise<void> {
  const body = Buffer.from(file as string);
  const headers = { 'content-length': String(body.length), 'if-none-match': '*' };
  await client.put(url(), headers, body, limits());
}

/** Each try of a storage that takes requests and says nothing is over in a moment. */
async function outwait(clock: { tickAsync(ms: number): Promise<unknown> }): Promise<void> {
  for (let tries = 1; tries <= STORAGE_BOUNDS.triesMax; tries += 1) {
    await until(`${tries} requests at the storage`, () => storage.requests.length >= tries);
    await clock.tickAsync(STORAGE_BOUNDS.silenceMs);
  }
}

async function unreachable(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => assert.fail('it succeeded'),
    (caught: unknown) => caught,
  );
  assert.ok(error instanceof ContractError, String(error));
  assert.equal(error.code, 'STORAGE_UNREACHABLE');
  assert.doesNotMatch(`${error.message} ${String(error.cause)}`, /secret/, 'the URL stays secret');
  return error.message;
}

test('a file that is got › in more pieces than its bytes are worth is a fault of the storage', async t => {
  const pieces = 20_000;
  storage.answer(response => drip(response, pieces));
  const into = Buffer.alloc(pieces);
  t.regex(await unreachable(client.get(url(), into, limits())), /more pieces/);
});

test('a file that is got › comes whole, uncompressed, with the checksum that the storage keeps', async t => {
  const digest = createHash('sha256').update(FILE).digest();
  for (const headers of [
    { 'x-amz-checksum-sha256': digest.toString('base64') },
    { 'x-amz-meta-sha256': digest.toString('hex') },
  ]) {
    storage.answer(bytes(FILE, headers));
    const into = Buffer.alloc(FILE.length);
    t.deepEqual(await client.get(url(), into, limits()), digest);
    t.is(into.toString(), FILE);
  }
  const [request] = storage.requests;
  t.is(request?.path, url().path);
  t.is(request?.headers['accept-encoding'], 'identity');
});

test('a file that is got › has no checksum where the storage keeps those of its parts', async t => {
  storage.answer(bytes(FILE, { 'x-amz-checksum-sha256': `${'A'.repeat(43)}=-3` }));
  t.is(await client.get(url(), Buffer.alloc(FILE.length), limits()), undefined);
});

test('a file that is got › may have a Content-Encoding that the storage kept by mistake', async t => {
  storage.answer(bytes(FILE, { 'content-encoding': 'aws-chunked' }));
  const into = Buffer.alloc(FILE.length);
  await client.get(url(), into, limits());
  t.is(into.toString(), FILE);
});

const wrong: [string, Answer, RegExp, number][] = [
  ['longer than declared', bytes(`${FILE}!`), /another length/, 1],
  ['shorter than declared', bytes('short'), /another length/, 1],
  [
    'longer than declared, without saying so',
    response => {
      response.writeHead(200);
      response.write(FILE, () => response.end('!'));
    },
    /another length/,
    1,
  ],
  ['compressed', bytes(FILE, { 'content-encoding': 'gzip' }), /compressed/, 1],
  ['a part of it', status(206, {}, FILE), /206/, 1],
  ['elsewhere', status(307, { location: 'http://127.0.0.1:9/' }), /307.*no redirect/, 1],
  ['forbidden', status(403, {}, XML), /403 \(AccessDenied\)/, 1],
  ['not there', status(404), /404/, 1],
  ['cut off each time', half(FILE, reset), /GET of the storage failed/, 3],
  ['not to be had for now', status(503, {}, '<Code>SlowDown</Code>'), /503 \(SlowDown\)/, 3],
];
for (const [what, answer, said, tries] of wrong) {
  test(`a file that is got › ${what} is a fault of the storage, after ${tries} tries`, async t => {
    storage.answer(answer);
    t.regex(await unreachable(get()), said);
    t.is(storage.requests.length, tries);
  });
}

test('a file that is got › comes after a reset, a cut and an error of the server', async t => {
  storage.answer(reset, half(FILE, reset), bytes(FILE));
  t.is(await get(), FILE);
  t.is(storage.requests.length, 3);
});

for (const [what, answer] of [
  ['before its answer', silence],
  ['in the middle of it', half(FILE, silence)],
] as const) {
  test(`a file that is got › from a storage that hangs ${what} is given up`, async t => {
    const clock = ownClock(t);
    storage.answer(answer);
    const work = unreachable(get());
    await outwait(clock);
    t.regex(await work, /silent/);
    t.is(storage.requests.length, STORAGE_BOUNDS.triesMax);
  });
}

test('a file that is got › that comes without end is given up in time, however little silence there is', async t => {
  storage.answer(response => {
    response.writeHead(200);
    const timer = setInterval(() => response.write('x'), 5);
    response.on('close', () => clearInterval(timer));
  });
  const work = client.get(url(), Buffer.alloc(1e6), limits({ withinMs: 100 }));
  t.regex(await unreachable(work), /time is over/);
});

test('a file that is got › is given up at once when its caller goes', async t => {
  const gone = new AbortController();
  storage.answer(() => gone.abort(new Error('the caller went')));
  await t.throwsAsync(get({ signal: gone.signal }), { message: /the caller went/ });
  t.is(storage.requests.length, 1);
});

test('a file that is put › arrives whole, with its headers', async t => {
  storage.answer(status(200));
  const file = Buffer.alloc(3_000_000, 'x');
  await put(file);
  const [request] = storage.requests;
  assert.ok(request);
  t.true(request.body.equals(file));
  t.is(request.headers['if-none-match'], '*');
  t.is(request.headers['content-length'], '3000000');
  t.is(request.headers['transfer-encoding'], undefined);
});

test('a file that is put › whose answer was lost is there at the second try, and that is a success', async t => {
  storage.answer(reset, status(412, {}, '<Code>PreconditionFailed</Code>'));
  await put();
  t.is(storage.requests.length, 2);
});

test('a file that is put › beside another writer of the same key comes again', async t => {
  storage.answer(status(409, {}, '<Code>ConditionalRequestConflict</Code>'), status(412));
  await t.notThrowsAsync(put());
});

const refused: [string, Answer, RegExp, number][] = [
  ['elsewhere', status(307, { location: 'http://127.0.0.1:9/' }), /307.*no redirect/, 1],
  ['at a place that expired', status(403, {}, XML), /403 \(AccessDenied\)/, 1],
  ['with another checksum', status(400, {}, '<Code>BadDigest</Code>'), /400 \(BadDigest\)/, 1],
  ['to a server that fails', status(500), /500/, 3],
  ['to a server that resets', reset, /PUT of the storage failed/, 3],
];
for (const [what, answer, said, tries] of refused) {
  test(`a file that is put › ${what} is a fault of the storage, after ${tries} tries`, async t => {
    storage.answer(answer);
    t.regex(await unreachable(put()), said);
    t.is(storage.requests.length, tries);
  });
}

const ORIGIN = 'https://storage.example:9000';

test('an origin of the list › is nothing but an origin', t => {
  for (const text of [
    'storage.example',
    'ftp://storage.example',
    ...['/', '/bucket', '?x', '#x'].map(more => `https://storage.example${more}`),
    'https://user@storage.example',
    'https://',
  ]) {
    t.is(parseOrigin(text), undefined, text);
  }
});

test('a reference › of the origin is taken as it was parsed', t => {
  const url = requireUrlOf(ORIGIN, `${ORIGIN}/bucket/a%2Fb?X-Amz-Signature=1%2B2`, 'url');
  t.deepEqual(url, { origin: ORIGIN, path: '/bucket/a%2Fb?X-Amz-Signature=1%2B2' });
});

test('a reference › to anywhere but the origin is refused', t => {
  for (const text of [
    '',
    '/bucket/key',
    'https://storage.example/key',
    'http://storage.example:9000/key',
    'https://storage.example:9000.evil.example/key',
    'https://storage.example:9000@evil.example/key',
    'https://169.254.169.254/latest/meta-data',
    'https://user:pass@storage.example:9000/key',
    'https://storage.example:9000/key#part',
    `${ORIGIN}/${'x'.repeat(8192)}`,
  ]) {
    t.throws(() => requireUrlOf(ORIGIN, text, 'url'), { code: 'INVALID_REQUEST' }, text);
  }
});

test('headers of a place › are those of an object, in lower case, with the length', t => {
  const given = {
    'Content-Type': 'image/png',
    'If-None-Match': '*',
    'x-amz-checksum-sha256': 'q',
  };
  t.deepEqual(requirePutHeaders(given, 7), {
    'content-length': '7',
    'content-type': 'image/png',
    'if-none-match': '*',
    'x-amz-checksum-sha256': 'q',
  });
  t.deepEqual(requirePutHeaders({ 'content-length': '7' }, 7), { 'content-length': '7' });
});

test('headers of a place › are no others', t => {
  for (const headers of [
    { 'content-length': '8' },
    { authorization: 'Bearer x' },
    { host: 'evil.example' },
    { 'transfer-encoding': 'chunked' },
    { 'content-type': 'a\r\nx: y' },
    { cookie: 'a' },
    Object.fromEntries(Array.from({ length: 17 }, (_, index) => [`x-amz-${index}`, ''])),
  ] as Record<string, string>[]) {
    const what = JSON.stringify(headers);
    t.throws(() => requirePutHeaders(headers, 7), { code: 'INVALID_REQUEST' }, what);
  }
});
