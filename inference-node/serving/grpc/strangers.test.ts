import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2, constants } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { credentials, type Server, ServerCredentials, status } from '@grpc/grpc-js';
import { guardGrpcServer } from '@matting/program/ports/grpc-guard.ts';
import { GUARD_BOUNDS } from '@matting/program/ports/guard-bounds.ts';
import { ERROR_CODE_TRAILER } from '@matting/proto/contract/grpc-status.ts';
import { HEADER_BYTES_MAX, MESSAGE_BYTES_SMALL } from '@matting/proto/contract/limits.ts';
import {
  type MatteRequest,
  MatteServiceClient,
  MatteServiceService,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { TestAuthority } from '@matting/test-support/certificates.ts';
import { framed, RawConnection, type RawEnd } from '@matting/test-support/raw-grpc.ts';
import { END_HEADERS, frame, HEALTH_CHECK, PREFACE } from '@matting/test-support/raw-http2.ts';
import { until as untilHolds } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import sinon from 'sinon';
import { HealthClient } from '../test/health-client.ts';
import { ownClock } from '../test/own-clock.ts';
import {
  chunk,
  header,
  MatteCaller,
  openTestNode,
  type TestNode,
  type TestNodeOptions,
  untilIdle,
} from '../test/test-node.ts';
import { tokenMetadata } from './callers.ts';

const STRANGER_STREAMS_MAX = 8;
const test = ava.serial;

const TOKEN = 'a-token-of-sixteen-or-more';
const CHECK = '/grpc.health.v1.Health/Check';
const WATCH = '/grpc.health.v1.Health/Watch';
const INFO = '/matting.v1.MatteService/GetNodeInfo';
const MATTE = '/matting.v1.MatteService/Matte';
const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
const WIDE = { perStream: 1024 * 1024, perConnection: 4 * 1024 * 1024 };
const EIGHT = Buffer.alloc(8);
const EMPTY = framed(Buffer.alloc(0));
const FEW = { ...GUARD_BOUNDS, strangersMax: 4, knownMax: 6, directMax: 3, directEachMax: 2 };

let node: TestNode;
const opened: { close(): void }[] = [];

test.afterEach.always(async () => {
  for (const connection of opened.splice(0)) connection.close();
  await node.close();
});

async function openNode(options: TestNodeOptions = {}): Promise<void> {
  node = await openTestNode({ token: TOKEN, ...options });
}

async function openConnection(): Promise<RawConnection> {
  const connection = await RawConnection.open(`http://${node.address}`);
  opened.push(connection);
  return connection;
}

async function openKnown(token = TOKEN): Promise<RawConnection> {
  const connection = await openConnection();
  assert.equal((await ask(connection, INFO, token)).status, status.OK);
  return connection;
}

function ask(connection: RawConnection, path: string, token?: string): Promise<RawEnd> {
  const { stream, ended } = connection.call(path, token);
  stream.end(EMPTY);
  return ended;
}

function openSocket(): Socket {
  const socket = connect(Number(node.address.split(':')[1]), '127.0.0.1');
  socket.on('error', () => undefined).resume();
  opened.push({ close: () => socket.destroy() });
  return socket;
}

async function until(condition: () => boolean): Promise<void> {
  const { connections, ended } = node;
  const has = () => `${connections.strangers} strangers, ended: ${ended.join(', ') || 'none'}`;
  await untilHolds(() => `${condition}; the port has ${has()}`, condition);
}

const TOO_LATE_MS = GUARD_BOUNDS.tokenWaitMaxMs + 1000;

function causes(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const cause of node.ended) counts[cause] = (counts[cause] ?? 0) + 1;
  return counts;
}

