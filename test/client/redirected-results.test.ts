/** Needs: object-storage, portal. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import ava from 'ava';
import type { Retry, SucceededJob } from '../../client/src/index.ts';
import { bucketStorage } from '../../control-plane/object-storage/object-storage.ts';
import { FaultProxy } from '../support/object-storage/fault-proxy.ts';
import {
  missingStore,
  OBJECT_STORE,
  useObjectStore,
} from '../support/object-storage/object-store.ts';
import { isNotTested } from '../support/skip.ts';
import { type ClientHarness, newPicture, openClientHarness } from './client-harness.ts';

const test = ava.serial.skipIf(isNotTested(missingStore(OBJECT_STORE)));

const CUT_OUT = randomBytes(300_000);

const store = useObjectStore(test, OBJECT_STORE);
let bucket: FaultProxy;
let harness: ClientHarness;
let job: SucceededJob;

test.before(async () => {
  bucket = await FaultProxy.start(store.endpoint);
  const storageUrl = store.url({ endpoint: bucket.endpoint });
  const storage = { storageUrl, storageKinds: [bucketStorage] };
  harness = await openClientHarness({ ...storage, resultDownloads: 'redirect' });
  const node = harness.serve(CUT_OUT);
  job = await harness.client.run({ image: newPicture() });
  await node.stop();
});
test.afterEach.always(() => {
  bucket.liftAll();
  harness.proxy.clear();
});
test.after.always(async () => {
  await harness?.close();
  await bucket?.close();
});

const downloads = () =>
  bucket.seen.filter(({ method, url }) => method === 'GET' && url.includes('X-Amz-Signature'));

async function download(): Promise<Retry[]> {
  const retries: Retry[] = [];
  const onRetry = (retry: Retry) => retries.push(retry);
  assert.ok(CUT_OUT.equals((await harness.client.download(job, { onRetry })).bytes));
  return retries;
}

test('the bucket sees neither key nor cookie', async t => {
  await download();
  const seen = downloads().at(-1);
  assert.ok(seen);
  t.is(seen.headers.authorization, undefined);
  t.is(seen.headers.cookie, undefined);
  t.false(JSON.stringify(seen).includes(harness.app.token));
});

test('a download that breaks off goes on by a URL of its own', async t => {
  const get = { method: 'GET', url: /X-Amz-Signature/, times: 1 };
  bucket.inject({ kind: 'reset-answer', afterBytes: 100_000 }, get);
  const retries = await download();
  t.deepEqual(
    retries.map(({ error }) => error.code),
    ['NO_ANSWER'],
  );
  t.regex(downloads().at(-1)?.headers.range ?? '', /^bytes=[1-9]\d*-$/);
  t.is(harness.proxy.sent('GET').length, 2);
});

for (const [status, code] of [
  [403, 'AccessDenied'],
  [404, 'NoSuchKey'],
  [503, 'SlowDown'],
] as const) {
  test(`${code} of the bucket is asked again of the link`, async t => {
    const get = { method: 'GET', url: /X-Amz-Signature/, times: 1 };
    bucket.inject({ kind: 'answer', status, code }, get);
    const [retry, ...more] = await download();
    t.deepEqual([retry?.error.code, retry?.error.status], ['UNREADABLE_ANSWER', status]);
    t.false(JSON.stringify(retry?.error.message).includes('X-Amz'));
    t.deepEqual(more, []);
    t.is(harness.proxy.sent('GET').length, 2);
  });
}

test('the answer of the call that made it goes on from here', async t => {
  const node = harness.serve(CUT_OUT);
  harness.proxy.faults = ['half'];
  const before = downloads().length;
  const { bytes } = await harness.client.cutOut({ image: newPicture() });
  await node.stop();
  t.true(CUT_OUT.equals(bytes));
  t.is(downloads().length, before);
});
