/** Two control planes on one bucket: jobs, links and the sweep; and while the store is away. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { after, afterEach, before, describe, it } from 'node:test';
import { FaultProxy } from '../../../test/support/object-storage/fault-proxy.ts';
import {
  missingStore,
  OBJECT_STORES,
  useObjectStore,
} from '../../../test/support/object-storage/object-store.ts';
import { Sweeper } from '../../src/services/sweeping/sweep.ts';
import { openStorage } from '../../src/storage/open-storage.ts';
import { cutOutOf } from '../nodes/scripted-exchange.ts';
import { silent, until } from '../services/dispatch/harness.ts';
import { list } from '../storage/blob-store.contract.ts';
import { type Caller, pictureBody, Replicas } from '../support/replicas.ts';
import { pngHeader } from '../support/test-app.ts';

const HOUR_MS = 3_600_000;

for (const kind of OBJECT_STORES) {
  describe(`control planes on a bucket of ${kind}`, { skip: missingStore(kind) }, () => {
    const server = useObjectStore(kind);
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

    before(async () => {
      proxy = await FaultProxy.start(server.endpoint);
    });
    const replicas = Replicas.use('sqlite', () => ({
      replicas: 2,
      env: { MATTING_STORAGE_URL: server.url({ endpoint: proxy.endpoint }) },
    }));
    before(async () => {
      await replicas.addNode();
      caller = await replicas.createCaller(100);
    });
    afterEach(() => proxy.liftAll());
    after(() => proxy.close());

    it('cut a small and a large photo, and sweep both when their links have expired', async () => {
      for (const bytes of [1000, 9_000_000]) {
        const picture = Buffer.concat([pngHeader(4, 3), randomBytes(bytes)]);
        const done = await replicas.post(caller, { image_base64: picture.toString('base64') });
        assert.equal(done.status, 200, JSON.stringify(done.body));
        const { url } = done.body.result;
        const whole = await replicas.download(1, url);
        assert.ok(whole.bytes.equals(cutOutOf(picture)));
        const part = await fetch(replicas.url(1, new URL(url).pathname), {
          headers: { range: 'bytes=10-19' },
        });
        assert.equal(part.status, 206);
        const asked = Buffer.from(await part.arrayBuffer());
        assert.ok(asked.equals(cutOutOf(picture).subarray(10, 20)));
        const [result, ...others] = await blobs();
        assert.match(result ?? '', /^results\//);
        assert.deepEqual(others, [], 'the input has gone');
        await replicas.database.kysely
          .updateTable('jobs')
          .set({ expires_at: 1, result_blob_expires_at: 1 })
          .where('result_blob', 'is not', null)
          .execute();
        assert.equal((await replicas.download(0, url)).status, 410);
        // A replica's own sweeper may have the turn.
        const isSwept = async () => {
          await sweep();
          return (await blobs()).length === 0;
        };
        await until(isSwept, 'the sweep');
      }
    });

    it('refuse a photo while the store is away, reserve nothing, and say so', async () => {
      const key = randomUUID();
      const body = pictureBody();
      const before = await credits();
      proxy.inject({ kind: 'answer', status: 403, code: 'AccessDenied' });
      const refused = await replicas.post(caller, body, { key });
      assert.equal(refused.status, 503);
      assert.equal(refused.body.code, 'SERVICE_UNAVAILABLE');
      assert.doesNotMatch(JSON.stringify(refused.body), /bucket|Denied|127\.0/);
      await until(async () => !(await ready()), 'that /readyz says so');
      const unready = await fetch(replicas.url(0, '/readyz'));
      assert.match(await unready.text(), /storage/);
      assert.deepEqual(await credits(), before);
      proxy.liftAll();
      await until(ready, 'that /readyz has heard of it');
      assert.equal((await replicas.post(caller, body, { key })).status, 200);
    });

    it('charge nothing for a result that could not be stored', async () => {
      const before = await credits();
      const denied = { kind: 'answer', status: 403, code: 'AccessDenied' } as const;
      const injected = proxy.inject(denied, { method: 'PUT', url: /results/ });
      const failed = await replicas.post(caller, pictureBody());
      assert.equal(failed.body.code, 'PROCESSING_FAILED', JSON.stringify(failed.body));
      assert.equal(failed.body.retryable, true);
      assert.ok(injected.met > 0);
      assert.deepEqual(await credits(), before);
    });

    it("store a result once, and charge it once, where the store's answer is lost", async () => {
      const [available] = await credits();
      proxy.inject({ kind: 'lose-answer' }, { method: 'PUT', url: /results/, times: 1 });
      const done = await replicas.post(caller, pictureBody());
      assert.equal(done.status, 200, JSON.stringify(done.body));
      assert.deepEqual(await credits(), [Number(available) - 1, 0]);
      assert.equal((await replicas.download(1, done.body.result.url)).status, 200);
    });

    it('fail a job whose input the store does not give, and charge nothing', async () => {
      const before = await credits();
      proxy.inject({ kind: 'refuse' }, { method: 'GET', url: /inputs/ });
      const failed = await replicas.post(caller, pictureBody());
      assert.equal(failed.body.code, 'PROCESSING_FAILED', JSON.stringify(failed.body));
      assert.equal(failed.body.retryable, true);
      assert.deepEqual(await credits(), before);
    });

    it('answer with an error, or end the answer, rather than send another picture', async () => {
      const done = await replicas.post(caller, pictureBody());
      proxy.inject({ kind: 'corrupt-answer' }, { method: 'GET', url: /results/ });
      assert.equal((await replicas.download(0, done.body.result.url)).status, 503);
      const picture = Buffer.concat([pngHeader(4, 3), randomBytes(2_000_000)]);
      const large = await replicas.post(caller, { image_base64: picture.toString('base64') });
      await assert.rejects(replicas.download(0, large.body.result.url), /terminated/);
    });
  });
}