test('half a message › over the bound is refused by its prefix, before its bytes are kept', async t => {
  await openNode();
  const connection = await openConnection();
  const calls = Array.from({ length: 40 }, () => connection.call(CHECK));
  for (const { stream } of calls) stream.write(framed(Buffer.alloc(100), 1_000_000));
  const ends = await Promise.all(calls.map(({ ended }) => ended));
  t.true(ends.every(({ code }) => code === 'INVALID_REQUEST'));
  t.deepEqual(causes(), { message_too_large: 40 });
});

test('half a message › that is sent again and again ends its connection', async t => {
  await openNode();
  const connection = await openConnection();
  const count = GUARD_BOUNDS.strangerCallsMax;
  const calls = Array.from({ length: count }, () => connection.call(CHECK));
  for (const { stream } of calls) stream.write(framed(Buffer.alloc(20_000), 1_000_000));
  await connection.closed;
  t.is(connection.goaway, constants.NGHTTP2_NO_ERROR);
  await until(() => node.connections.strangers === 0);
  t.like(causes(), { message_too_large: count, no_token: 1 });
});

test('half a message › over the bound is refused with a token too, but for the bytes of Matte', async t => {
  await openNode();
  const connection = await openKnown();
  // The first message of Matte is its header.
  for (const path of [CHECK, INFO, REFLECTION, MATTE]) {
    const { stream, ended } = connection.call(path, TOKEN);
    const bytesMax = path === MATTE ? HEADER_BYTES_MAX : MESSAGE_BYTES_SMALL;
    stream.write(framed(Buffer.alloc(10), bytesMax + 1));
    const end = await ended;
    t.is(end.code, 'INVALID_REQUEST', path);
    t.is(end.status, status.INVALID_ARGUMENT);
  }
  t.true(connection.open);
  const caller = new MatteCaller(node, { token: TOKEN });
  await caller.sendFile(Buffer.alloc(MESSAGE_BYTES_SMALL * 2));
  t.is(await caller.ended, undefined);
});

test('half a header › as large as it may be is taken of known callers, from direct ones 1 MiB at once', async t => {
  const name = 'shop';
  const token = 'a-token-of-a-direct-caller';
  await openNode({ callers: { callerTokens: [{ name, token }] }, guardBounds: FEW });
  const half = framed(Buffer.alloc(10), HEADER_BYTES_MAX);
  const begin = (connection: RawConnection, of: string | undefined, count: number) =>
    Array.from({ length: count }, () => {
      const call = connection.call(MATTE, of);
      call.stream.write(half);
      return call;
    });
  const many = (1024 * 1024) / HEADER_BYTES_MAX + 1;
  const [fleet, direct] = [await openKnown(), await openKnown(token)];
  const open = begin(fleet, TOKEN, 2 * many);
  const [refused, ...others] = begin(direct, token, many).toReversed();
  t.is((await refused!.ended).code, 'CALLER_OVER_LIMIT');
  t.deepEqual(node.ended, ['over_limit']);
  await Promise.all([fleet.ping(), direct.ping()]);
  t.true([...open, ...others].every(({ stream }) => !stream.closed));
  // A whole header, or a closed call, makes room.
  others[0]!.stream.close(constants.NGHTTP2_CANCEL);
  others[1]!.stream.end(Buffer.alloc(HEADER_BYTES_MAX - 10));
  await others[1]!.ended;
  const more = begin(direct, token, 2);
  await direct.ping();
  t.true(more.every(({ stream }) => !stream.closed));
  t.is((await begin(direct, token, 1)[0]!.ended).code, 'CALLER_OVER_LIMIT');
  const [strange] = begin(await openConnection(), undefined, 1);
  t.is((await strange!.ended).code, 'INVALID_NODE_TOKEN');
  t.deepEqual(node.ended, ['over_limit', 'over_limit']);
});

