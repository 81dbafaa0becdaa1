/** Attempts whose files go straight between a node and a bucket. */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import { WITH_PICTURE } from '@matting/core/test/fixtures.ts';
import { failureOf, type Replica, silent, until, useHarness } from '@matting/core/test/harness.ts';
import { backgroundBlob, Sweeper, thumbnailBlob } from '@matting/core/test/internals.ts';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import { type Exchange, inTurn, type Script } from '@matting/nodes/test/scripted-exchange.ts';
import type {
  DirectInput,
  ResultHeader,
  ResultPlace,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import type { BlobPart, BlobStore } from '@matting/storage/blob-store.ts';
import { joinBlobStores } from '@matting/storage/open-storage.ts';
import { put as putBlob } from '@matting/storage/test/blob-store.contract.ts';
import { FaultProxy } from '@matting/test-support/object-storage/fault-proxy.ts';
import {
  CREDENTIALS_ENV,
  createObjectStore,
  missingStore,
  OBJECT_STORE,
  type TestObjectStore,
} from '@matting/test-support/object-storage/object-store.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import ava from 'ava';
import { openStorage } from '../test/open-storage.ts';
import { openDirectPaths } from './direct-attempts.ts';

const test = ava.serial.skipIf(isNotTested(missingStore(OBJECT_STORE)));

const RESULT = Buffer.concat([pngHeader(10, 10), Buffer.from('pixels')]);

async function get({ url }: DirectInput): Promise<Buffer> {
  const answer = await fetch(url, { redirect: 'error' });
  assert.equal(answer.status, 200, await answer.clone().text());
  return Buffer.from(await answer.arrayBuffer());
}

/** @returns the store's status */
async function put({ url, headers }: ResultPlace, body: Uint8Array = RESULT): Promise<number> {
  const { 'content-length': _, ...signed } = headers;
  const answer = await fetch(url, { method: 'PUT', headers: signed, body: Buffer.from(body) });
  await answer.arrayBuffer();
  return answer.status;
}

const DIGEST = createHash('sha256').update(RESULT).digest();

/**
 * Acts as a node, but `stored` decides what it puts at its address; without an origin it streams.
 */
function direct(
  stored: (place: ResultPlace, exchange: Exchange) => Promise<void>,
  changes: Partial<ResultHeader> = {},
): Script {
  return async exchange => {
    if (exchange.header.directOrigin === '') return await exchange.cutOut();
    exchange.admit();
    await get(await exchange.references());
    await stored(await exchange.askPlace(RESULT, changes), exchange);
    exchange.done(DIGEST);
    exchange.end();
  };
}

function made(result: Buffer, changes: Partial<ResultHeader> = {}): Script {
  return async exchange => {
    exchange.admit();
    await get(await exchange.references());
    assert.equal(await put(await exchange.askPlace(result, changes), result), 200);
    exchange.done(createHash('sha256').update(result).digest());
    exchange.end();
  };
}

const wellDone = direct(async place => assert.equal(await put(place), 200));

let store: TestObjectStore;
let blobs: BlobStore;
const harness = useHarness(test, () => blobs);
harness.openDirect = through => openDirectPaths(through, silent);

test.before(async () => {
  Object.assign(process.env, CREDENTIALS_ENV);
  store = await createObjectStore(OBJECT_STORE);
  blobs = await openStorage(store.url());
});

test.after.always(() => store.close());

test.afterEach.always(() => store.empty());

const origin = () => {
  assert.ok(blobs.signed);
  return blobs.signed.origin;
};

const joined = (script: Script, directOrigins = [origin()]) =>
  harness.addNode({ script, info: { directOrigins } });

const isDirect = ({ directOrigin }: { directOrigin: string }) => directOrigin !== '';
const attempts = ({ observed }: Replica) =>
  observed.filter(line => line.startsWith('attempt') || line.startsWith('direct'));

test('a node that lists the origin of the storage › gets the picture and puts the result, and nothing of them passes here', async t => {
  const input = Buffer.from('the bytes of a picture');
  let got: Buffer | undefined;
  const node = await joined(async exchange => {
    exchange.admit();
    got = await get(await exchange.references());
    t.is(await put(await exchange.askPlace(RESULT)), 200);
    exchange.done(DIGEST, Buffer.from('a thumbnail'));
    exchange.end();
  });
  const replica = await harness.startReplica();
  const job = await harness.done({ bytes: input });
  t.is(job.state, 'succeeded');
  t.deepEqual(got, input);
  t.deepEqual(await harness.resultOf(job), RESULT);
  t.is(job.result?.sha256, DIGEST.toString('hex'));
  t.deepEqual([job.result?.width, job.result?.height], [10, 10]);
  t.deepEqual(node.headers.map(isDirect), [true]);
  t.deepEqual(attempts(replica), ['attempt done', 'direct done']);
  const blob = job.result?.blob ?? '';
  t.deepEqual(await harness.blobNames(), [blob, thumbnailBlob(blob)], 'which came in the call');
  await harness.assertMoneySettled({ charged: 1 });
});

test('a node that lists the origin of the storage › puts nothing but the bytes it announced, and nothing twice', async t => {
  const statuses: number[] = [];
  await joined(
    direct(async place => {
      statuses.push(await put(place, Buffer.concat([RESULT, Buffer.from('!')])));
      statuses.push(await put(place, Buffer.alloc(RESULT.length)));
      statuses.push(await put({ ...place, headers: {} }));
      statuses.push(await put(place));
      statuses.push(await put(place));
    }),
  );
  await harness.startReplica();
  const job = await harness.done();
  t.true(
    statuses.slice(0, 3).every(status => status >= 400 && status < 500),
    statuses.join(),
  );
  t.deepEqual(statuses.slice(3), [200, 412]);
  t.deepEqual(await harness.resultOf(job), RESULT);
});

test('a node that lists the origin of the storage › gets the picture of the background too', async t => {
  const id = randomUUID();
  const blob = backgroundBlob(id);
  await putBlob(blobs, blob, 'behind');
  let behind: Buffer | undefined;
  const script: Script = async exchange => {
    exchange.admit();
    const references = await exchange.references();
    await get(references);
    behind = await get({ ...references, url: references.backgroundUrl });
    t.is(await put(await exchange.askPlace(RESULT, { width: 10, height: 10 })), 200);
    exchange.done(DIGEST);
    exchange.end();
  };
  await joined(script);
  await harness.startReplica();
  const input = { blob, bytes: 6, format: 'jpeg', width: 30, height: 20 } as const;
  const asked = {
    ...WITH_PICTURE,
    outputFormat: 'png',
    background: { url: null, input },
  } as const;
  const job = await harness.done({ asked });
  t.is(job.state, 'succeeded');
  t.is(behind?.toString(), 'behind');
});

test('a node that lists the origin of the storage › is streamed to where it lists another origin, or none', async t => {
  const nodes = [await joined(wellDone, ['https://elsewhere.example']), await joined(wellDone, [])];
  const replica = await harness.startReplica();
  for (let sent = 0; sent < 2; sent += 1) {
    t.is((await harness.done()).state, 'succeeded');
  }
  t.deepEqual(
    nodes.flatMap(node => node.headers.map(isDirect)),
    [false, false],
  );
  t.deepEqual(attempts(replica), ['attempt done', 'attempt done']);
});

const overwrite = async (place: ResultPlace, body: Uint8Array) => {
  assert.equal(await put(place), 200);
  const Key = new URL(place.url).pathname.split('/').slice(2).join('/');
  await store.client.send(new PutObjectCommand({ Bucket: store.bucket, Key, Body: body }));
};
const jpeg = Buffer.from('ffd8ffc0000b08000a000a01011100', 'hex');
const lies: Record<string, Script> = {
  'that was never put': direct(async () => undefined),
  'that the store refused': direct(async place => {
    assert.equal(await put(place, Buffer.from('something else')), 400);
  }),
  'altered in the store': direct(place =>
    overwrite(place, Buffer.concat([RESULT.subarray(0, -1), Buffer.from('X')])),
  ),
  'cut off in the store': direct(place => overwrite(place, RESULT.subarray(0, 20))),
  'removed from the store': direct(async (place, exchange) => {
    assert.equal(await put(place), 200);
    await blobs.remove(`results/${exchange.header.jobId}-${exchange.header.attempt}`);
  }),
  'of another format': made(jpeg),
  'of no format': made(Buffer.from('no picture at all')),
  'of another size than announced': made(pngHeader(9, 10)),
  'of another size than the input, as announced': made(pngHeader(20, 20), {
    width: 20,
    height: 20,
  }),
};
for (const [what, script] of Object.entries(lies)) {
  test(`a result that is not what was placed › ${what} is not taken, and the job is done under another fence`, async t => {
    const node = await joined(inTurn(script, wellDone));
    const replica = await harness.startReplica();
    const job = await harness.done();
    t.is(job.state, 'succeeded', job.failure?.detail);
    t.deepEqual(await harness.resultOf(job), RESULT);
    t.deepEqual(
      node.headers.map(header => header.attempt),
      [1, 2],
    );
    t.deepEqual(await harness.blobNames(), [job.result?.blob], 'the first is removed');
    t.is(attempts(replica)[1], 'direct node-fault');
    await harness.assertMoneySettled({ charged: 1 });
  });
}

test('a node that cannot reach the storage › has the picture streamed at once, and the next ones too, for a while', async t => {
  const node = await joined(
    inTurn(async exchange => {
      exchange.admit();
      await exchange.references();
      exchange.fail('STORAGE_UNREACHABLE');
    }, wellDone),
  );
  const replica = await harness.startReplica();
  const job = await harness.done();
  t.is(job.state, 'succeeded');
  t.deepEqual([job.lostAttempts, job.lostWithProcess], [0, 0]);
  t.is(job.result?.blob, `results/${job.id}-1`, 'under the same claim');
  t.is((await harness.done()).state, 'succeeded');
  t.deepEqual(node.headers.map(isDirect), [true, false, false]);
  t.is(attempts(replica)[0], 'attempt storage-fault STORAGE_UNREACHABLE');
  await harness.assertMoneySettled({ charged: 2 });
});

test('a node that cannot reach the storage › for the result has the picture streamed under another fence', async t => {
  const node = await joined(
    direct(async (_place, exchange) => exchange.fail('STORAGE_UNREACHABLE')),
  );
  await harness.startReplica();
  const job = await harness.done();
  t.is(job.state, 'succeeded');
  t.is(job.result?.blob, `results/${job.id}-2`);
  t.deepEqual(node.headers.map(isDirect), [true, false]);
});

test('storage of our own that fails › under a result fails the job, which may be sent again, and costs nothing', async t => {
  const proxy = await FaultProxy.start(store.endpoint);
  const through = await openStorage(store.url({ endpoint: proxy.endpoint }));
  await harness.close();
  await harness.open(through);
  await joined(wellDone, [through.signed?.origin ?? '']);
  proxy.inject({ kind: 'answer', status: 403, code: 'AccessDenied' }, { method: 'HEAD' });
  await harness.startReplica({ blobs: through });
  const job = await harness.done();
  t.deepEqual(failureOf(job), ['PROCESSING_FAILED', true]);
  t.regex(job.failure?.detail ?? '', /storage failed/);
  await harness.assertMoneySettled({ charged: 0 });
  await until(async () => (await harness.blobNames()).length === 0, 'nothing left');
  await proxy.close();
});

test('an image that only the fallback of the storage has is streamed, and blames no node', async t => {
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-direct-'));
  const second = await openStorage(directory);
  await harness.close();
  await harness.open(joinBlobStores(blobs, second));
  const node = await joined(wellDone);
  await harness.startReplica();
  const blob = `inputs/${randomUUID()}`;
  await putBlob(second, blob, RESULT);
  const input = { blob, bytes: RESULT.length, format: 'png', width: 10, height: 10 } as const;
  t.is((await harness.done({ asked: { input } })).state, 'succeeded');
  t.is((await harness.done()).state, 'succeeded');
  t.deepEqual(node.headers.map(isDirect), [true, false, true]);
  await harness.assertMoneySettled({ charged: 2 });
  await rm(directory, { recursive: true });
});

test('a holder that is late › has a key of its own, and replaces nothing', async t => {
  const late = Promise.withResolvers<number>();
  const done = Promise.withResolvers<void>();
  await joined(
    inTurn(
      direct(async (place, exchange) => {
        await harness.stores.queue.endLease(exchange.header.jobId);
        await done.promise;
        late.resolve(await put(place));
      }),
      wellDone,
    ),
  );
  await harness.startReplica({ holder: 'first' });
  await harness.startReplica({ holder: 'second' });
  const jobId = await harness.submit();
  const job = await harness.untilFinal(jobId);
  t.is(job.result?.blob, `results/${jobId}-2`);
  done.resolve();
  t.is(await late.promise, 200);
  const names = [`results/${jobId}-1`, `results/${jobId}-2`];
  t.deepEqual(
    (await harness.blobNames()).filter(name => !names.includes(name)),
    [],
  );
  t.deepEqual(await harness.resultOf(job), RESULT);
  await harness.assertMoneySettled({ charged: 1 });
});

test('a holder that is late › finds its place over with the attempt', async t => {
  let place: ResultPlace | undefined;
  await joined(
    inTurn(
      direct(async (given, exchange) => {
        place = given;
        t.true(given.validMs <= 60_000);
        exchange.fail('ENGINE_LOST');
      }),
      wellDone,
    ),
  );
  await harness.startReplica({ attemptTimeoutMs: 60_000 });
  t.is((await harness.done()).state, 'succeeded');
  assert.ok(place);
  const seconds = new URL(place.url).searchParams.get('X-Amz-Expires');
  t.true(Number(seconds) >= 1 && Number(seconds) <= 60, `${seconds} s`);
});

test('the sweeper removes a result whose control plane died before it wrote the row', async t => {
  await joined(wellDone);
  const { jobs, queue, sweeps, outbox } = harness.stores;
  let died = false;
  const dying = new Proxy(queue, {
    get(target, name) {
      const method = Reflect.get(target, name);
      if (name !== 'succeed' || died) return method.bind(target);
      return async () => {
        died = true;
        throw new Error('it died here');
      };
    },
  });
  await harness.startReplica({ queue: dying });
  const jobId = await harness.submit();
  await until(() => died, 'the end of the first attempt');
  await queue.endLease(jobId);
  const job = await harness.untilFinal(jobId);
  const both = [`results/${jobId}-1`, `results/${jobId}-2`];
  await until(async () => isDeepStrictEqual(await harness.blobNames(), both), 'two results');
  // Nothing can move the store's clock.
  const later = new Proxy(blobs, {
    get: (target, name) =>
      name === 'listOlderThan'
        ? (olderThanMs: number, part?: BlobPart) =>
            target.listOlderThan(olderThanMs - 2 * 3_600_000, part)
        : Reflect.get(target, name),
  });
  const sweeper = new Sweeper({
    ...{ jobStore: jobs, outbox: outbox, blobStore: later, sweeps },
    holder: 'sweeper',
    jobRetentionMs: 30 * 86_400_000,
    logger: silent,
  });
  await sweeper.sweep();
  t.deepEqual(await harness.blobNames(), [job.result?.blob]);
  t.deepEqual(await harness.resultOf(job), RESULT);
  await harness.assertMoneySettled({ charged: 1 });
});
