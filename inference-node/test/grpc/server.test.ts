import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2, constants } from 'node:http2';
import { connect } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type ClientDuplexStream,
  credentials,
  loadPackageDefinition,
  Metadata,
  Server,
  ServerCredentials,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import { loadSync, type PackageDefinition } from '@grpc/proto-loader';
import { fromServiceError } from '#contract/grpc-status.ts';
import { MESSAGE_BYTES_MAX } from '#contract/limits.ts';
import {
  type GetNodeInfoResponse,
  type MatteRequest,
  MatteServiceService,
} from '#gen/matting/v1/matte_service.ts';
import {
  CONNECTION_WINDOW_BYTES,
  guardGrpcServer,
  STREAM_WINDOW_BYTES,
} from '#program/ports/grpc-guard.ts';
import { TestAuthority } from '../../../test/support/certificates.ts';
import { tokenMetadata } from '../../src/grpc/callers.ts';
import { HealthClient } from './health-client.ts';
import { chunk, header, MatteCaller, openTestNode, sha256, type TestNode } from './test-node.ts';

const PROTO_DIR = path.resolve(import.meta.dirname, '../../../proto');
const TOKEN = 'a-token-of-sixteen-or-more';
const HTTP2_DEFAULT_WINDOW_BYTES = 65_535;

let node: TestNode;

afterEach(async () => {
  await node.close();
});

async function infoOf(metadata: Metadata): Promise<GetNodeInfoResponse> {
  return await new Promise((resolve, reject) => {
    node.client.getNodeInfo({}, metadata, (error, info) => (error ? reject(error) : resolve(info)));
  });
}

interface DynamicClient {
  Matte(): ClientDuplexStream<object, object>;
  ServerReflectionInfo(): ClientDuplexStream<object, object>;
  close(): void;
}

/** A MatteResponse as proto-loader hands it out. */
interface LooseResponse {
  readonly message: string;
  readonly chunk?: { readonly data: Buffer };
  readonly resultHeader?: { readonly format: string };
  readonly done?: { readonly sha256: Buffer };
}

/** A client made of .proto files alone. */
function dynamicClient(definition: PackageDefinition, service: string): DynamicClient {
  let found: unknown = loadPackageDefinition(definition);
  for (const part of service.split('.')) found = (found as Record<string, unknown>)[part];
  const Client = found as new (...args: unknown[]) => DynamicClient;
  return new Client(node.address, credentials.createInsecure());
}

describe('the token', () => {
  beforeEach(async () => {
    node = await openTestNode({ token: TOKEN });
  });

  const wrong = new Metadata();
  wrong.set('authorization', TOKEN);
  const bad: [string, Metadata][] = [
    ['missing', new Metadata()],
    ['wrong', tokenMetadata(`${TOKEN}x`)],
    ['empty', tokenMetadata('')],
    ['without its scheme', wrong],
  ];
  for (const [name, metadata] of bad) {
    it(`${name} ends a call UNAUTHENTICATED`, async () => {
      await assert.rejects(infoOf(metadata), (error: ServiceError) => {
        assert.equal(error.code, status.UNAUTHENTICATED);
        assert.equal(fromServiceError(error).code, 'INVALID_NODE_TOKEN');
        assert.ok(!error.details.includes(TOKEN));
        return true;
      });
    });
  }

  it('missing ends a Matte call before anything is admitted', async () => {
    const caller = new MatteCaller(node).send(header(), chunk('12345'));
    assert.equal((await caller.failure()).code, 'INVALID_NODE_TOKEN');
    assert.equal(node.admission.snapshot().images, 0);
  });

  it('lets its bearer in', async () => {
    assert.equal((await infoOf(tokenMetadata(TOKEN))).nodeId, 'node-1');
    const caller = await new MatteCaller(node, { token: TOKEN }).sendFile('12345');
    assert.equal(await caller.ended, undefined);
  });

  it('is not asked of health checks', async () => {
    const client = new HealthClient(node.address);
    assert.equal(await client.check(''), 'SERVING');
    client.close();
  });
});

describe('health', () => {
  beforeEach(async () => {
    node = await openTestNode();
  });

  it('follows the state, for the server and the service', async () => {
    const client = new HealthClient(node.address);
    const both = async () => [
      await client.check(''),
      await client.check('matting.v1.MatteService'),
    ];
    assert.deepEqual(await both(), ['SERVING', 'SERVING']);
    node.engines.set({ enginesReady: 0 });
    assert.deepEqual(await both(), ['NOT_SERVING', 'NOT_SERVING']);
    node.engines.set({ enginesReady: 1 });
    assert.deepEqual(await both(), ['SERVING', 'SERVING']);
    node.status.drain('command');
    assert.deepEqual(await both(), ['NOT_SERVING', 'NOT_SERVING']);
    node.status.undrain();
    assert.deepEqual(await both(), ['SERVING', 'SERVING']);
    node.engines.set({ state: 'failed' });
    assert.deepEqual(await both(), ['NOT_SERVING', 'NOT_SERVING']);
    await assert.rejects(client.check('unknown'), { code: status.NOT_FOUND });
    client.close();
  });

  it('tells its watchers', async () => {
    const client = new HealthClient(node.address);
    const watch = client.watch('');
    watch.on('error', () => undefined);
    const seen: string[] = [];
    const two = new Promise<void>(resolve => {
      watch.on('data', (answer: { status: string }) => {
        seen.push(answer.status);
        if (seen.length === 1) node.status.drain('shutdown');
        if (seen.length === 2) resolve();
      });
    });
    await two;
    assert.deepEqual(seen, ['SERVING', 'NOT_SERVING']);
    watch.cancel();
    client.close();
  });
});

