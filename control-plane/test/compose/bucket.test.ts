/** Needs: object-storage. */
import { randomBytes, randomUUID } from 'node:crypto';
import { silent, until } from '@matting/core/test/harness.ts';
import { Sweeper } from '@matting/core/test/internals.ts';
import { type Caller, pictureBody } from '@matting/core/test/support/replicas.ts';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import { cutOutOf } from '@matting/nodes/test/scripted-exchange.ts';
import { openStorage } from '@matting/object-storage/test/open-storage.ts';
import { list } from '@matting/storage/test/blob-store.contract.ts';
import { groupIf } from '@matting/test-support/database.ts';
import { FaultProxy } from '@matting/test-support/object-storage/fault-proxy.ts';
import {
  missingStore,
  OBJECT_STORES,
  useObjectStore,
} from '@matting/test-support/object-storage/object-store.ts';
import ava from 'ava';
import { Replicas } from '../programs.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;

for (const kind of OBJECT_STORES) {
  const group = groupIf(
    missingStore(kind) === false,
    test,
    `control planes on a bucket of ${kind}`,
  );
  const server = useObjectStore(group, kind);
  let proxy: FaultProxy;
  let caller: Caller;

  const blobs = async () => list(await openStorage(server.url()), -HOUR_MS);
  const credits = async () => {
    const found = await replicas.stores.ledger.credits(caller.accountId);
    return [found?.available, found?.reserved];
  };
  const ready = async () => (await fetch(replicas.url(0, '/readyz'))).ok;

  async function sweep(): Promise<void> {
    const { jobs, outbox, sweeps } = replicas.stores;
    const sweeper = new Sweeper({
      jobStore: jobs,
      outbox: outbox,
      blobStore: await openStorage(server.url()),
      sweeps,
      holder: randomUUID(),
      jobRetentionMs: 24 * HOUR_MS,
      logger: silent,
    });
    await sweeper.sweep();
    await sweeper.stop();
  }

  group.before(async () => {
    proxy = await FaultProxy.start(server.endpoint);
  });
  const replicas = Replicas.use(group, 'sqlite', () => ({
    replicas: 2,
    env: { MATTING_STORAGE_URL: server.url({ endpoint: proxy.endpoint }) },
  }));
  group.before(async () => {
    await replicas.addNode();
    caller = await replicas.createCaller(100);
  });
  test.afterEach.always(() => proxy?.liftAll());
  group.after.always(() => proxy.close());

  group('cut a photo, and sweep it when its link has expired', async t => {
    const picture = Buffer.concat([pngHeader(4, 3), randomBytes(1000)]);
    const done = await replicas.post(caller, { image_base64: picture.toString('base64') });
    t.is(done.status, 200, JSON.stringify(done.body));
    const { url } = done.body.result;
    const whole = await replicas.download(1, url);
    t.true(whole.bytes.equals(cutOutOf(picture)));
    const part = await fetch(replicas.url(1, new URL(url).pathname), {
      headers: { range: 'bytes=10-19' },
    });
    t.is(part.status, 206);
    const asked = Buffer.from(await part.arrayBuffer());
    t.true(asked.equals(cutOutOf(picture).subarray(10, 20)));
    const [result, ...others] = await blobs();
    t.regex(result ?? '', /^results\//);
    t.deepEqual(others, [], 'the input has gone');
    await replicas.database.kysely
      .updateTable('jobs')
      .set({ expires_at: 1, result_blob_expires_at: 1 })
      .where('result_blob', 'is not', null)
      .execute();
    t.is((await replicas.download(0, url)).status, 410);
    // A replica's own sweeper may hold the lease.
    const isSwept = async () => {
      await sweep();
      return (await blobs()).length === 0;
    };
    await until(isSwept, 'the sweep');
  });

  group('refuse a photo while the store is away, reserve nothing, and say so', async t => {
    const key = randomUUID();
    const body = pictureBody();
    const before = await credits();
    proxy.inject({ kind: 'answer', status: 403, code: 'AccessDenied' });
    const refused = await replicas.post(caller, body, { key });
    t.is(refused.status, 503);
    t.is(refused.body.code, 'SERVICE_UNAVAILABLE');
    t.notRegex(JSON.stringify(refused.body), /bucket|Denied|127\.0/);
    await until(async () => !(await ready()), 'that /readyz says so');
    const unready = await fetch(replicas.url(0, '/readyz'));
    t.regex(await unready.text(), /storage/);
    t.deepEqual(await credits(), before);
    proxy.liftAll();
    await until(ready, 'that /readyz has heard of it');
    t.is((await replicas.post(caller, body, { key })).status, 200);
  });

  group('charge nothing for a result that could not be stored', async t => {
    const before = await credits();
    const denied = { kind: 'answer', status: 403, code: 'AccessDenied' } as const;
    const injected = proxy.inject(denied, { method: 'PUT', url: /results/ });
    const failed = await replicas.post(caller, pictureBody());
    t.is(failed.body.code, 'PROCESSING_FAILED', JSON.stringify(failed.body));
    t.true(failed.body.retryable);
    t.true(injected.met > 0);
    t.deepEqual(await credits(), before);
  });

  group('answer with an error, or end the answer, rather than send another picture', async t => {
    const done = await replicas.post(caller, pictureBody());
    proxy.inject({ kind: 'corrupt-answer' }, { method: 'GET', url: /results/ });
    t.is((await replicas.download(0, done.body.result.url)).status, 503);
    const picture = Buffer.concat([pngHeader(4, 3), randomBytes(2_000_000)]);
    const large = await replicas.post(caller, { image_base64: picture.toString('base64') });
    await t.throwsAsync(replicas.download(0, large.body.result.url), { message: /terminated/ });
  });
}
