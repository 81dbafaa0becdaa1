/** For every kind of blob store. */
import { text } from 'node:stream/consumers';
import type { ExecutionContext } from 'ava';
import { BlobNotFoundError, type BlobReading, type BlobStore } from '../blob-store.ts';

const NAME = 'inputs/0b8f6f1e-31d3-4b0a-9d0e-2f6f4a1f0c11';
const HOUR_MS = 3_600_000;

export async function put(store: BlobStore, name: string, content: string | Buffer): Promise<void> {
  const writer = await store.createWriter(name);
  try {
    await writer.write(Buffer.from(content));
    await writer.commit();
  } finally {
    await writer.abort();
  }
}

export async function get(store: BlobStore, name: string, reading?: BlobReading): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of await store.openRead(name, reading)) parts.push(part);
  return Buffer.concat(parts);
}

export async function list(
  store: BlobStore,
  ...listed: Parameters<BlobStore['listOlderThan']>
): Promise<string[]> {
  const names: string[] = [];
  for await (const name of store.listOlderThan(...listed)) names.push(name);
  return names.sort();
}

type Declare = (title: string, body: (t: ExecutionContext) => unknown) => void;

/** `test` must be serial: each test needs an empty store. */
export function testBlobStore(test: Declare, storeOf: () => BlobStore): void {
  test('names › are of a kind and an id, and of nothing else', async t => {
    const names = [
      ...['../x', 'inputs/../secret', 'inputs/..', 'secret', '/etc/passwd', 'inputs/', ''],
      ...['other/x', 'inputs/a/b', 'inputs/a.b', 'inputs/a\0', `inputs/${'a'.repeat(129)}`],
    ];
    for (const name of names) {
      await t.throwsAsync(storeOf().openRead(name), { instanceOf: TypeError }, name);
      await t.throwsAsync(storeOf().stat(name), { instanceOf: TypeError }, name);
      await t.throwsAsync(storeOf().remove(name), { instanceOf: TypeError }, name);
      await t.throwsAsync(storeOf().createWriter(name), { instanceOf: TypeError }, name);
    }
    await t.throwsAsync(storeOf().createWriter('tmp/x'), { instanceOf: TypeError });
  });

  test('a missing blob › is not found, has no size, and can be removed', async t => {
    await t.throwsAsync(storeOf().openRead(NAME), { instanceOf: BlobNotFoundError });
    t.is(await storeOf().stat(NAME), undefined);
    await t.notThrowsAsync(storeOf().remove(NAME));
  });

  testWriting(test, storeOf);
  testReading(test, storeOf);
  testListing(test, storeOf);

  test('can be written', t => t.notThrowsAsync(storeOf().check()));
}

function testWriting(test: Declare, storeOf: () => BlobStore): void {
  test('writing › shows nothing under the name until it is committed, then all of it', async t => {
    const writer = await storeOf().createWriter(NAME);
    await writer.write(Buffer.from('hello '));
    await writer.write(Buffer.from('world'));
    t.is(await storeOf().stat(NAME), undefined);
    await writer.commit();
    t.is((await storeOf().stat(NAME))?.bytes, 11);
    t.is(String(await get(storeOf(), NAME)), 'hello world');
  });

  test('writing › reads back what was written so far, and no further', async t => {
    const writer = await storeOf().createWriter(NAME);
    await writer.write(Buffer.from('0123456789'));
    t.is(writer.bytesWritten, 10);
    t.is(Buffer.from(await writer.readAt(2, 3)).toString(), '234');
    t.is(Buffer.from(await writer.readAt(8, 100)).toString(), '89');
    t.is((await writer.readAt(10, 1)).length, 0);
    t.is((await writer.readAt(500, 1)).length, 0);
    await writer.write(Buffer.from('ab'));
    t.is(Buffer.from(await writer.readAt(9, 10)).toString(), '9ab');
    await writer.abort();
  });

  test('writing › leaves nothing when it is aborted, as often as one likes', async t => {
    const writer = await storeOf().createWriter(NAME);
    await writer.write(Buffer.from('x'));
    await writer.abort();
    await writer.abort();
    t.deepEqual(await list(storeOf(), -HOUR_MS), []);
  });

  test('writing › keeps the blob when an abort follows the commit', async t => {
    const writer = await storeOf().createWriter(NAME);
    await writer.write(Buffer.from('x'));
    await writer.commit();
    await writer.abort();
    t.is(String(await get(storeOf(), NAME)), 'x');
  });

  test('writing › takes an empty blob, and large ones of any size', async t => {
    const part = 8 * 1024 * 1024;
    // A bucket takes larger blobs in parts.
    const sizes = [0, 1, part, part + 1, 2 * part + 12_345];
    for (const size of sizes) {
      const bytes = Buffer.alloc(size, `abcdefg${size}`);
      const writer = await storeOf().createWriter(`results/sized-${size}`);
      for (let at = 0; at < size; at += 1_000_003) {
        await writer.write(bytes.subarray(at, at + 1_000_003));
      }
      await writer.commit();
      t.is((await storeOf().stat(`results/sized-${size}`))?.bytes, size);
      t.true((await get(storeOf(), `results/sized-${size}`)).equals(bytes), `${size} bytes`);
    }
  });

  test('writing › commits many at once, each whole', async t => {
    const names = Array.from({ length: 30 }, (_, index) => `inputs/many-${index}`);
    await Promise.all(names.map(name => put(storeOf(), name, `blob ${name}`)));
    for (const name of names) {
      t.is(String(await get(storeOf(), name)), `blob ${name}`);
    }
  });
}

