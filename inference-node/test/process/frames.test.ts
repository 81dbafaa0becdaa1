import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type Duplex, duplexPair, PassThrough } from 'node:stream';
import { test } from 'node:test';
import { BATCH_SIZES } from '../../src/models/prepared-model.ts';
import {
  encodeFrame,
  type Frame,
  FrameChannel,
  MalformedFrameError,
  PARTS_MAX,
} from '../../src/process/frames.ts';

interface Head {
  readonly n: number;
}

/** Bytes of one frame in one piece. */
function bytesOf(head: object, parts: readonly Uint8Array[] = []): Buffer {
  return Buffer.concat(encodeFrame(head, parts));
}

function collect(stream: Duplex): Frame<Head>[] {
  const frames: Frame<Head>[] = [];
  new FrameChannel<Head>(stream, frame => frames.push(frame));
  return frames;
}

async function failureOf(bytes: Buffer): Promise<Error> {
  const stream = new PassThrough();
  const frames = collect(stream);
  stream.write(bytes);
  const [error] = await once(stream, 'error');
  assert.deepEqual(frames, []);
  assert.ok(stream.destroyed);
  return error;
}

test('a head over its bound destroys the stream', async () => {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt32LE(64 * 1024 + 1, 0);
  const error = await failureOf(bytes);
  assert.ok(error instanceof MalformedFrameError);
  assert.match(error.message, /head over its bound/);
});

test('too many parts destroy the stream', async () => {
  const bytes = Buffer.alloc(8);
  bytes.writeUInt32LE(PARTS_MAX + 1, 4);
  assert.match((await failureOf(bytes)).message, /too many parts/);
});

test('parts over their bound together destroy the stream unread', async () => {
  const bytes = Buffer.alloc(8 + 8);
  bytes.writeUInt32LE(2, 0);
  bytes.writeUInt32LE(2, 4);
  bytes.writeUInt32LE(1024 * 1024 * 1024, 8);
  bytes.writeUInt32LE(1, 12);
  assert.match((await failureOf(bytes)).message, /parts over their bound/);
});

test('a head that is not JSON destroys the stream and throws nowhere else', async () => {
  const bytes = bytesOf({ n: 1 });
  bytes[8] = 0x7d;
  const error = await failureOf(bytes);
  assert.ok(error instanceof MalformedFrameError);
  assert.ok(error.cause instanceof SyntaxError);
});

test('an empty head is malformed', async () => {
  assert.match((await failureOf(Buffer.alloc(8))).message, /not JSON/);
});

test('nothing is read after a malformed frame', async () => {
  const bad = bytesOf({ n: 1 });
  bad[8] = 0x7d;
  await failureOf(Buffer.concat([bad, bytesOf({ n: 2 })]));
});

test('a frame over its bounds is refused where it is sent', () => {
  const parts = Array.from({ length: PARTS_MAX + 1 }, () => Buffer.alloc(1));
  assert.throws(() => encodeFrame({}, parts), MalformedFrameError);
  assert.throws(() => encodeFrame({ text: 'x'.repeat(64 * 1024) }, []), MalformedFrameError);
});

test('a run of as many pictures as a graph takes is one frame', () => {
  const pictures = Array.from({ length: Math.max(...BATCH_SIZES) }, () => Buffer.of(1));
  const frames: Frame<Head>[] = [];
  const stream = new PassThrough();
  new FrameChannel<Head>(stream, frame => frames.push(frame));
  stream.emit('data', bytesOf({ n: 1 }, pictures));
  assert.deepEqual(frames, [{ head: { n: 1 }, parts: pictures }]);
});

test('frames come whole wherever the bytes are split', () => {
  const bytes = Buffer.concat([
    bytesOf({ n: 1 }, [Buffer.from('first'), Buffer.alloc(0), Buffer.from('third')]),
    bytesOf({ n: 2 }),
    bytesOf({ n: 3 }, [Buffer.alloc(0)]),
  ]);
  for (let at = 0; at <= bytes.length; at++) {
    const stream = new PassThrough();
    const frames = collect(stream);
    stream.emit('data', bytes.subarray(0, at));
    stream.emit('data', bytes.subarray(at));
    const seen = frames.map(({ head, parts }) => [head.n, ...parts.map(String)]);
    assert.deepEqual(seen, [[1, 'first', '', 'third'], [2], [3, '']], `split at ${at}`);
  }
});

test('frames come whole byte by byte', () => {
  const stream = new PassThrough();
  const frames = collect(stream);
  for (const byte of bytesOf({ n: 7 }, [Buffer.from('abc')])) {
    stream.emit('data', Buffer.of(byte));
  }
  assert.deepEqual(frames, [{ head: { n: 7 }, parts: [Buffer.from('abc')] }]);
});

test('parts do not share memory with what came', () => {
  const stream = new PassThrough();
  const frames = collect(stream);
  const bytes = bytesOf({ n: 1 }, [Buffer.from('keep')]);
  stream.emit('data', bytes);
  bytes.fill(0);
  assert.equal(String(frames[0]?.parts[0]), 'keep');
});

test('send resolves when the other side has taken the frame, and when it is gone', async () => {
  const [near, far] = duplexPair();
  const channel = new FrameChannel<Head>(near, () => undefined);
  const big = Buffer.alloc(4 * 1024 * 1024, 5);
  let sent = false;
  const sending = channel.send({ n: 1 }, [big]).then(() => {
    sent = true;
  });
  await new Promise(setImmediate);
  assert.equal(sent, false, 'nobody has read yet');
  const frames = collect(far);
  await sending;
  assert.ok(frames[0]?.parts[0]?.equals(big));
  near.destroy();
  await channel.send({ n: 2 });
});
