import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import test from 'ava';
import { BATCH_SIZES } from '../../src/models/prepared-model.ts';
import {
  encodeFrame,
  type Frame,
  FrameReader,
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

interface Read {
  readonly frames: Frame<Head>[];
  /** As a socket reads: as much as there is space for, again and again. */
  push(bytes: Uint8Array): MalformedFrameError | undefined;
}

function read(allocate?: (bytes: number) => Buffer): Read {
  const frames: Frame<Head>[] = [];
  const reader = new FrameReader<Head>(frame => frames.push(frame), allocate);
  const push = (bytes: Uint8Array) => {
    for (let at = 0; at < bytes.length; ) {
      const space = reader.space();
      assert.ok(space.length > 0, 'there is always space');
      const piece = bytes.subarray(at, at + space.length);
      space.set(piece);
      const malformed = reader.received(piece.length);
      if (malformed !== undefined) return malformed;
      at += piece.length;
    }
    return undefined;
  };
  return { frames, push };
}

/** Its first bytes: numbers of four. */
function begin(...numbers: number[]): Buffer {
  return Buffer.from(Uint32Array.from(numbers).buffer);
}

const noJson = bytesOf({ n: 1 });
noJson[8] = 0x7d;

for (const [what, bytes, message] of [
  ['a head over its bound', begin(64 * 1024 + 1, 0), /head over its bound/],
  ['too many parts', begin(0, PARTS_MAX + 1), /too many parts/],
  // Before one is read.
  ['parts over their bound together', begin(2, 2, 2 * 1024 ** 3, 1), /parts over their bound/],
  ['a head that is not JSON', noJson, /not JSON/],
  ['an empty head', Buffer.alloc(8), /not JSON/],
  ['what comes after a malformed frame', Buffer.concat([noJson, bytesOf({ n: 2 })]), /not JSON/],
] as const) {
  test(`${what} is malformed, and nothing is thrown or read`, t => {
    const { frames, push } = read();
    const malformed = push(bytes);
    assert.ok(malformed instanceof MalformedFrameError);
    t.regex(malformed.message, message);
    t.is(malformed.cause instanceof SyntaxError, malformed.message.endsWith('not JSON'));
    t.deepEqual(frames, []);
  });
}

test('a frame over its bounds is refused where it is sent', t => {
  const parts = Array.from({ length: PARTS_MAX + 1 }, () => Buffer.alloc(1));
  t.throws(() => encodeFrame({}, parts), { instanceOf: MalformedFrameError });
  t.throws(() => encodeFrame({ text: 'x'.repeat(64 * 1024) }, []), {
    instanceOf: MalformedFrameError,
  });
});

test('a run of as many pictures as a graph takes is one frame', t => {
  const pictures = Array.from({ length: Math.max(...BATCH_SIZES) }, () => Buffer.of(1));
  const { frames, push } = read();
  push(bytesOf({ n: 1 }, pictures));
  t.deepEqual(frames, [{ head: { n: 1 }, parts: pictures }]);
});

test('frames come whole wherever the bytes are split', t => {
  const bytes = Buffer.concat([
    bytesOf({ n: 1 }, [Buffer.from('first'), Buffer.alloc(0), Buffer.from('third')]),
    bytesOf({ n: 2 }),
    bytesOf({ n: 3 }, [Buffer.alloc(0)]),
  ]);
  const halves = [...bytes, 0].map((_, at) => [bytes.subarray(0, at), bytes.subarray(at)]);
  const single = [...bytes].map(byte => Buffer.of(byte));
  for (const [at, pieces] of [...halves, single].entries()) {
    const { frames, push } = read();
    for (const piece of pieces) push(piece);
    const seen = frames.map(({ head, parts }) => [head.n, ...parts.map(String)]);
    t.deepEqual(seen, [[1, 'first', '', 'third'], [2], [3, '']], `split at ${at}`);
  }
});

test('parts do not share memory with what came', t => {
  const { frames, push } = read();
  push(bytesOf({ n: 1 }, [Buffer.from('keep')]));
  push(bytesOf({ n: 2 }, [Buffer.from('over')]));
  t.is(String(frames[0]?.parts[0]), 'keep');
});

test('parts of some size come whole wherever the bytes are split, each in memory that was asked for', t => {
  const parts = [4096, 4097, 20_000, 8192, 5000].map((bytes, n) => Buffer.alloc(bytes, n + 1));
  const bytes = Buffer.concat([bytesOf({ n: 1 }, parts), bytesOf({ n: 2 })]);
  for (let at = 0; at <= bytes.length; at += 509) {
    const allocated: Buffer[] = [];
    const { frames, push } = read(size => {
      const buffer = Buffer.alloc(size);
      allocated.push(buffer);
      return buffer;
    });
    push(bytes.subarray(0, at));
    push(bytes.subarray(at));
    const [first, second] = frames;
    t.true(isDeepStrictEqual(first?.parts, parts), `split at ${at}`);
    t.true(first?.parts.every((part, n) => part === allocated[n]));
    t.deepEqual(second, { head: { n: 2 }, parts: [] });
  }
});

test('the bulk of a part is read where it stays', t => {
  const bytes = bytesOf({ n: 1 }, [Buffer.alloc(1_000_000, 1)]);
  const part = Buffer.alloc(1_000_000);
  const reader = new FrameReader<Head>(
    () => undefined,
    () => part,
  );
  const head = reader.space();
  head.set(bytes.subarray(0, head.length));
  reader.received(head.length);
  const bulk = reader.space();
  t.is(bulk.buffer, part.buffer);
  t.is(bulk.length, bytes.length - head.length);
});
