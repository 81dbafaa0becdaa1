import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { at } from '../../../test/support/at.ts';
import { BufferPool } from '../../src/process/buffer-pool.ts';
import { FrameChannel } from '../../src/process/frame-channel.ts';
import { encodeFrame, type Frame, MalformedFrameError } from '../../src/process/frames.ts';

interface Head {
  readonly n: number;
}

/** Two ends of one connection, nothing read from either. */
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

/** The next frames that come, one after the other. */
function open(pipe: Socket, buffers?: BufferPool) {
  const waiting: ((frame: Frame<Head>) => void)[] = [];
  const frames: Frame<Head>[] = [];
  const onFrame = (frame: Frame<Head>) => {
    const taker = waiting.shift();
    if (taker === undefined) frames.push(frame);
    else taker(frame);
  };
  const channel = new FrameChannel<Head>({ pipe }, onFrame, buffers);
  const next = async () => frames.shift() ?? new Promise<Frame<Head>>(done => waiting.push(done));
  return { channel, next, frames };
}

test('send resolves when the other side has taken the frame, and when it is gone', async t => {
  const [nearPipe, farPipe] = await pair(t);
  const near = open(nearPipe);
  const big = Buffer.alloc(64 * 1024 * 1024, 5);
  let sent = false;
  const sending = near.channel.send({ n: 1 }, [big]).then(() => {
    sent = true;
  });
  await new Promise(resolve => setTimeout(resolve, 50));
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

test('frames go both ways, into memory that is used again', async t => {
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

test('a malformed frame destroys the socket, and nothing after it is handed out', async t => {
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

test('the end of one side closes the other, and the socket that was taken over', async t => {
  const [nearPipe, farPipe] = await pair(t);
  const near = open(nearPipe);
  const closed = Promise.all([once(near.channel.socket, 'close'), once(nearPipe, 'close')]);
  farPipe.end(Buffer.concat(encodeFrame({ n: 1 }, [])));
  t.deepEqual(await near.next(), { head: { n: 1 }, parts: [] });
  await closed;
});

test('who ends the socket that was taken over ends the channel', async t => {
  const [nearPipe] = await pair(t);
  const near = open(nearPipe);
  nearPipe.destroy();
  await t.notThrowsAsync(once(near.channel.socket, 'close'));
});
