/** Tests what the service relies on in an object store, and what faults do to it. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import {
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  GetObjectCommand,
  HeadObjectCommand,
  PutObjectCommand,
  type PutObjectCommandInput,
  S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { getSignedUrl } from '@aws-sdk/s3-request-presigner';
import ava from 'ava';
import { type Fault, FaultProxy } from './fault-proxy.ts';
import { IDENTITY } from './object-store.ts';
import { onObjectStores } from './object-stores.ts';

const test = ava.serial;

const BODY = randomBytes(300_000);
const PART_BYTES = 5 * 1024 * 1024;

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('base64');
}

/** The status of a refusal. */
async function refused(work: Promise<unknown>): Promise<number | undefined> {
  return work.then(
    () => assert.fail('not refused'),
    error => error.$metadata?.httpStatusCode,
  );
}

onObjectStores(test, 'object storage', (test, store) => {
  const put = (Key: string, more: Partial<PutObjectCommandInput> = {}) =>
    store.client.send(new PutObjectCommand({ Bucket: store.bucket, Key, Body: BODY, ...more }));
  const get = async (Key: string, Range?: string) => {
    const answer = await store.client.send(
      new GetObjectCommand({ Bucket: store.bucket, Key, ...(Range && { Range }) }),
    );
    return Buffer.from(await answer.Body!.transformToByteArray());
  };
  const head = (Key: string) =>
    store.client.send(
      new HeadObjectCommand({ Bucket: store.bucket, Key, ChecksumMode: 'ENABLED' }),
    );

  test('keeps bytes, type, metadata and the checksum that was declared', async t => {
    await put('a', { ContentType: 'image/png', Metadata: { job: '1' } });
    await put('b', { ChecksumSHA256: sha256(BODY) });
    t.true(BODY.equals(await get('a')));
    const { ContentType, Metadata } = await head('a');
    t.deepEqual([ContentType, Metadata], ['image/png', { job: '1' }]);
    const { ChecksumSHA256, ContentLength } = await head('b');
    t.deepEqual([ChecksumSHA256, ContentLength], [sha256(BODY), BODY.length]);
  });

  test('refuses bytes that are not those of the checksum', async t => {
    const other = randomBytes(10);
    const md5 = createHash('md5').update(other).digest('base64');
    t.is(await refused(put('c', { ChecksumSHA256: sha256(other) })), 400);
    t.is(await refused(put('c', { ContentMD5: md5 })), 400);
    t.is(await refused(head('c')), 404);
  });

  test('replaces nothing where that is asked, and one of many at once wins', async t => {
    await put('e');
    t.is(await refused(put('e', { Body: 'x', IfNoneMatch: '*' })), 412);
    const all = Array.from({ length: 8 }, (_, n) => put('f', { Body: `${n}`, IfNoneMatch: '*' }));
    const ended = await Promise.allSettled(all);
    t.is(ended.filter(({ status }) => status === 'fulfilled').length, 1);
  });

  test('takes an object in parts, whole or not at all', async t => {
    const place = { Bucket: store.bucket, Key: 'parts' };
    const begin = new CreateMultipartUploadCommand({ ...place, ChecksumAlgorithm: 'SHA256' });
    const bytes = randomBytes(PART_BYTES + 100);
    const pieces = [bytes.subarray(0, PART_BYTES), bytes.subarray(PART_BYTES)];
    const upload = async (bodies: readonly Uint8Array[]) => {
      const { UploadId } = await store.client.send(begin);
      const parts = [];
      for (const [index, Body] of bodies.entries()) {
        const ChecksumSHA256 = sha256(Body);
        const PartNumber = index + 1;
        const part = { ...place, UploadId, PartNumber, Body, ChecksumSHA256 };
        const { ETag } = await store.client.send(new UploadPartCommand(part));
        parts.push({ PartNumber, ETag, ChecksumSHA256 });
      }
      const MultipartUpload = { Parts: parts };
      const whole = { ...place, UploadId, MultipartUpload, IfNoneMatch: '*' };
      return store.client.send(new CompleteMultipartUploadCommand(whole));
    };
    t.is(await refused(upload([pieces[1]!, pieces[0]!])), 400);
    t.is(await refused(head('parts')), 404);
    await upload(pieces);
    t.true(bytes.equals(await get('parts')));
    const digests = pieces.map(piece => Buffer.from(sha256(piece), 'base64'));
    t.is((await head('parts')).ChecksumSHA256, `${sha256(Buffer.concat(digests))}-2`);
    t.is(await refused(upload(pieces)), 412);
  });

  test('answers a presigned GET with the type and disposition that were signed', async t => {
    await put('signed');
    const place = { Bucket: store.bucket, Key: 'signed' };
    const command = new GetObjectCommand({
      ...place,
      ResponseContentType: 'image/webp',
      ResponseContentDisposition: 'attachment; filename="x.webp"',
    });
    const url = await getSignedUrl(store.client, command, { expiresIn: 60 });
    const answer = await fetch(url);
    t.is(answer.headers.get('content-type'), 'image/webp');
    t.is(answer.headers.get('content-disposition'), 'attachment; filename="x.webp"');
    t.true(BODY.equals(Buffer.from(await answer.arrayBuffer())));
    const etag = answer.headers.get('etag') ?? '';
    const status = async (link: string, headers = {}) => (await fetch(link, { headers })).status;
    t.is(await status(url, { 'if-none-match': etag }), 304);
    t.is(await status(url, { range: 'bytes=0-9' }), 206);
    t.is(await status(url.replace('/signed?', '/a?')), 403);
    t.is(await status(`${url}0`), 403);
    t.is(await status(`${store.endpoint}/${store.bucket}/signed`), 403);
    const signingDate = new Date(Date.now() - 10_000);
    const late = await getSignedUrl(store.client, command, { expiresIn: 5, signingDate });
    t.is(await status(late), 403);
  });

  test('takes a presigned PUT of the bytes that were signed, once', async t => {
    const client = new S3Client({
      endpoint: store.endpoint,
      region: IDENTITY.region,
      forcePathStyle: true,
      credentials: IDENTITY,
      requestChecksumCalculation: 'WHEN_REQUIRED',
    });
    const signed = ['x-amz-checksum-sha256', 'if-none-match', 'content-length'];
    const command = new PutObjectCommand({
      Bucket: store.bucket,
      Key: 'placed',
      ChecksumSHA256: sha256(BODY),
      ContentLength: BODY.length,
      IfNoneMatch: '*',
    });
    const url = await getSignedUrl(client, command, {
      expiresIn: 60,
      unhoistableHeaders: new Set(signed),
      signableHeaders: new Set([...signed, 'host']),
    });
    const headers = { 'x-amz-checksum-sha256': sha256(BODY), 'if-none-match': '*' };
    const place = async (body: Uint8Array<ArrayBuffer>, sent: Record<string, string> = headers) =>
      (await fetch(url, { method: 'PUT', body, headers: sent })).status;
    const other = randomBytes(BODY.length);
    t.is(await place(other), 400);
    t.is(await place(other, { ...headers, 'x-amz-checksum-sha256': sha256(other) }), 403);
    // Some servers judge the length and the missing header before the signature.
    t.true([400, 403].includes(await place(Buffer.from('short'))));
    t.true([400, 403].includes(await place(BODY, { 'if-none-match': '*' })));
    t.is(await place(BODY), 200);
    t.is(await place(BODY), 412);
    t.is((await head('placed')).ChecksumSHA256, sha256(BODY));
    client.destroy();
  });
});

