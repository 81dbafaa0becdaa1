/** The client where result links lead to a bucket: it follows them, without its key. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, afterEach, before, describe, test } from 'node:test';
import { FaultProxy } from '../../test/support/object-storage/fault-proxy.ts';
import { useObjectStore } from '../../test/support/object-storage/object-store.ts';
import type { Retry, SucceededJob } from '../src/index.ts';
import { type ClientHarness, newPicture, openClientHarness } from './client-harness.ts';

const CUT_OUT = randomBytes(300_000);

describe('results behind redirects', () => {
  const store = useObjectStore('stand-in');
  let bucket: FaultProxy;
  let harness: ClientHarness;
  let job: SucceededJob;

  before(async () => {
    bucket = await FaultProxy.start(store.endpoint);
    const storageUrl = store.url({ endpoint: bucket.endpoint });
    harness = await openClientHarness({ storageUrl, resultDownloads: 'redirect' });
    const node = harness.serve(CUT_OUT);
    job = await harness.client.run({ image: newPicture() });
    await node.stop();
  });
  afterEach(() => {
    bucket.liftAll();
    harness.proxy.clear();
  });
  after(async () => {
    await harness?.close();
    await bucket?.close();
  });

  const downloads = () =>
    bucket.seen.filter(({ method, url }) => method === 'GET' && url.includes('X-Amz-Signature'));

  async function download(): Promise<Retry[]> {
    const retries: Retry[] = [];
    const onRetry = (retry: Retry) => retries.push(retry);
    assert.ok(CUT_OUT.equals(await harness.client.download(job, { onRetry })));
    return retries;
  }

  test('the bucket sees neither key nor cookie', async () => {
    await download();
    const seen = downloads().at(-1);
    assert.ok(seen);
    assert.equal(seen.headers.authorization, undefined);
    assert.equal(seen.headers.cookie, undefined);
    assert.ok(!JSON.stringify(seen).includes(harness.app.token));
  });

  test('a download that breaks off goes on by a URL of its own', async () => {
    const get = { method: 'GET', url: /X-Amz-Signature/, times: 1 };
    bucket.inject({ kind: 'reset-answer', afterBytes: 100_000 }, get);
    const retries = await download();
    assert.deepEqual(
      retries.map(({ error }) => error.code),
      ['NO_ANSWER'],
    );
    assert.match(downloads().at(-1)?.headers.range ?? '', /^bytes=[1-9]\d*-$/);
    assert.equal(harness.proxy.sent('GET').length, 2);
  });

  for (const [status, code] of [
    [403, 'AccessDenied'],
    [404, 'NoSuchKey'],
    [503, 'SlowDown'],
  ] as const) {
    test(`${code} of the bucket is asked again of the link`, async () => {
      const get = { method: 'GET', url: /X-Amz-Signature/, times: 1 };
      bucket.inject({ kind: 'answer', status, code }, get);
      const [retry, ...more] = await download();
      assert.deepEqual([retry?.error.code, retry?.error.status], ['UNREADABLE_ANSWER', status]);
      assert.ok(!JSON.stringify(retry?.error.message).includes('X-Amz'));
      assert.deepEqual(more, []);
      assert.equal(harness.proxy.sent('GET').length, 2);
    });
  }

  test('the answer of the call that made it goes on from here', async () => {
    const node = harness.serve(CUT_OUT);
    harness.proxy.faults = ['half'];
    const before = downloads().length;
    const { bytes } = await harness.client.cutOut({ image: newPicture() });
    await node.stop();
    assert.ok(CUT_OUT.equals(bytes));
    assert.equal(downloads().length, before);
  });
});
