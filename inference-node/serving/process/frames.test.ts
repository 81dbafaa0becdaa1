import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { at } from '@matting/test-support/at.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { BufferPool } from './buffer-pool.ts';
import { OutputLines } from './child.ts';
import { FrameChannel } from './frame-channel.ts';
import { FrameReader } from './frame-reader.ts';
import {
  encodeFrame,
  type Frame,
  HEAD_BYTES_MAX,
  MalformedFrameError,
  PARTS_MAX,
} from './frames.ts';

const LINE_CHARACTERS_MAX = 1000;
const LINES_MAX = 100;
const POOLED_BYTES_MIN = 64 * 1024;
const IDLE_BYTES_MAX = 64 * 1024 * 1024;
const test = ava.serial;

interface Head {
  readonly n: number;
}

function bytesOf(head: object, parts: readonly Uint8Array[] = []): Buffer {
  return Buffer.concat(encodeFrame(head, parts));
}

interface Read {
  readonly frames: Frame<Head>[];
  /** Pushes bytes like a socket: at most the free space at a time. */
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

function begin(...numbers: number[]): Buffer {
  return Buffer.from(Uint32Array.from(numbers).buffer);
}

const noJson = bytesOf({ n: 1 });
noJson[8] = 0x7d;

for (const [what, bytes, message] of [
  ['a head over its bound', begin(HEAD_BYTES_MAX + 1, 0), /head over its bound/],
  ['too many parts', begin(0, PARTS_MAX + 1), /too many parts/],
  ['parts over their bound together', begin(2, 2, 2 * 1024 ** 3, 1), /parts over their bound/],
  ['a head that is not JSON', noJson, /not JSON/],
  ['an empty head', Buffer.alloc(8), /not JSON/],
  ['what comes after a malformed frame', Buffer.concat([noJson, bytesOf({ n: 2 })]), /not JSON/],
] as const) {
  test(`frames › ${what} is malformed, and nothing is thrown or read`, t => {
    const { frames, push } = read();
    const malformed = push(bytes);
    assert.ok(malformed instanceof MalformedFrameError);
    t.regex(malformed.message, message);
    t.is(malformed.cause instanceof SyntaxError, malformed.message.endsWith('not JSON'));
    t.deepEqual(frames, []);
  });
}

test('frames › a child whose answers are bounded sends no larger part', t => {
  const frames: Frame<unknown>[] = [];
  const reader = new FrameReader<unknown>(frame => frames.push(frame), Buffer.allocUnsafeSlow, 4);
  const push = (bytes: Buffer) => {
    bytes.copy(reader.space());
    return reader.received(bytes.length);
  };
  t.is(push(Buffer.concat(encodeFrame({ n: 1 }, [Buffer.alloc(4)]))), undefined);
  t.is(frames.length, 1);
  const malformed = push(Buffer.concat(encodeFrame({ n: 2 }, [Buffer.alloc(5)])));
  t.regex(malformed?.message ?? '', /parts over their bound/);
});

test('frames › a frame over its bounds is refused where it is sent', t => {
  const parts = Array.from({ length: PARTS_MAX + 1 }, () => Buffer.alloc(1));
  t.throws(() => encodeFrame({}, parts), { instanceOf: MalformedFrameError });
  t.throws(() => encodeFrame({ text: 'x'.repeat(HEAD_BYTES_MAX) }, []), {
    instanceOf: MalformedFrameError,
  });
});

test('frames › frames come whole wherever the bytes are split', t => {
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

test('frames › parts do not share memory with what came', t => {
  const { frames, push } = read();
  push(bytesOf({ n: 1 }, [Buffer.from('keep')]));
  push(bytesOf({ n: 2 }, [Buffer.from('over')]));
  t.is(String(frames[0]?.parts[0]), 'keep');
});

test('frames › parts of some size come whole wherever the bytes are split, each in allocated memory', t => {
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

async function pair(t: ExecutionContext): Promise<[Socket, Socket]> {
  const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const near = connect(address.port, '127.0.0.1').pause();
  const [[far]] = await Promise.all([once(server, 'connection'), once(near, 'connect')]);
  server.close();
  t.teardown(() => {
    near.destroy();
    far.destroy();
  });
  return [near, far];
}

function open(pipe: Socket, buffers?: BufferPool) {
  const waiting: ((frame: Frame<Head>) => void)[] = [];
  const frames: Frame<Head>[] = [];
  const onFrame = (frame: Frame<Head>) => {
    const taker = waiting.shift();
    if (taker === undefined) frames.push(frame);
    else taker(frame);
  };
  const channel = new FrameChannel<Head>({ pipe }, onFrame, { buffers });
  const next = async () => frames.shift() ?? new Promise<Frame<Head>>(done => waiting.push(done));
  return { channel, next, frames };
}

test('a channel › send resolves when the other side has taken the frame, and when it is gone', async t => {
  const [nearPipe, farPipe] = await pair(t);
  const near = open(nearPipe);
  const big = Buffer.alloc(16 * 1024 * 1024, 5);
  let sent = false;
  const sending = near.channel.send({ n: 1 }, [big]).then(() => {
    sent = true;
  });
  await new Promise(resolve => setTimeout(resolve, 10));
  t.is(sent, false, 'nobody has read yet');
  const far = open(farPipe);
  await sending;
  const { head, parts } = await far.next();
  t.deepEqual(head, { n: 1 });
  t.true(parts[0]?.equals(big));
  near.channel.socket.destroy();
  await near.channel.send({ n: 2 });
  await once(far.channel.socket, 'close');
});

test('a channel › frames go both ways, into memory that is used again', async t => {
  const [nearPipe, farPipe] = await pair(t);
  const buffers = new BufferPool();
  const near = open(nearPipe, buffers);
  const far = open(farPipe);
  const seen = new Set<ArrayBufferLike>();
  for (let n = 0; n < 20; n++) {
    const picture = Buffer.alloc(300_000, n);
    void far.channel.send({ n }, [picture, Buffer.from('small')]);
    const { head, parts } = await near.next();
    t.deepEqual(head, { n });
    const same = at(parts, 0);
    t.true(same.equals(picture));
    t.is(String(parts[1]), 'small');
    seen.add(same.buffer);
    void near.channel.send({ n }, parts);
    t.true(isDeepStrictEqual((await far.next()).parts, parts));
    buffers.giveBack(same);
  }
  t.is(seen.size, 1);
});

test('a channel › a malformed frame destroys the socket, and nothing after it is handed out', async t => {
  const [nearPipe, farPipe] = await pair(t);
  const near = open(nearPipe);
  const bad = Buffer.concat(encodeFrame({ n: 2 }, []));
  bad[8] = 0x7d;
  farPipe.write(Buffer.concat([...encodeFrame({ n: 1 }, []), bad, ...encodeFrame({ n: 3 }, [])]));
  const [error] = await once(near.channel.socket, 'error');
  t.true(error instanceof MalformedFrameError);
  t.deepEqual(near.frames, [{ head: { n: 1 }, parts: [] }]);
  t.true(near.channel.socket.destroyed);
});

test('a channel › the end of one side closes the other, and the socket that was taken over', async t => {
  const [nearPipe, farPipe] = await pair(t);
  const near = open(nearPipe);
  const closed = Promise.all([once(near.channel.socket, 'close'), once(nearPipe, 'close')]);
  farPipe.end(Buffer.concat(encodeFrame({ n: 1 }, [])));
  t.deepEqual(await near.next(), { head: { n: 1 }, parts: [] });
  await closed;
});

test('a channel › who ends the socket that was taken over ends the channel', async t => {
  const [nearPipe] = await pair(t);
  const near = open(nearPipe);
  nearPipe.destroy();
  await t.notThrowsAsync(once(near.channel.socket, 'close'));
});

const BYTES = 1_000_000;

test('a buffer that was given back is handed out again, for its size alone', t => {
  const pool = new BufferPool();
  const first = pool.take(BYTES);
  t.is(first.length, BYTES);
  pool.giveBack(first);
  t.not(pool.take(BYTES - 1), first);
  t.is(pool.take(BYTES), first);
});

test('no two users have the same buffer', t => {
  const pool = new BufferPool();
  const first = pool.take(BYTES);
  t.not(pool.take(BYTES), first);
  pool.giveBack(first);
  pool.giveBack(first);
  t.is(pool.take(BYTES), first);
  t.not(pool.take(BYTES), first, 'given back twice, it is there once');
});

test('the pool takes no foreign buffer back', t => {
  const pool = new BufferPool();
  const foreign = Buffer.alloc(BYTES);
  pool.giveBack(foreign);
  t.not(pool.take(BYTES), foreign);
  // The buffer is part of a shared slab.
  pool.giveBack(pool.take(BYTES).subarray(0, POOLED_BYTES_MIN));
  t.is(pool.take(POOLED_BYTES_MIN).byteOffset, 0);
});

test('small ones are not kept', t => {
  const pool = new BufferPool();
  const small = pool.take(POOLED_BYTES_MIN - 1);
  pool.giveBack(small);
  t.not(pool.take(POOLED_BYTES_MIN - 1), small);
});

test('idle buffers of the pool are bounded', t => {
  const pool = new BufferPool();
  const taken = Array.from({ length: 5 }, () => pool.take(IDLE_BYTES_MAX / 4));
  for (const buffer of taken) pool.giveBack(buffer);
  const again = Array.from({ length: 5 }, () => pool.take(IDLE_BYTES_MAX / 4));
  t.is(again.filter(buffer => taken.includes(buffer)).length, 4);
});

function collect() {
  const lines: string[] = [];
  return { lines, output: new OutputLines(line => void lines.push(line)) };
}

test('lines of output › a flood is reported by a number, and lines are logged again a window later', t => {
  const now = sinon.stub(performance, 'now').returns(0);
  t.teardown(() => now.restore());
  const { lines, output } = collect();
  output.push('again\n'.repeat(LINES_MAX + 5));
  t.is(lines.length, LINES_MAX);
  now.returns(60_000);
  output.push('once more\n');
  t.deepEqual(lines.slice(LINES_MAX), ['5 more lines were left out', 'once more']);
  output.push('again\n'.repeat(LINES_MAX));
  output.end();
  t.is(lines.at(-1), '1 more lines were left out');
});

test('lines of output › a line without an end is cut, and the next one is whole', t => {
  const { lines, output } = collect();
  for (let i = 0; i < 100; i++) output.push('x'.repeat(LINE_CHARACTERS_MAX));
  output.push('\nnext\n');
  t.deepEqual(lines, ['x'.repeat(LINE_CHARACTERS_MAX), 'next']);
});

test('lines of output › lines come whole, however they were cut, without empty ones', t => {
  const { lines, output } = collect();
  for (const text of ['\n\n(process:1): GLib', '-WARNING **: one\r', '\n  two', '\n \n', 'last']) {
    output.push(text);
  }
  output.end();
  t.deepEqual(lines, ['(process:1): GLib-WARNING **: one', '  two', 'last']);
});
