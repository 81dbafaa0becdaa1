/** Bodies in chunks of any size, over real sockets. */

import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { boundChunks, GatheringMessage } from '../chunked-bodies.ts';

const CHUNK_BYTES_MIN = 512;
const CHUNKS_FREE = 1024;
const test = ava.serial;

const HEAD = 'POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';

let server: Server;
let ended: number;
/** As the handler got them. */
let pieces: Buffer[][];
let read: (request: IncomingMessage) => Promise<Buffer[]>;

test.beforeEach(async () => {
  ended = 0;
  pieces = [];
  read = request => request.toArray();
  server = createServer({ IncomingMessage: GatheringMessage }, (request, response) => {
    read(request).then(
      body => {
        pieces.push(body);
        response.end(`${Buffer.concat(body).length}`);
      },
      () => undefined,
    );
  });
  boundChunks(server, () => {
    ended += 1;
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
test.afterEach.always(() => {
  server.closeAllConnections();
  server.close();
});

function coded(chunks: readonly Buffer[]): Buffer {
  const parts = chunks.flatMap(chunk => [
    Buffer.from(`${chunk.length.toString(16)}\r\n`),
    chunk,
    Buffer.from('\r\n'),
  ]);
  return Buffer.concat([...parts, Buffer.from('0\r\n\r\n')]);
}

/** What the connection answered until it closed. */
async function send(bytes: Buffer): Promise<string> {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.on('error', () => undefined);
  let answer = '';
  socket.on('data', data => {
    answer += data;
    if (/\r\n\r\n\d+$/.test(answer)) socket.destroy();
  });
  socket.write(HEAD);
  socket.write(bytes);
  // `once` would throw if the connection is reset.
  await new Promise(resolve => socket.on('close', resolve));
  return answer;
}

function counted(bytes: number): Buffer {
  return Buffer.alloc(
    bytes,
    Uint8Array.from({ length: 251 }, (_, at) => at),
  );
}

function cut(bytes: Buffer, chunkBytes: number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += chunkBytes) {
    chunks.push(bytes.subarray(at, at + chunkBytes));
  }
  return chunks;
}

for (const [chunkBytes, bytes] of [
  [1, CHUNKS_FREE],
  [7, 7 * CHUNKS_FREE],
  [CHUNK_BYTES_MIN, 1_000_000],
  [5000, 1_000_000],
  [16 * 1024, 500_000],
  [16 * 1024 + 1, 500_000],
  [300_000, 1_000_000],
] as const) {
  test(`${bytes} bytes in chunks of ${chunkBytes} arrive as they are`, async t => {
    const body = counted(bytes);
    t.regex(await send(coded(cut(body, chunkBytes))), new RegExp(`\r\n\r\n${bytes}$`));
    t.true(Buffer.concat(pieces[0]!).equals(body));
    t.is(ended, 0);
  });
}

test('small chunks arrive together', async t => {
  await send(coded(cut(counted(CHUNKS_FREE), 1)));
  t.true(pieces[0]!.length < CHUNKS_FREE / 10, `${pieces[0]!.length} pieces`);
});

test('chunks of every size in turn arrive as they are', async t => {
  const body = counted(700_000);
  const chunks: Buffer[] = [];
  const sizes = [1, 40_000, 3, 16_383, 2, 16_384, 1, 1, 70_000];
  for (let at = 0, count = 0; at < body.length; count += 1) {
    const size = sizes[count % sizes.length]!;
    chunks.push(body.subarray(at, at + size));
    at += size;
  }
  await send(coded(chunks));
  t.true(Buffer.concat(pieces[0]!).equals(body));
});

test('a body that nobody reads yet is not gathered without end', async t => {
  let go: () => void = () => undefined;
  const gate = new Promise<void>(resolve => {
    go = resolve;
  });
  let heldBytes = 0;
  read = async request => {
    // By now the socket has passed on all it will: the sender waits for us.
    await once(request, 'readable');
    for (let count = 0; count < 100; count += 1) {
      await new Promise(resolve => setImmediate(resolve));
      heldBytes = Math.max(heldBytes, request.readableLength);
    }
    await gate;
    return await request.toArray();
  };
  const body = counted(2_000_000);
  const sent = send(coded(cut(body, 1000)));
  await until('bytes that are held', () => heldBytes > 0);
  go();
  await sent;
  t.true(Buffer.concat(pieces[0]!).equals(body));
  t.true(heldBytes < 512 * 1024, `${heldBytes} bytes were held`);
});

for (const chunkBytes of [1, 10, CHUNK_BYTES_MIN / 2]) {
  test(`more chunks of ${chunkBytes} than bytes are worth end the connection, once`, async t => {
    const answer = await send(coded(cut(counted(10 * CHUNKS_FREE * chunkBytes), chunkBytes)));
    t.is(answer, '');
    t.is(ended, 1);
    t.deepEqual(pieces, []);
  });
}

test('a body with a length is left alone', async t => {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const bytes = 10 * CHUNKS_FREE;
  socket.write(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${bytes}\r\n\r\n`);
  socket.write(counted(bytes));
  await once(socket, 'data');
  socket.destroy();
  t.is(Buffer.concat(pieces[0]!).length, bytes);
  t.is(ended, 0);
});
