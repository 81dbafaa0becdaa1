import { randomBytes } from 'node:crypto';
import { HeadObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import ava from 'ava';
import { type Fault, FaultProxy } from './fault-proxy.ts';
import { IDENTITY } from './object-store.ts';
import { onObjectStores } from './object-stores.ts';

const test = ava.serial;

const BODY = randomBytes(300_000);

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
