import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { UNCOUNTED } from '@matting/program/held-bytes.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { MessageReader, TEXT_BYTES_MAX } from './read-message.ts';

async function read(body: string | Buffer, chunkBytes = 65_536) {
  let image = '';
  const reader = new MessageReader(async piece => {
    image += piece.toString('latin1');
  }, UNCOUNTED);
  const bytes = Buffer.from(body as string);
  for (let at = 0; at < bytes.length; at += chunkBytes) {
    await reader.push(bytes.subarray(at, at + chunkBytes));
  }
  return { ...reader.finish(), image };
}

const LONG = randomBytes(TEXT_BYTES_MAX).toString('base64');

test('a message without a long text parses as JSON.parse does, however it is cut', async t => {
  await t.notThrowsAsync(() =>
    fc.assert(
      fc.asyncProperty(fc.json(), fc.integer({ min: 1, max: 9 }), async (body, chunkBytes) => {
        const { message, longTexts } = await read(body, chunkBytes);
        assert.deepEqual([message, longTexts], [JSON.parse(body), 0]);
      }),
    ),
  );
});

test('a long text is handed on unescaped, and leaves an empty one', async t => {
  const escaped = JSON.stringify({ a: { image: LONG }, b: '\\"' }).replaceAll('/', '\\/');
  for (const chunkBytes of [7, 4096, 65_536]) {
    const { message, longTexts, image } = await read(escaped, chunkBytes);
    t.deepEqual(message, { a: { image: '' }, b: '\\"' });
    t.is(longTexts, 1);
    t.true(image === LONG);
  }
});

test('a text is long from its bound on, an escaped quote being none', async t => {
  const quoted = (length: number) => `"${'\\"'.repeat(length / 2)}"`;
  t.is((await read(quoted(TEXT_BYTES_MAX - 2))).longTexts, 0);
  const { longTexts, image } = await read(quoted(TEXT_BYTES_MAX + 2), 11);
  t.deepEqual([longTexts, image], [1, '"'.repeat(TEXT_BYTES_MAX / 2 + 1)]);
});

test('the reader hands on the first of several long texts, and counts all', async t => {
  const { longTexts, image } = await read(JSON.stringify([LONG, 'x'.repeat(TEXT_BYTES_MAX)]));
  t.is(longTexts, 2);
  t.true(image === LONG);
});

test('invalid JSON gives null, and a message over the limit is refused', async t => {
  for (const body of ['', '{', '{"a":', `["${LONG}`, '\ufeff{}', Buffer.from('"\xff"', 'latin1')]) {
    t.is((await read(body)).message, null, body.toString().slice(0, 10));
  }
  for (const much of [' '.repeat(330_000), '[],'.repeat(110_000)]) {
    await t.throwsAsync(read(much), { code: 'INVALID_REQUEST', message: /327680 bytes/ });
  }
  await t.notThrowsAsync(read(`[${'"a",'.repeat(2047)}"a"]`));
  await t.throwsAsync(read('"a",'.repeat(2049)), { code: 'INVALID_REQUEST', message: /2048/ });
  await t.throwsAsync(read(`"${LONG}\\x"`), { code: 'INVALID_REQUEST', message: /escape/ });
});