describe('the server', () => {
  beforeEach(async () => {
    node = await openTestNode();
  });

  it('tells what it is', async () => {
    const info = await infoOf(new Metadata());
    assert.equal(info.protocolVersion, 'matting.v1');
    assert.equal(info.plan, 'tiny');
    assert.deepEqual(
      info.models.map(({ model }) => model),
      ['tiny'],
    );
    assert.equal(info.limits?.imagesMax, 4);
    assert.equal(info.limits?.jxlPixelsMax, 0);
    assert.equal(info.executionProviderSelected, 'cpu');
  });

  it('takes no message over the limit', async () => {
    const caller = new MatteCaller(node).send(header({ contentLength: 2 * MESSAGE_BYTES_MAX }));
    await caller.until('admitted');
    caller.send(chunk(Buffer.alloc(MESSAGE_BYTES_MAX + 1)));
    const error = await caller.ended;
    assert.equal(error?.code, status.RESOURCE_EXHAUSTED);
    await node.matte.untilIdle();
    assert.equal(node.admission.snapshot().images, 0);
  });

  it('lists its services by reflection', async () => {
    const proto = loadSync('grpc/reflection/v1/reflection.proto', {
      includeDirs: [
        path.resolve(import.meta.dirname, '../../../node_modules/@grpc/reflection/build/proto'),
      ],
      oneofs: true,
    });
    const client = dynamicClient(proto, 'grpc.reflection.v1.ServerReflection');
    const call = client.ServerReflectionInfo();
    const ask = async (request: object) => {
      call.write(request);
      const [answer] = await once(call, 'data');
      return answer;
    };
    const { listServicesResponse } = await ask({ listServices: '' });
    const names = listServicesResponse.service.map(({ name }: { name: string }) => name);
    assert.deepEqual(names.sort(), ['grpc.health.v1.Health', 'matting.v1.MatteService']);
    const { fileDescriptorResponse } = await ask({
      fileContainingSymbol: 'matting.v1.MatteService.Matte',
    });
    assert.ok(fileDescriptorResponse.fileDescriptorProto.length > 0);
    call.end();
    client.close();
  });

  it('speaks with a client that knows only the .proto files', async () => {
    const definition = loadSync('matting/v1/matte_service.proto', {
      includeDirs: [PROTO_DIR],
      longs: Number,
      enums: String,
      oneofs: true,
    });
    const client = dynamicClient(definition, 'matting.v1.MatteService');
    const call = client.Matte();
    const kinds: string[] = [];
    const parts: Buffer[] = [];
    let formatSeen = '';
    let doneSha256: Buffer | undefined;
    call.on('data', (message: LooseResponse) => {
      kinds.push(message.message);
      if (message.message === 'admitted') {
        call.write({ chunk: { data: Buffer.from('12345') } });
        call.end();
      }
      if (message.chunk) parts.push(message.chunk.data);
      if (message.resultHeader) formatSeen = message.resultHeader.format;
      if (message.done) doneSha256 = message.done.sha256;
    });
    call.write({
      header: {
        contentLength: 5,
        sha256: sha256('12345'),
        outputFormat: 'OUTPUT_FORMAT_AVIF',
        resultKind: 'RESULT_KIND_CUTOUT',
      },
    });
    await once(call, 'end');
    const progress = ['progress', 'progress', 'progress'];
    assert.deepEqual(kinds, ['admitted', ...progress, 'resultHeader', 'chunk', 'done']);
    assert.equal(formatSeen, 'OUTPUT_FORMAT_AVIF');
    assert.deepEqual(Buffer.concat(parts), node.pictures.result);
    assert.deepEqual(doneSha256, sha256(node.pictures.result));
    client.close();
  });

  it('answers many callers at once, none of them in vain for long', async () => {
    node.gates.hold('infer');
    const callers = Array.from({ length: 40 }, () => new MatteCaller(node).send(header()));
    const failures = callers.slice(4).map(caller => caller.failure());
    const codes = new Set((await Promise.all(failures)).map(({ code }) => code));
    assert.deepEqual([...codes], ['NODE_OVERLOADED']);
    for (const caller of callers) caller.call.cancel();
    await node.matte.untilIdle();
  });
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
    const options = { identify: () => undefined, streamsMax: 1 };
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
