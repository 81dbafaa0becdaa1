import assert from 'node:assert/strict';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { StorageConfigError } from '@matting/storage/open-storage.ts';
import { drip } from '@matting/test-support/dripping.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { openStorage } from '../test/open-storage.ts';
import { SpoolFile } from './bucket-blob-store.ts';
import type { BucketClient } from './bucket-client.ts';
import { type BucketBounds, BucketRetries } from './bucket-connections.ts';
import { readBucketBlob } from './bucket-reading.ts';
import { BucketUrlError, parseBucketUrl } from './bucket-url.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });

test('a blob that is read in more pieces than its bytes are worth is unreadable', async t => {
  const server = createServer((_request, response) => drip(response)).listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const requested = get(`http://127.0.0.1:${port}`).on('error', () => undefined);
  const [body] = (await once(requested, 'response')) as [IncomingMessage];
  const client = { get: async () => ({ body }) } as unknown as BucketClient;
  const bounds = { silenceMsMax: 10_000, resumesMax: 1 } as BucketBounds;
  const read = buffer(await readBucketBlob(client, `results/${randomUUID()}`, bounds));
  await t.throwsAsync(read, { code: 'SERVICE_UNAVAILABLE' });
});

test('the URL of a bucket › needs a bucket alone', t => {
  t.deepEqual(parseBucketUrl('s3://pictures'), {
    bucket: 'pictures',
    prefix: '',
    pathStyle: false,
  });
});

test('the URL of a bucket › has a prefix, which ends with one slash however it is written', t => {
  for (const url of ['s3://pictures/a/b', 's3://pictures/a/b/']) {
    t.is(parseBucketUrl(url).prefix, 'a/b/');
  }
});

test('the URL of a bucket › carries what a store and its encryption need', t => {
  const url =
    's3://pictures?endpoint=http://127.0.0.1:7070&region=eu-central-1' +
    '&sse=aws:kms&sse-kms-key-id=arn:aws:kms:eu-central-1:1:key/2';
  t.deepEqual(parseBucketUrl(url), {
    bucket: 'pictures',
    prefix: '',
    endpoint: new URL('http://127.0.0.1:7070'),
    region: 'eu-central-1',
    pathStyle: true,
    encryption: { algorithm: 'aws:kms', kmsKeyId: 'arn:aws:kms:eu-central-1:1:key/2' },
  });
});

test('the URL of a bucket › names the bucket in the path of an endpoint’s URLs, and may say otherwise', t => {
  const of = (parameters: string) => parseBucketUrl(`s3://pictures?${parameters}`).pathStyle;
  t.true(of('endpoint=https://s3.example'));
  t.false(of('endpoint=https://s3.example&path-style=false'));
  t.true(of('path-style=true'));
});

