/**
 * What the service relies on in an object store: held by the stand-in here, by real servers in
 * `make test-storage`.
 */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { describe, it } from 'node:test';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type PutObjectCommandInput,
  S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { getSignedUrl } from '@aws-sdk/s3-request-presigner';
import { IDENTITY, missingStore, OBJECT_STORES, useObjectStore } from './object-store.ts';

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

for (const kind of OBJECT_STORES) {
  describe(`object storage: ${kind}`, { skip: missingStore(kind) }, () => {
    const store = useObjectStore(kind);
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

    it('keeps bytes, type, metadata and the checksum that was declared', async () => {
      await put('a', { ContentType: 'image/png', Metadata: { job: '1' } });
      await put('b', { ChecksumSHA256: sha256(BODY) });
      assert.deepEqual(await get('a'), BODY);
      const { ContentType, Metadata } = await head('a');
      assert.deepEqual([ContentType, Metadata], ['image/png', { job: '1' }]);
      const { ChecksumSHA256, ContentLength } = await head('b');
      assert.deepEqual([ChecksumSHA256, ContentLength], [sha256(BODY), BODY.length]);
    });

    it('refuses bytes that are not those of the checksum', async () => {
      const other = randomBytes(10);
      const md5 = createHash('md5').update(other).digest('base64');
      assert.equal(await refused(put('c', { ChecksumSHA256: sha256(other) })), 400);
      assert.equal(await refused(put('c', { ContentMD5: md5 })), 400);
      assert.equal(await refused(head('c')), 404);
    });

    it('replaces nothing where that is asked, and one of many at once wins', async () => {
      await put('e');
      assert.equal(await refused(put('e', { Body: 'x', IfNoneMatch: '*' })), 412);
      const all = Array.from({ length: 8 }, (_, n) => put('f', { Body: `${n}`, IfNoneMatch: '*' }));
      const ended = await Promise.allSettled(all);
      assert.equal(ended.filter(({ status }) => status === 'fulfilled').length, 1);
    });

    it('reads ranges, and says where there is nothing', async () => {
      await put('g');
      assert.deepEqual(await get('g', 'bytes=100-199'), BODY.subarray(100, 200));
      assert.deepEqual(await get('g', 'bytes=-10'), BODY.subarray(-10));
      assert.equal(await refused(get('g', 'bytes=99999999-')), 416);
      assert.equal(await refused(get('missing')), 404);
      assert.equal(await refused(head('missing')), 404);
    });

    it('lists pages by prefix, in order', async () => {
      for (const name of ['l/2', 'l/1', 'l/3', 'm/1']) await put(name, { Body: 'x' });
      const names: (string | undefined)[] = [];
      let ContinuationToken: string | undefined;
      do {
        const page = await store.client.send(
          new ListObjectsV2Command({
            Bucket: store.bucket,
            Prefix: 'l/',
            MaxKeys: 2,
            ...(ContinuationToken && { ContinuationToken }),
          }),
        );
        names.push(...(page.Contents ?? []).map(({ Key }) => Key));
        assert.ok((page.Contents ?? []).every(({ LastModified }) => LastModified! > new Date(0)));
        ContinuationToken = page.NextContinuationToken;
      } while (ContinuationToken !== undefined);
      assert.deepEqual(names, ['l/1', 'l/2', 'l/3']);
    });

    it('removes, as often as one likes', async () => {
      await put('r/1', { Body: 'x' });
      const remove = new DeleteObjectCommand({ Bucket: store.bucket, Key: 'r/1' });
      await store.client.send(remove);
      await store.client.send(remove);
      assert.equal(await refused(head('r/1')), 404);
    });

    it('takes an object in parts, whole or not at all', async () => {
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
      assert.equal(await refused(upload([pieces[1]!, pieces[0]!])), 400);
      assert.equal(await refused(head('parts')), 404);
      await upload(pieces);
      assert.deepEqual(await get('parts'), bytes);
      const digests = pieces.map(piece => Buffer.from(sha256(piece), 'base64'));
      assert.equal((await head('parts')).ChecksumSHA256, `${sha256(Buffer.concat(digests))}-2`);
      assert.equal(await refused(upload(pieces)), 412);
    });

    it('lists unfinished uploads and ends them', async () => {
      const place = { Bucket: store.bucket, Key: 'unfinished' };
      await store.client.send(new CreateMultipartUploadCommand(place));
      const list = new ListMultipartUploadsCommand({ Bucket: store.bucket, Prefix: place.Key });
      const { Uploads = [] } = await store.client.send(list);
      assert.deepEqual(
        Uploads.map(({ Key }) => Key),
        ['unfinished'],
      );
      for (const { UploadId } of Uploads) {
        await store.client.send(new AbortMultipartUploadCommand({ ...place, UploadId }));
      }
      assert.equal((await store.client.send(list)).Uploads?.length ?? 0, 0);
    });

    it('answers a presigned GET with the type and disposition that were signed', async () => {
      await put('signed');
      const place = { Bucket: store.bucket, Key: 'signed' };
      const command = new GetObjectCommand({
        ...place,
        ResponseContentType: 'image/webp',
        ResponseContentDisposition: 'attachment; filename="x.webp"',
      });
      const url = await getSignedUrl(store.client, command, { expiresIn: 60 });
      const answer = await fetch(url);
      assert.equal(answer.headers.get('content-type'), 'image/webp');
      assert.equal(answer.headers.get('content-disposition'), 'attachment; filename="x.webp"');
      assert.deepEqual(Buffer.from(await answer.arrayBuffer()), BODY);
      const etag = answer.headers.get('etag') ?? '';
      const status = async (link: string, headers = {}) => (await fetch(link, { headers })).status;
      assert.equal(await status(url, { 'if-none-match': etag }), 304);
      assert.equal(await status(url, { range: 'bytes=0-9' }), 206);
      assert.equal(await status(url.replace('/signed?', '/a?')), 403);
      assert.equal(await status(`${url}0`), 403);
      assert.equal(await status(`${store.endpoint}/${store.bucket}/signed`), 403);
      const signingDate = new Date(Date.now() - 10_000);
      const late = await getSignedUrl(store.client, command, { expiresIn: 5, signingDate });
      assert.equal(await status(late), 403);
    });

    it('takes a presigned PUT of the bytes that were signed, once', async () => {
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
      assert.equal(await place(other), 400);
      assert.equal(await place(other, { ...headers, 'x-amz-checksum-sha256': sha256(other) }), 403);
      // Some servers judge the length and the missing header before the signature.
      assert.ok([400, 403].includes(await place(Buffer.from('short'))));
      assert.ok([400, 403].includes(await place(BODY, { 'if-none-match': '*' })));
      assert.equal(await place(BODY), 200);
      assert.equal(await place(BODY), 412);
      assert.equal((await head('placed')).ChecksumSHA256, sha256(BODY));
      client.destroy();
    });

    it('refuses the wrong secret and a clock that is off', async () => {
      const options = { endpoint: store.endpoint, region: IDENTITY.region, forcePathStyle: true };
      const credentials = { ...IDENTITY, secretAccessKey: 'wrong' };
      const stranger = new S3Client({ ...options, credentials, maxAttempts: 1 });
      const late = new S3Client({
        ...options,
        credentials: IDENTITY,
        maxAttempts: 1,
        systemClockOffset: -3_600_000,
      });
      const list = () => new ListObjectsV2Command({ Bucket: store.bucket });
      await assert.rejects(stranger.send(list()), { name: 'SignatureDoesNotMatch' });
      await assert.rejects(late.send(list()), { name: 'RequestTimeTooSkewed' });
    });

    it('keeps keys of any characters', async () => {
      const key = 'a b/ü+%.png';
      await put(key, { Body: 'q' });
      assert.equal((await get(key)).toString(), 'q');
    });
  });
}