function testReading(test: Declare, storeOf: () => BlobStore): void {
  test('reading › gives the bytes of a range, both ends included', async t => {
    await put(storeOf(), NAME, '0123456789');
    const read = async (start: number, end?: number) =>
      String(await get(storeOf(), NAME, { start, ...(end === undefined ? {} : { end }) }));
    t.is(await read(0, 0), '0');
    t.is(await read(3, 5), '345');
    t.is(await read(8, 99), '89');
    t.is(await read(7), '789');
    t.is(await read(10), '');
  });

  test('reading › goes on after the blob was removed, once it has begun', async t => {
    await put(storeOf(), NAME, 'still here');
    const stream = await storeOf().openRead(NAME);
    await storeOf().remove(NAME);
    t.is(await text(stream), 'still here');
    await t.throwsAsync(storeOf().openRead(NAME), { instanceOf: BlobNotFoundError });
  });

  test('reading › ends where its reader does, at any place', async t => {
    await put(storeOf(), NAME, Buffer.alloc(2_000_000, 'x'));
    for (const pieces of [0, 1, 3]) {
      const stream = await storeOf().openRead(NAME, { pieceBytes: 64 * 1024 });
      const iterator = stream[Symbol.asyncIterator]();
      for (let piece = 0; piece < pieces; piece += 1) await iterator.next();
      const closed = new Promise(resolve => stream.once('close', resolve));
      stream.destroy();
      await closed;
      t.is(stream.errored, null, `after ${pieces} pieces`);
    }
  });
}

function testListing(test: Declare, storeOf: () => BlobStore): void {
  test('the list of old blobs › holds all of them, none that is young, and each in one part', async t => {
    const names = ['inputs/a-1', 'inputs/9', 'backgrounds/b', 'results/_c-2', 'results/Z'].sort();
    for (const name of names) await put(storeOf(), name, 'x');
    t.deepEqual(await list(storeOf(), HOUR_MS), []);
    t.deepEqual(await list(storeOf(), -HOUR_MS), names);
    // Sequential: a directory's listing creates a file to read its clock.
    const parts: string[][] = [];
    for (const part of [0, 1, 2, 0, 1, 2]) {
      parts.push(await list(storeOf(), -HOUR_MS, { part, of: 3 }));
    }
    t.deepEqual(parts.slice(0, 3).flat().sort(), names);
    t.deepEqual(parts.slice(3), parts.slice(0, 3));
  });

  test('the list of old blobs › outlives removals while it is read', async t => {
    for (let i = 0; i < 20; i += 1) await put(storeOf(), `inputs/job-${i}`, 'x');
    const seen: string[] = [];
    for await (const name of storeOf().listOlderThan(-HOUR_MS)) {
      seen.push(name);
      if (seen.length > 1) continue;
      for (let i = 0; i < 20; i += 1) await storeOf().remove(`inputs/job-${i}`);
    }
    t.true(seen.length > 0);
    t.deepEqual(await list(storeOf(), -HOUR_MS), []);
  });
}