const refused: readonly (readonly [what: string, url: string, message: RegExp])[] = [
  ['another scheme', 'https://pictures', /^of the form s3:\/\//],
  ['no URL', 'pictures', /^of the form s3:\/\//],
  ['a user', 's3://key@pictures', /credentials are/],
  ['a password', 's3://key:word@pictures/a', /credentials are/],
  ['a port', 's3://pictures:9000', /credentials are/],
  ['a fragment', 's3://pictures#a', /credentials are/],
  ['no bucket', 's3:///a', /name of a bucket/],
  ['a bucket of two letters', 's3://ab', /name of a bucket/],
  ['a bucket with an underscore', 's3://my_pictures', /name of a bucket/],
  ['an unknown parameter', 's3://pictures?acl=private', /known parameters only: endpoint,/],
  ['a parameter twice', 's3://pictures?region=a&region=b', /region once/],
  ['an empty parameter', 's3://pictures?region=', /region is not empty/],
  ['a region of another shape', 's3://pictures?region=EU%20Central', /whose region/],
  ['a double slash', 's3://pictures/a//b', /whose prefix/],
  ['a blank in the prefix', 's3://pictures/a%20b', /whose prefix/],
  ['a prefix that is too long', `s3://pictures/${'a'.repeat(513)}`, /whose prefix/],
  ['an endpoint with a path', 's3://pictures?endpoint=https://s3.example/a', /whose endpoint/],
  ['an endpoint with a user', 's3://pictures?endpoint=https://k@s3.example', /whose endpoint/],
  ['an endpoint of another scheme', 's3://pictures?endpoint=ftp://s3.example', /whose endpoint/],
  ['an endpoint that is none', 's3://pictures?endpoint=s3.example', /whose endpoint/],
  ['another path style', 's3://pictures?path-style=yes', /path-style is true or false/],
  ['another encryption', 's3://pictures?sse=aes', /sse is AES256 or aws:kms/],
  ['a key of no KMS', 's3://pictures?sse=AES256&sse-kms-key-id=1', /sse=aws:kms only/],
];
for (const [what, url, message] of refused) {
  test(`the URL of a bucket › is refused with ${what}`, t => {
    throwsWith(
      t,
      () => parseBucketUrl(url),
      (error: unknown) => error instanceof BucketUrlError && message.test(error.message),
    );
  });
}

test('the URL of a bucket › that is wrong is not shown where it is opened', async t => {
  for (const url of ['s3://bucket/prefix?secret=1', 'S3://secret@bucket', 's3://SECRET']) {
    const error = await t.throwsAsync(openStorage(url), { instanceOf: StorageConfigError });
    t.regex(error.message, /^MATTING_STORAGE_URL must be (an )?s3:\/\//);
    t.notRegex(error.message, /secret/i);
  }
});

type Failure = Parameters<BucketRetries['refreshRetryTokenForRetry']>[1];

const TRANSIENT = { errorType: 'TRANSIENT' } as const;
const THROTTLING = { errorType: 'THROTTLING' } as const;

async function waitsMs(retries: BucketRetries, failure: Failure): Promise<number[]> {
  const waits: number[] = [];
  let token = await retries.acquireInitialRetryToken();
  for (;;) {
    try {
      token = await retries.refreshRetryTokenForRetry(token, failure);
    } catch (error) {
      assert.match(String(error), /no further attempt/);
      return waits;
    }
    waits.push(token.getRetryDelay());
  }
}

test('requests › are made again as often as they may, after longer and longer waits', async t => {
  t.deepEqual(await waitsMs(new BucketRetries(4, () => 1), TRANSIENT), [100, 200, 400]);
  t.deepEqual(await waitsMs(new BucketRetries(4, () => 0), TRANSIENT), [0, 0, 0]);
});

test('requests › wait longer where the store asks for less, never above five seconds', async t => {
  const waits = await waitsMs(new BucketRetries(7, () => 1), THROTTLING);
  t.deepEqual(waits, [500, 1000, 2000, 4000, 5000, 5000]);
});

test('requests › wait as long as the store says, never above five seconds', async t => {
  const hint = (ms: number) => ({ ...TRANSIENT, retryAfterHint: new Date(Date.now() + ms) });
  const [requested] = await waitsMs(new BucketRetries(2, () => 0), hint(3000));
  t.true(requested !== undefined && requested > 2000 && requested <= 3000, `${requested}`);
  const [capped] = await waitsMs(new BucketRetries(2, () => 0), hint(60_000));
  t.is(capped, 5000);
});

const named = (name: string) =>
  ({ errorType: 'CLIENT_ERROR', error: Object.assign(new Error(name), { name }) }) as Failure;
for (const name of [
  'BadDigest',
  'IncompleteBody',
  'ConditionalRequestConflict',
  'ExistingObjectIsDirectory',
]) {
  test(`requests › are made again after ${name}: the same bytes may be taken`, async t => {
    t.is((await waitsMs(new BucketRetries(3), named(name))).length, 2);
  });
}
for (const name of ['AccessDenied', 'NoSuchKey', 'PreconditionFailed']) {
  test(`requests › are not made again after ${name}`, async t => {
    t.deepEqual(await waitsMs(new BucketRetries(3), named(name)), []);
  });
}

test('requests › have attempts of their own: what others spent is not missing', async t => {
  const retries = new BucketRetries(3, () => 0);
  const counts: number[] = [];
  for (let request = 0; request < 50; request += 1) {
    counts.push((await waitsMs(retries, TRANSIENT)).length);
  }
  t.deepEqual(new Set(counts), new Set([2]));
});

const PART_BYTES = 1000;
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

async function spooled(bytes: Buffer, pieceBytes: number): Promise<SpoolFile> {
  const file = await SpoolFile.open(directory, PART_BYTES);
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    await file.append(bytes.subarray(at, at + pieceBytes));
  }
  return file;
}

test('a spool file › has no name from the moment it is open', async t => {
  const file = await SpoolFile.open(directory, PART_BYTES);
  t.deepEqual(await readdir(directory), []);
  await file.close();
});

test('a spool file › is refused where it cannot be, with the place in the error', async t => {
  const nowhere = path.join(directory, 'nowhere');
  await t.throwsAsync(SpoolFile.open(nowhere, PART_BYTES), { code: 'ENOENT' });
});

// Lengths around the ends of parts; pieces end within, at and after them.
for (const length of [0, 1, 999, 1000, 1001, 2000, 2500, 3000]) {
  for (const pieceBytes of [300, 1000, 2300]) {
    test(`a spool file › of ${length} bytes in pieces of ${pieceBytes} is what was appended`, async t => {
      const bytes = randomBytes(length);
      const file = await spooled(bytes, pieceBytes);
      t.is(file.bytes, length);
      t.is(file.sha256(), sha256(bytes));
      t.deepEqual(await file.read(0, length), bytes);
      const parts = file.parts();
      t.is(parts.length, Math.ceil(length / PART_BYTES));
      let at = 0;
      for (const part of parts) {
        t.is(part.offset, at);
        const expected = bytes.subarray(at, at + PART_BYTES);
        t.is(part.sha256, sha256(expected));
        t.deepEqual(await file.read(part.offset, part.length), expected);
        at += part.length;
      }
      t.is(at, length);
      await file.close();
    });
  }
}

test('a spool file › reads no further than it goes', async t => {
  const bytes = randomBytes(100);
  const file = await spooled(bytes, 100);
  t.deepEqual(await file.read(90, 100), bytes.subarray(90));
  t.is((await file.read(200, 10)).length, 0);
  await file.close();
});

test('a spool file › says its hashes while it grows, without ending', async t => {
  const file = await spooled(Buffer.from('one'), 3);
  t.is(file.sha256(), sha256(Buffer.from('one')));
  t.is(file.parts()[0]?.sha256, sha256(Buffer.from('one')));
  await file.append(Buffer.from('two'));
  t.is(file.sha256(), sha256(Buffer.from('onetwo')));
  await file.close();
});