test('half a message › within the bound has to become whole in time, on every method', async t => {
  const clock = ownClock(t, { measured: true });
  await openNode();
  const connection = await openKnown();
  const calls = [CHECK, WATCH, INFO, REFLECTION].flatMap(path => {
    const half = connection.call(path, TOKEN);
    half.stream.write(framed(Buffer.alloc(10), MESSAGE_BYTES_SMALL));
    return [half, connection.call(path, TOKEN)];
  });
  await connection.ping();
  await clock.tickAsync(GUARD_BOUNDS.firstMessageWaitMaxMs);
  const ends = await Promise.all(calls.map(({ ended }) => ended));
  t.deepEqual(
    ends.map(({ code }) => code),
    Array(8).fill('CALL_DEADLINE_EXCEEDED'),
  );
  t.is(causes().message_late, 8);
});

test('half a message › that is small and compressed is refused to strangers alone', async t => {
  await openNode();
  const bomb = framed(gzipSync(Buffer.alloc(1_000_000)), undefined, true);
  t.true(bomb.length < MESSAGE_BYTES_SMALL);
  const strange = (await openConnection()).call(CHECK);
  strange.stream.end(bomb);
  t.is((await strange.ended).code, 'INVALID_REQUEST');
  const known = (await openKnown()).call(INFO, TOKEN);
  known.stream.end(framed(gzipSync(Buffer.alloc(0)), undefined, true));
  t.is((await known.ended).code, undefined);
});

test('half a message › is no reason to refuse a message that comes in single bytes', async t => {
  await openNode();
  const connection = await openConnection();
  const { stream, ended } = connection.call(CHECK);
  const field = Buffer.from('matting.v1.MatteService');
  const request = Buffer.concat([Buffer.from([0x0a, field.length]), field]);
  for (const byte of framed(request)) {
    stream.write(Buffer.from([byte]));
    await connection.ping();
  }
  stream.end();
  t.is((await ended).status, status.OK);
  t.deepEqual(node.ended, []);
});

test('a call without a token › ends at once, and goes though its caller never stops', async t => {
  await openNode({ guardBounds: { afterEndMaxMs: 20 } });
  const connection = await openConnection();
  for (const path of [MATTE, INFO, REFLECTION]) {
    const { stream, ended } = connection.call(path);
    stream.write(framed(Buffer.alloc(10), 100));
    t.is((await ended).code, 'INVALID_NODE_TOKEN', path);
  }
  t.deepEqual(causes(), {});
  const refused = (await openKnown()).call(MATTE, TOKEN);
  refused.stream.write(EMPTY);
  t.is((await refused.ended).code, 'INVALID_REQUEST');
  t.deepEqual(causes(), { after_end: 1 });
});

