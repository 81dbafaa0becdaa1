/** What the faults do that bucket-faults.test.ts, which meets them all, cannot see from where it is. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, beforeEach, describe, it } from 'node:test';
import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { type Fault, FaultProxy } from './fault-proxy.ts';
import { IDENTITY, useObjectStore } from './object-store.ts';

const BODY = randomBytes(500_000);

describe('the fault proxy', () => {
  const store = useObjectStore('stand-in');
  let proxy: FaultProxy;
  let client: S3Client;

  before(async () => {
    proxy = await FaultProxy.start(store.endpoint);
    client = new S3Client({
      endpoint: proxy.endpoint,
      region: IDENTITY.region,
      forcePathStyle: true,
      credentials: IDENTITY,
      maxAttempts: 1,
    });
  });
  after(async () => {
    client.destroy();
    await proxy.close();
  });
  beforeEach(() => proxy.liftAll());

  const put = (Key: string) =>
    client.send(new PutObjectCommand({ Bucket: store.bucket, Key, Body: BODY }));
  const get = async (Key: string) => {
    const { Body } = await client.send(
      new GetObjectCommand({ Bucket: store.bucket, Key, ChecksumMode: 'ENABLED' }),
    );
    return Buffer.from(await Body!.transformToByteArray());
  };
  const stored = (key: string) => store.contents().objects.has(key);

  it('passes on what it does not hurt, signatures included', async () => {
    const fault = proxy.inject(
      { kind: 'answer', status: 500, code: 'InternalError' },
      { url: /b$/ },
    );
    await put('a');
    assert.deepEqual(await get('a'), BODY);
    assert.equal(fault.met, 0);
    assert.ok(proxy.seen.some(({ method, url }) => method === 'GET' && url.includes('/a?')));
  });

  const lost: readonly [name: string, fault: Fault, kept: boolean][] = [
    ['in the middle of a request', { kind: 'reset-request', afterBytes: 100_000 }, false],
    ['before a request', { kind: 'refuse' }, false],
    ['after the store has done it', { kind: 'lose-answer' }, true],
  ];
  for (const [name, fault, kept] of lost) {
    it(`ends connections ${name}`, async () => {
      proxy.inject(fault, { method: 'PUT' });
      await assert.rejects(put(`lost-${fault.kind}`));
      assert.equal(stored(`lost-${fault.kind}`), kept);
    });
  }

  it('flips bytes of a request', async () => {
    proxy.inject({ kind: 'corrupt-request' });
    await assert.rejects(put('d'), error => (error as Error).name !== 'AssertionError');
    assert.equal(stored('d'), false);
  });

  it('shows another clock', async () => {
    const day = 86_400_000;
    proxy.inject({ kind: 'clock', offMs: -day });
    const answer = await fetch(`${proxy.endpoint}/x`);
    const off = Date.parse(answer.headers.get('date') ?? '') - Date.now();
    assert.ok(Math.abs(off + day) < 60_000);
  });
});