onObjectStores(test, 'a proxy of faults', (test, store) => {
  let proxy: FaultProxy;
  let client: S3Client;

  test.before(async () => {
    proxy = await FaultProxy.start(store.endpoint);
    client = new S3Client({
      endpoint: proxy.endpoint,
      region: IDENTITY.region,
      forcePathStyle: true,
      credentials: IDENTITY,
      maxAttempts: 1,
    });
  });
  test.after.always(async () => {
    client.destroy();
    await proxy.close();
  });
  test.beforeEach(() => proxy.liftAll());

  const stored = (Key: string) =>
    store.client.send(new HeadObjectCommand({ Bucket: store.bucket, Key })).then(
      () => true,
      () => false,
    );

  const lost: readonly [name: string, fault: Fault, kept: boolean][] = [
    ['in the middle of a request', { kind: 'reset-request', afterBytes: 100_000 }, false],
    ['before a request', { kind: 'refuse' }, false],
    ['after the store has done it', { kind: 'lose-answer' }, true],
  ];
  for (const [name, fault, kept] of lost) {
    test(`ends connections ${name}`, async t => {
      const Key = `lost-${fault.kind}`;
      proxy.inject(fault, { method: 'PUT' });
      const put = new PutObjectCommand({ Bucket: store.bucket, Key, Body: BODY });
      await t.throwsAsync(client.send(put));
      t.is(await stored(Key), kept);
    });
  }
});
