/** What the gRPC port gives connections and calls, and when it ends those that say nothing. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2, constants } from 'node:http2';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { type MatteRequest, MatteServiceService } from '#gen/matting/v1/matte_service.ts';
import {
  CONNECTION_WINDOW_BYTES,
  GUARD_BOUNDS,
  guardGrpcServer,
  STREAM_WINDOW_BYTES,
} from '#program/ports/grpc-guard.ts';
import { TestAuthority } from '../../../test/support/certificates.ts';
import { chunk, header, MatteCaller, openTestNode, type TestNode } from './test-node.ts';

const HTTP2_DEFAULT_WINDOW_BYTES = 65_535;

let node: TestNode;

afterEach(async () => {
  await node.close();
});

/** What a raw http2 client is told that it may send. */
async function advertisedWindows(address: string) {
  const session = connectHttp2(`http://${address}`);
  await once(session, 'remoteSettings');
  // The windows of those that show who they are: here everybody, with any call.
  const stream = session.request({ ':method': 'POST', ':path': '/', te: 'trailers' });
  stream.end().resume();
  await once(stream, 'close');
  // What the session's own window is told by comes after the settings.
  await new Promise(resolve => session.ping(resolve));
  const perStream = session.remoteSettings.initialWindowSize;
  const perConnection = session.state.remoteWindowSize;
  session.destroy();
  return { perStream, perConnection };
}

describe('the receive window', () => {
  beforeEach(async () => {
    node = await openTestNode();
  });

  it('is wide for streams and connections', async () => {
    const windows = await advertisedWindows(node.address);
    assert.equal(windows.perStream, STREAM_WINDOW_BYTES);
    assert.equal(windows.perConnection, CONNECTION_WINDOW_BYTES);
  });

  it('of grpc-js itself is still the small one: else grpc-guard.ts may set it', async () => {
    const stock = new Server({ 'grpc-node.flow_control_window': STREAM_WINDOW_BYTES });
    const port = await new Promise<number>((resolve, reject) => {
      stock.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
        error ? reject(error) : resolve(bound),
      );
    });
    const windows = await advertisedWindows(`127.0.0.1:${port}`);
    stock.forceShutdown();
    assert.equal(windows.perStream, HTTP2_DEFAULT_WINDOW_BYTES);
    assert.equal(windows.perConnection, HTTP2_DEFAULT_WINDOW_BYTES);
  });

  it('says what to do when grpc-js changed within', () => {
    const options = { identify: () => undefined, streamsMax: 1, bounds: GUARD_BOUNDS };
    assert.throws(
      () => guardGrpcServer({} as Server, options),
      /createHttp2Server.*grpc-guard\.ts/,
    );
  });
});

describe('a Matte call without an end', () => {
  /** As a raw http2 client makes it, so that the stream's own end is seen. */
  function rawMatte(...requests: MatteRequest[]) {
    const session = connectHttp2(`http://${node.address}`);
    const stream = session.request({
      ':method': 'POST',
      ':path': '/matting.v1.MatteService/Matte',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    stream.on('error', () => undefined);
    for (const request of requests) {
      const message = MatteServiceService.matte.requestSerialize(request);
      const prefix = Buffer.alloc(5);
      prefix.writeUInt32BE(message.length, 1);
      stream.write(Buffer.concat([prefix, message]));
    }
    const closed = once(stream, 'close').then(() => {
      session.destroy();
      return stream.rstCode;
    });
    return { stream, closed };
  }

  beforeEach(async () => {
    node = await openTestNode({ matteSilenceMaxMs: 2000 });
  });

  it('is reset where its caller says nothing', async () => {
    const { closed } = rawMatte();
    assert.equal(await closed, constants.NGHTTP2_CANCEL);
    await node.matte.untilIdle();
  });

  it('is reset where its caller leaves the result unread', async () => {
    node.pictures.result = Buffer.alloc(8 * 1024 * 1024, 1);
    const { stream, closed } = rawMatte(header(), chunk('12345'));
    stream.end();
    assert.equal(await closed, constants.NGHTTP2_CANCEL);
    await node.matte.untilIdle();
    assert.equal(node.admission.snapshot().images, 0);
    assert.equal(node.pictures.finished.length, 1);
  });
});

describe('a connection that says nothing', () => {
  const guardBounds = { tokenWaitMaxMs: 300 };

  async function requireEnd(): Promise<void> {
    const socket = connect(Number(node.address.split(':')[1]), '127.0.0.1');
    socket.on('error', () => undefined);
    socket.resume();
    await once(socket, 'close');
  }

  it('is closed in plain text', async () => {
    node = await openTestNode({ guardBounds });
    await requireEnd();
  });

  it('is closed before its TLS handshake', async () => {
    const { cert, key } = new TestAuthority().issue('node');
    const pair = { private_key: Buffer.from(key), cert_chain: Buffer.from(cert) };
    node = await openTestNode({
      guardBounds,
      credentials: ServerCredentials.createSsl(null, [pair]),
    });
    await requireEnd();
  });

  it('is forgotten with its end, though the next one has its address', async () => {
    node = await openTestNode({ guardBounds: { tokenWaitMaxMs: 1000 } });
    const target = { host: '127.0.0.1', port: Number(node.address.split(':')[1]) };
    // A machine that stands still may let the second one's own time pass: then it shows nothing.
    for (let inTime = false; !inTime; ) {
      const first = connect(target);
      await once(first, 'connect');
      const { localPort } = first;
      // A reset leaves the address free at once.
      first.resetAndDestroy();
      await once(first, 'close');
      await delay(700);
      const second = connect({ ...target, localPort });
      second.on('error', () => undefined);
      const connectedMs = performance.now();
      // Somebody else may have taken the address meanwhile.
      if (
        !(await once(second, 'connect').then(
          () => true,
          () => false,
        ))
      )
        continue;
      // It calls when the first one's time is over and its own is not.
      await delay(400);
      const session = connectHttp2(`http://${node.address}`, { createConnection: () => second });
      session.on('error', () => undefined);
      const call = session.request({ ':method': 'POST', ':path': '/', te: 'trailers' });
      call.on('error', () => undefined);
      call.end().resume();
      await once(call, 'close');
      inTime = performance.now() - connectedMs < 900;
      if (inTime) {
        await delay(900);
        await new Promise<void>((resolve, reject) => {
          session.ping(error => (error ? reject(error) : resolve()));
        });
      }
      session.destroy();
    }
  });

  it('is no call under way, however long it is silent', async () => {
    node = await openTestNode({ guardBounds });
    node.gates.hold('infer');
    const caller = await new MatteCaller(node).sendFile('12345');
    await node.gates.reached('infer');
    // Its connection is older than this one, which was opened after it.
    await requireEnd();
    node.gates.letGo('infer');
    assert.equal(await caller.ended, undefined);
  });
});