test('a call without a token › has few others on its connection, until one shows the token', async t => {
  await openNode({ guardBounds: { strangerCallsMax: 3 } });
  const connection = await openConnection();
  t.is(connection.session.remoteSettings.maxConcurrentStreams, STRANGER_STREAMS_MAX);
  t.is((await ask(connection, INFO, TOKEN)).status, status.OK);
  await connection.ping();
  t.is(connection.session.remoteSettings.maxConcurrentStreams, 256);
  // Metadata is bounded.
  const another = await openConnection();
  const { ended } = another.call(CHECK, 'x'.repeat(20_000));
  t.is((await ended).rstCode, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  const busy = await openConnection();
  for (let count = 0; count < 3; count += 1) t.is((await ask(busy, CHECK)).status, status.OK);
  await busy.closed;
  t.is(busy.goaway, constants.NGHTTP2_NO_ERROR);
  t.deepEqual(causes(), { no_token: 1 });
});

test('a connection without a token › is closed in time, whatever it does but probe; one that has shown it stays', async t => {
  const clock = ownClock(t, { measured: true });
  await openNode();
  const known = await openKnown();
  const silent = await openConnection();
  const refused = await openConnection();
  t.is((await ask(refused, INFO, 'not-the-token')).code, 'INVALID_NODE_TOKEN');
  await clock.tickAsync(TOO_LATE_MS);
  await Promise.all([silent.closed, refused.closed]);
  t.deepEqual([silent.goaway, refused.goaway], [0, 0]);
  t.deepEqual(causes(), { no_token: 2 });
  t.is((await ask(known, INFO)).code, 'INVALID_NODE_TOKEN');
  t.true(known.open);
  t.is(node.connections.known, 1);
});

test('a connection without a token › that probes stays longer, and must then reconnect', async t => {
  const clock = ownClock(t, { measured: true });
  await openNode();
  const prober = new HealthClient(node.address);
  const raw = await openConnection();
  t.is((await ask(raw, CHECK)).status, status.OK);
  const watch = raw.call(WATCH);
  watch.stream.end(EMPTY);
  t.is(await prober.check(''), 'SERVING');
  const silent = await openConnection();
  await clock.tickAsync(TOO_LATE_MS);
  await silent.closed;
  t.true(raw.open);
  t.is(await prober.check(''), 'SERVING');
  await clock.tickAsync(GUARD_BOUNDS.probeAgeMaxMs);
  await raw.closed;
  t.is(raw.goaway, constants.NGHTTP2_NO_ERROR);
  // A gRPC client does not notice: it connects again for its next check.
  t.is(await prober.check(''), 'SERVING');
  prober.close();
});

test('a connection without a token › keeps nobody out who has one, however many there are', async t => {
  await openNode({ guardBounds: FEW });
  const idle: Socket[] = [];
  for (let count = 0; count < 20; count += 1) {
    const socket = openSocket();
    await once(socket, 'connect');
    idle.push(socket);
    if (count % 4 === 3) {
      await new MatteCaller(node, { token: TOKEN }).serve('12345');
    }
  }
  await until(() => idle.filter(({ closed }) => !closed).length <= FEW.strangersMax);
  t.true(node.connections.strangers <= FEW.strangersMax);
  t.true(causes().crowded! >= 16);
  t.false(idle.at(-1)!.closed);
  await openKnown();
});

test('a connection without a token › is refused beyond those that known callers have, and a direct one before the fleet', async t => {
  const shop = { name: 'shop', token: 'the-token-of-the-shop' };
  const lab = { name: 'lab', token: 'the-token-of-the-lab!' };
  await openNode({ guardBounds: FEW, callers: { callerTokens: [shop, lab] } });
  const refusal = async (token: string) => {
    const connection = await openConnection();
    t.is((await ask(connection, INFO, token)).code, 'CALLER_OVER_LIMIT');
    await connection.closed;
  };
  const first = await openKnown(shop.token);
  await openKnown(shop.token);
  await refusal(shop.token);
  await openKnown(lab.token);
  await refusal(lab.token);
  for (let count = 0; count < 3; count += 1) await openKnown();
  await refusal(TOKEN);
  t.is(node.connections.known, 6);
  first.close();
  await until(() => node.connections.known === 5);
  await openKnown(lab.token);
  t.is(causes().over_limit, 3);
});

for (const [what, messages, bytes] of [
  ['in small messages', 5, 16 * 1024],
  ['in one message', 1, 78_000],
  ['in messages of a megabyte', 8, 1024 * 1024],
] as const) {
  test(`a call with a wrong token › that sends its file at once hears why, ${what}`, async t => {
    await openNode();
    const client = () => new MatteServiceClient(node.address, credentials.createInsecure());
    const refusals = async (calls: number, clientOf: () => MatteServiceClient) => {
      for (let count = 0; count < calls; count += 1) {
        const caller = new MatteCaller(
          { client: clientOf() },
          { token: 'another-token-of-sixteen' },
        );
        caller.send(header({ contentLength: messages * bytes }));
        for (let sent = 0; sent < messages; sent += 1) caller.send(chunk(Buffer.alloc(bytes)));
        caller.call.end();
        const error = await caller.ended;
        t.is(error?.code, status.UNAUTHENTICATED, `call ${count}: ${error?.message}`);
        t.is(error?.metadata.get(ERROR_CODE_TRAILER)[0], 'INVALID_NODE_TOKEN');
      }
    };
    const one = client();
    opened.push(one);
    await refusals(20, () => one);
    await refusals(5, () => {
      const each = client();
      opened.push(each);
      return each;
    });
  });
}

test('a connection without a token › is ended for a flood of pings', async t => {
  await openNode({ guardBounds: { strangerBytesMax: 4000, tokenWaitMaxMs: 60_000 } });
  const connection = await openConnection();
  while (connection.open) await connection.ping();
  await t.notThrowsAsync(until(() => causes().flood === 1));
});

/** Sends everything before the port's settings can arrive. */
async function send(...frames: Buffer[]): Promise<void> {
  const socket = openSocket();
  socket.write(Buffer.concat([PREFACE, ...frames]));
  // The connection may be reset.
  await new Promise(resolve => socket.once('close', resolve));
}

const many = (count: number, make: (id: number) => Buffer) =>
  Array.from({ length: count }, (_, index) => make(2 * index + 1));
const headers = (id: number) => frame(1, END_HEADERS, id, HEALTH_CHECK);

test('a connection that keeps no rule of HTTP/2 › ends alone: with more calls than it may have, with resets, without an end', async t => {
  await openNode({ guardBounds: { tokenWaitMaxMs: 500 } });
  const prefix = framed(Buffer.alloc(0), 1_000_000);
  await Promise.all([
    send(...many(256, headers), ...many(256, id => frame(0, 0, id, prefix))),
    send(...many(600, id => Buffer.concat([headers(id), frame(3, 0, id, Buffer.alloc(4))]))),
    send(frame(1, 0, 1, HEALTH_CHECK), ...many(50, () => frame(9, 0, 1, Buffer.alloc(1000)))),
    send(...many(2000, () => frame(4, 0, 0)), ...many(2000, () => frame(6, 0, 0, EIGHT))),
    send(headers(1), frame(0, 0, 1, Buffer.alloc(10)).subarray(0, 12)),
    // Ends with its first call, while the others are on their way.
    send(
      ...many(70, () => frame(0x20, 0, 0, Buffer.alloc(16_000))),
      ...many(STRANGER_STREAMS_MAX, headers),
    ),
  ]);
  t.true(causes().flood! >= 1);
  await openKnown();
});

test('over TLS › strangers have the same bounds', async t => {
  const clock = ownClock(t, { measured: true });
  const authority = new TestAuthority();
  const { cert, key } = authority.issue('node');
  const pair = { private_key: Buffer.from(key), cert_chain: Buffer.from(cert) };
  await openNode({
    credentials: ServerCredentials.createSsl(null, [pair]),
    guardBounds: FEW,
  });
  const open = async () => {
    const connection = await RawConnection.open(`https://${node.address}`, {
      ca: authority.cert,
    });
    opened.push(connection);
    return connection;
  };
  const known = await open();
  t.is((await ask(known, INFO, TOKEN)).status, status.OK);
  const silent = openSocket();
  await until(() => node.connections.strangers === 1);
  await clock.tickAsync(TOO_LATE_MS);
  if (!silent.closed) await once(silent, 'close');
  for (let count = 0; count < 6; count += 1) await open();
  await until(() => (causes().crowded ?? 0) >= 2);
  t.true(known.open);
  t.is(node.connections.known, 1);
});

test('a client of gRPC › with the token is not slowed by what strangers may', async t => {
  await openNode();
  const info = () =>
    new Promise<string>((resolve, reject) => {
      node.client.getNodeInfo({}, tokenMetadata(TOKEN), (error, answer) =>
        error ? reject(error) : resolve(answer.nodeId),
      );
    });
  const answers = await Promise.all(Array.from({ length: 300 }, info));
  t.is(new Set(answers).size, 1);
  t.deepEqual(node.ended, []);
});

async function advertisedWindows(origin: string) {
  const session = connectHttp2(origin);
  await once(session, 'remoteSettings');
  // Any call with a token gets the large windows.
  const authorization = `Bearer ${TOKEN}`;
  const call = { ':method': 'POST', ':path': '/', te: 'trailers', authorization };
  const stream = session.request(call);
  stream.end().resume();
  await once(stream, 'close');
  // The session's own window arrives after the settings.
  await new Promise(resolve => session.ping(resolve));
  const perStream = session.remoteSettings.initialWindowSize;
  const perConnection = session.state.remoteWindowSize;
  session.destroy();
  return { perStream, perConnection };
}

test('the receive window › is wide for streams and connections', async t => {
  await openNode();
  t.deepEqual(await advertisedWindows(`http://${node.address}`), WIDE);
  const options = { identify: () => undefined, streamsMax: 1, bounds: GUARD_BOUNDS };
  t.throws(() => guardGrpcServer({} as Server, options), {
    message: /createHttp2Server.*grpc-guard/,
  });
});

async function rawMatte(...requests: MatteRequest[]) {
  const { stream, ended } = (await openConnection()).call(MATTE);
  for (const request of requests) {
    stream.write(framed(MatteServiceService.matte.requestSerialize(request)));
  }
  return { stream, ended };
}

test('a Matte call without an end › is reset where its caller says nothing, or leaves the result unread', async t => {
  node = await openTestNode({ matteSilenceMaxMs: 500 });
  const silent = await rawMatte();
  node.pictures.result = Buffer.alloc(8 * 1024 * 1024, 1);
  const { stream, ended } = await rawMatte(header(), chunk('12345'));
  stream.pause().end();
  t.is((await silent.ended).rstCode, constants.NGHTTP2_CANCEL);
  t.is((await ended).rstCode, constants.NGHTTP2_CANCEL);
  await untilIdle(node);
  t.is(node.admission.snapshot().images, 0);
  t.is(node.pictures.finished.length, 1);
});

test('a connection that says nothing › is forgotten with its end, though the next one has its address', async t => {
  const clock = ownClock(t, { measured: true });
  node = await openTestNode();
  const target = { host: '127.0.0.1', port: Number(node.address.split(':')[1]) };
  let second: Socket | undefined;
  while (second === undefined) {
    const first = connect(target);
    await once(first, 'connect');
    const { localPort } = first;
    await until(() => node.connections.strangers === 1);
    await clock.tickAsync(0.7 * GUARD_BOUNDS.tokenWaitMaxMs);
    // Frees the address at once.
    first.resetAndDestroy();
    await until(() => node.connections.strangers === 0);
    const next = connect({ ...target, localPort });
    // Another process may have taken the address.
    second = await once(next, 'connect').then(
      () => next,
      () => undefined,
    );
  }
  await until(() => node.connections.strangers === 1);
  // The first stranger's time is over, the second's is not.
  await clock.tickAsync(0.4 * GUARD_BOUNDS.tokenWaitMaxMs);
  const session = connectHttp2(`http://${node.address}`, { createConnection: () => second });
  opened.push({ close: () => session.destroy() });
  session.on('error', () => undefined);
  const call = session.request({ ':method': 'POST', ':path': '/', te: 'trailers' });
  call.on('error', () => undefined);
  call.end().resume();
  await once(call, 'close');
  await clock.tickAsync(0.9 * GUARD_BOUNDS.tokenWaitMaxMs);
  const answered = new Promise<void>((resolve, reject) => {
    session.ping(error => (error ? reject(error) : resolve()));
  });
  await t.notThrowsAsync(answered);
});

test('a port › is swept only while a connection without a token is open', async t => {
  const began = sinon.spy(globalThis, 'setInterval');
  const ended = sinon.spy(globalThis, 'clearInterval');
  t.teardown(() => sinon.restore());
  await openNode();
  await openKnown();
  const sweeps = began.getCalls().filter(({ args }) => args[1] === 200);
  t.is(sweeps.length, 1);
  t.true(ended.calledWith(sweeps[0]?.returnValue));
});
