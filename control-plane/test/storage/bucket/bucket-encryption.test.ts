/** What an operator asks of a bucket's encryption goes with every object that is begun there. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import ava from 'ava';
import { FaultProxy } from '../../../../test/support/object-storage/fault-proxy.ts';
import { useObjectStore } from '../../../../test/support/object-storage/object-store.ts';
import { openStorage } from '../../../src/storage/open-storage.ts';
import { get, put } from '../blob-store.contract.ts';

const test = ava.serial;

const NAME = 'results/0b8f6f1e-31d3-4b0a-9d0e-2f6f4a1f0c11-1';
/** Above 8 MiB an object is sent in parts. */
const IN_PARTS_BYTES = 9 * 1024 * 1024;
const ALGORITHM = 'x-amz-server-side-encryption';
const KEY_ID = 'x-amz-server-side-encryption-aws-kms-key-id';

// Real stores want a KMS for this: what is shown here is what they are asked.

const server = useObjectStore(test, 'stand-in');
let proxy: FaultProxy;
let prefixes = 0;
test.before(async () => {
  proxy = await FaultProxy.start(server.endpoint);
});
test.after.always(() => proxy.close());
let prefix: string;
test.beforeEach(() => {
  prefixes += 1;
  prefix = `test-${prefixes}`;
});

const open = (parameters: Record<string, string>) =>
  openStorage(server.url({ endpoint: proxy.endpoint, prefix, parameters }));
/** Of what begins an object: a PUT without a part's number, or the POST that begins its parts. */
const asked = (header: string) =>
  proxy.seen
    .filter(({ url }) => url.includes(`/${prefix}/results/`))
    .filter(({ method, url }) =>
      method === 'PUT' ? !/partNumber=/.test(url) : method === 'POST' && /[?&]uploads/.test(url),
    )
    .map(({ headers }) => headers[header]);

for (const [what, bytes] of [
  ['one request', 100],
  ['parts', IN_PARTS_BYTES],
] as const) {
  test(`by the store’s own keys is asked for an object of ${what}`, async t => {
    const store = await open({ sse: 'AES256' });
    const content = randomBytes(bytes);
    await put(store, NAME, content);
    t.deepEqual(asked(ALGORITHM), ['AES256']);
    t.deepEqual(asked(KEY_ID), [undefined]);
    t.true((await get(store, NAME)).equals(content));
  });

  test(`by a key of a KMS is asked for an object of ${what}`, async t => {
    const store = await open({ sse: 'aws:kms', 'sse-kms-key-id': 'alias/matting' });
    await put(store, NAME, randomBytes(bytes));
    t.deepEqual(asked(ALGORITHM), ['aws:kms']);
    t.deepEqual(asked(KEY_ID), ['alias/matting']);
  });
}

test('is not asked for where the bucket’s own default holds', async t => {
  await put(await open({}), NAME, 'bytes');
  t.deepEqual(asked(ALGORITHM), [undefined]);
});

test('is part of what is signed for a node', async t => {
  const store = await open({ sse: 'aws:kms', 'sse-kms-key-id': 'alias/matting' });
  const content = randomBytes(100);
  const sha256 = createHash('sha256').update(content).digest('hex');
  const writing = { forMs: 60_000, bytes: content.length, sha256 };
  const { url, headers } = (await store.signed?.signWrite(NAME, writing)) ?? assert.fail();
  t.is(headers[ALGORITHM], 'aws:kms');
  t.is(headers[KEY_ID], 'alias/matting');
  const without = Object.fromEntries(
    Object.entries(headers).filter(([name]) => name !== ALGORITHM),
  );
  const send = (given: Record<string, string>) =>
    fetch(url, { method: 'PUT', headers: given, body: content });
  t.is((await send(without)).status, 403);
  t.is((await send({ ...headers, [ALGORITHM]: 'AES256' })).status, 403);
  t.is((await send(headers)).status, 200);
  t.deepEqual(await get(store, NAME), content);
});
