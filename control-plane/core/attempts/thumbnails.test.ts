import type { Script } from '@matting/nodes/test/scripted-exchange.ts';
import { THUMBNAIL_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import { get } from '@matting/storage/test/blob-store.contract.ts';
import ava from 'ava';
import { thumbnailBlob } from '../jobs/blob-names.ts';
import { failureOf, useHarness } from '../test/harness.ts';

const test = ava.serial;

const harness = useHarness(test);

const THUMBNAIL = Buffer.from('RIFF of a thumbnail');
const withThumbnail =
  (thumbnail?: Buffer): Script =>
  exchange =>
    exchange.cutOut({}, thumbnail);

test('a thumbnail › is asked of the node and stored beside its result', async t => {
  const node = await harness.addNode(withThumbnail(THUMBNAIL));
  await harness.startReplica();
  const job = await harness.done();
  t.true(node.headers[0]?.thumbnail);
  const blob = job.result?.blob ?? '';
  t.is(job.result?.thumbnailBytes, THUMBNAIL.length);
  t.deepEqual(await harness.blobNames(), [blob, thumbnailBlob(blob)]);
  t.true((await get(harness.blobs, thumbnailBlob(blob))).equals(THUMBNAIL));
});

for (const [what, thumbnail] of [
  ['makes none', undefined],
  ['sends too many bytes of it', Buffer.alloc(THUMBNAIL_BYTES_MAX + 1)],
] as const) {
  test(`a thumbnail › is left out if the node ${what}, and the job succeeds`, async t => {
    await harness.addNode(withThumbnail(thumbnail));
    await harness.startReplica();
    const job = await harness.done();
    t.is(job.state, 'succeeded');
    t.is(job.result?.thumbnailBytes, null);
    t.deepEqual(await harness.blobNames(), [job.result?.blob]);
  });
}

test('a thumbnail › that the storage does not take is none, and the job succeeds and is charged', async t => {
  await harness.addNode(withThumbnail(THUMBNAIL));
  const createWriter: BlobStore['createWriter'] = async name => {
    const writer = await harness.blobs.createWriter(name);
    if (!name.endsWith('-thumbnail')) return writer;
    const commit = () => Promise.reject(new Error('no space left'));
    return { ...writer, write: () => Promise.resolve(), abort: () => writer.abort(), commit };
  };
  await harness.startReplica({ blobs: harness.storageWith({ createWriter }) });
  const job = await harness.done();
  t.is(job.result?.thumbnailBytes, null);
  t.deepEqual(await harness.blobNames(), [job.result?.blob]);
  await harness.assertMoneySettled({ charged: 1 });
});

test('a thumbnail › goes with a result that cannot be stored', async t => {
  await harness.addNode(withThumbnail(THUMBNAIL));
  await harness.startReplica({ blobs: harness.storageWith({ stat: async () => undefined }) });
  t.deepEqual(failureOf(await harness.done()), ['PROCESSING_FAILED', true]);
  t.deepEqual(await harness.blobNames(), []);
});

test('a thumbnail › goes with the result of an attempt that was overtaken', async t => {
  await harness.addNode(withThumbnail(THUMBNAIL));
  const { queue } = harness.stores;
  let overtaken = 0;
  const succeed: typeof queue.succeed = async (claim, ...others) => {
    overtaken += 1;
    if (overtaken > 1) return await queue.succeed(claim, ...others);
    await queue.endLease(claim.jobId);
    return false;
  };
  await harness.startReplica({ queue: { ...queue, succeed } });
  const job = await harness.done();
  const blob = job.result?.blob ?? '';
  t.is(blob, `results/${job.id}-2`);
  t.deepEqual(await harness.blobNames(), [blob, thumbnailBlob(blob)]);
});
