import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { connect as connectHttp2, constants } from 'node:http2';
import path from 'node:path';
import { fromBinary } from '@bufbuild/protobuf';
import { type DescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import {
  type ClientDuplexStream,
  type ClientReadableStream,
  credentials,
  loadPackageDefinition,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { fromServiceError } from '@matting/proto/contract/grpc-status.ts';
import { CHUNK_BYTES_MAX, MESSAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  type GetNodeInfoResponse,
  InputFormat,
  NodeState,
  OutputFormat,
  type WatchCapacityResponse,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { STARTED_ENV } from '@matting/test-support/started-env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { HealthClient } from '../test/health-client.ts';
import { ownClock } from '../test/own-clock.ts';
import {
  chunk,
  MatteCaller,
  openTestNode,
  type TestNode,
  type TestNodeOptions,
  untilIdle,
} from '../test/test-node.ts';
import { tokenMetadata } from './callers.ts';

const test = ava.serial;

let node: TestNode;

test.beforeEach(async () => {
  node = await openTestNode();
});

test.afterEach.always(() => node.close());

async function reopen(options: TestNodeOptions): Promise<void> {
  await node.close();
  node = await openTestNode(options);
}

test('health › follows the state, for the server and the service', async t => {
  const client = new HealthClient(node.address);
  for (const [change, expected] of [
    [() => undefined, 'SERVING'],
    [() => node.status.drain('command'), 'NOT_SERVING'],
    [() => node.status.undrain(), 'SERVING'],
    [() => node.engines.set({ state: 'failed' }), 'NOT_SERVING'],
  ] as const) {
    change();
    for (const name of ['', 'matting.v1.MatteService']) t.is(await client.check(name), expected);
  }
  await t.throwsAsync(client.check('unknown'), { code: status.NOT_FOUND });
  client.close();
});

test('the server › tells what it is', async t => {
  const info = await new Promise<GetNodeInfoResponse>((resolve, reject) => {
    node.client.getNodeInfo({}, (error, found) => (error ? reject(error) : resolve(found)));
  });
  t.is(info.protocolVersion, 'matting.v1');
  t.is(info.plan, 'tiny');
  t.deepEqual(
    info.models.map(({ model, runtime }) => [model, runtime]),
    [['tiny', 'onnxruntime']],
  );
  t.is(info.limits?.imagesMax, 4);
  t.is(info.limits?.jxlPixelsMax, 0);
  t.is(info.executionProviderSelected, 'cpu');
});

test('the server › takes no message over the limit', async t => {
  const caller = await new MatteCaller(node).announce({ contentLength: 2 * MESSAGE_BYTES_MAX });
  caller.send(chunk(Buffer.alloc(MESSAGE_BYTES_MAX + 1)));
  const error = await caller.ended;
  t.is(error?.code, status.RESOURCE_EXHAUSTED);
  await untilIdle(node);
  t.is(node.admission.snapshot().images, 0);
});

const REPEAT_INTERVAL_MS = 1000;

class Watcher {
  readonly seen: WatchCapacityResponse[] = [];
  readonly call: ClientReadableStream<WatchCapacityResponse>;
  readonly ended: Promise<unknown>;
  #arrived = Promise.withResolvers<void>();

  constructor(testNode: TestNode) {
    this.call = testNode.client.watchCapacity({});
    this.call.on('data', message => {
      this.seen.push(message);
      this.#arrived.resolve();
      this.#arrived = Promise.withResolvers();
    });
    this.ended = new Promise(resolve => {
      this.call.once('error', resolve);
      this.call.once('end', () => resolve(undefined));
    });
  }

  async until(wanted: (message: WatchCapacityResponse) => boolean): Promise<WatchCapacityResponse> {
    for (;;) {
      const found = this.seen.find(wanted);
      if (found) return found;
      await this.#arrived.promise;
    }
  }
}

test('WatchCapacity › tells the state at once', async t => {
  const watcher = new Watcher(node);
  const first = await watcher.until(() => true);
  t.deepEqual(first, {
    sequence: 1,
    state: NodeState.NODE_STATE_SERVING,
    imagesInFlight: 0,
    imagesFree: 4,
    megapixelsFree: 200,
    enginesReady: 1,
    estimatedWaitMs: 0,
    inferMs: 100,
    decodeMsPerMegapixel: 10,
    encodeMsPerMegapixel: 20,
    decodeRates: [{ format: InputFormat.INPUT_FORMAT_PNG, msPerMegapixel: 12 }],
    encodeRates: [{ format: OutputFormat.OUTPUT_FORMAT_WEBP, msPerMegapixel: 30 }],
  });
  await reopen({ starting: true });
  const starting = await new Watcher(node).until(() => true);
  t.like(starting, { state: NodeState.NODE_STATE_STARTING, imagesFree: 0 });
});

test('WatchCapacity › tells changes, numbered without a gap', async t => {
  const watcher = new Watcher(node);
  await watcher.until(() => true);
  node.gates.hold('infer');
  const caller = await new MatteCaller(node).sendFile('12345', { width: 4000, height: 3000 });
  const busy = await watcher.until(({ imagesInFlight }) => imagesInFlight === 1);
  t.is(busy.imagesFree, 3);
  t.is(busy.megapixelsFree, 188);
  node.gates.letGo('infer');
  await caller.ended;
  await watcher.until(({ imagesInFlight, sequence }) => {
    return imagesInFlight === 0 && sequence > busy.sequence;
  });
  const sequences = watcher.seen.map(({ sequence }) => sequence);
  t.deepEqual(
    sequences,
    sequences.map((_, index) => index + 1),
  );
});

test('WatchCapacity › gathers changes that come close together, and repeats itself without one', async t => {
  const clock = ownClock(t, { measured: true });
  const watcher = new Watcher(node);
  await watcher.until(() => true);
  for (let i = 1; i <= 60; i += 1) node.engines.set({ inferMs: 100 + i });
  await clock.tickAsync(20);
  const gathered = await watcher.until(({ inferMs }) => inferMs === 160);
  t.is(gathered.sequence, 2);
  await clock.tickAsync(REPEAT_INTERVAL_MS);
  const repeated = await watcher.until(({ sequence }) => sequence === 3);
  t.deepEqual({ ...repeated, sequence: 2 }, gathered);
});

test('WatchCapacity › follows the states, and ends when the node goes', async t => {
  const watcher = new Watcher(node);
  await watcher.until(({ state }) => state === NodeState.NODE_STATE_SERVING);
  node.engines.set({ enginesReady: 0 });
  await watcher.until(({ state }) => state === NodeState.NODE_STATE_STARTING);
  node.status.drain('shutdown');
  await watcher.until(({ state }) => state === NodeState.NODE_STATE_DRAINING);
  node.engines.set({ state: 'failed' });
  await watcher.until(({ state }) => state === NodeState.NODE_STATE_FAILED);
  node.watchers.close();
  t.is(await watcher.ended, undefined);
});

test('a direct caller watches a few times at once, and keeps no control plane from it', async t => {
  const shop = { name: 'shop', token: 'the-token-of-the-shop' };
  const fleet = 'the-token-of-the-fleet';
  await reopen({ token: fleet, callers: { callerTokens: [shop] } });
  const watch = (token: string) => {
    const call = node.client.watchCapacity({}, tokenMetadata(token));
    const first = new Promise<string>(resolve => {
      call.once('data', () => resolve('told'));
      call.once('error', error => resolve(fromServiceError(error as ServiceError).code));
    });
    return { call, first };
  };
  const watching = Array.from({ length: 8 }, () => watch(shop.token));
  const told = await Promise.all(watching.map(({ first }) => first));
  t.deepEqual([...new Set(told)], ['told']);
  t.is(await watch(shop.token).first, 'CALLER_OVER_LIMIT');
  t.is(await watch(fleet).first, 'told');
  watching[0]!.call.cancel();
  let again = 'CALLER_OVER_LIMIT';
  // The node hears of the end a moment later.
  while (again === 'CALLER_OVER_LIMIT') again = await watch(shop.token).first;
  t.is(again, 'told');
});

const PROTO_DIR = path.resolve(
  import.meta.dirname,
  '../../../node_modules/@grpc/reflection/build/proto',
);
/** A gRPC frame whose message has field 4, the symbol, of 16,000 characters. */
const QUESTION = Buffer.concat([
  Buffer.from([0, 0, 0, 0x3e, 0x83, 0x22, 0x80, 0x7d]),
  Buffer.alloc(16_000, 'x'),
]);
/** Four times the window of a stream. */
const UNREAD_QUESTIONS_MAX = 256;
const PINGS_MAX = 100;

interface ReflectionClient {
  ServerReflectionInfo(): ClientDuplexStream<object, object>;
  close(): void;
}

interface Answer {
  readonly fileDescriptorResponse?: { readonly fileDescriptorProto: readonly Buffer[] };
  readonly listServicesResponse?: { readonly service: readonly { readonly name: string }[] };
}

const proto = loadSync('grpc/reflection/v1/reflection.proto', { includeDirs: [PROTO_DIR] });

async function ask(question: object): Promise<Answer> {
  // biome-ignore lint/suspicious/noExplicitAny: the shape of a package is known at run time only
  const { grpc } = loadPackageDefinition(proto) as any;
  const { ServerReflection } = grpc.reflection.v1;
  const client: ReflectionClient = new ServerReflection(node.address, credentials.createInsecure());
  const call = client.ServerReflectionInfo();
  call.write(question);
  const [answer] = (await once(call, 'data')) as [Answer];
  call.end();
  client.close();
  return answer;
}

async function messagesOf(symbol: string): Promise<DescriptorProto[]> {
  const { fileDescriptorResponse } = await ask({ fileContainingSymbol: symbol });
  const files = fileDescriptorResponse?.fileDescriptorProto ?? [];
  return files.flatMap(bytes => fromBinary(FileDescriptorProtoSchema, bytes).messageType);
}

test('reflection › takes no more questions than its reader takes answers', async t => {
  // The caller's window lets no answer through.
  const session = connectHttp2(`http://${node.address}`, { settings: { initialWindowSize: 0 } });
  const stream = session.request({
    [constants.HTTP2_HEADER_METHOD]: 'POST',
    [constants.HTTP2_HEADER_PATH]: '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
    [constants.HTTP2_HEADER_CONTENT_TYPE]: 'application/grpc',
  });
  stream.on('error', () => undefined);
  const ping = () => new Promise(resolve => session.ping(resolve));
  let written = 0;
  let taken = 0;
  while (taken === written && written < UNREAD_QUESTIONS_MAX) {
    written += 1;
    stream.write(QUESTION, () => {
      taken += 1;
    });
    // Far more pings than an accepted request needs.
    for (let pings = 0; taken < written && pings < PINGS_MAX; pings += 1) await ping();
  }
  session.destroy();
  t.true(taken < UNREAD_QUESTIONS_MAX, `${taken} questions were taken, and no answer was`);
});

test('reflection › lists the services, and names fields and the entries of maps as protoc does', async t => {
  const { listServicesResponse } = await ask({ listServices: '' });
  const services = listServicesResponse?.service.map(({ name }) => name);
  t.deepEqual(services?.toSorted(), ['grpc.health.v1.Health', 'matting.v1.MatteService']);
  const messageOf = async (symbol: string, wanted: string) =>
    (await messagesOf(symbol)).find(({ name }) => name === wanted);
  const header = await messageOf('matting.v1.MatteService', 'MatteHeader');
  t.like(header?.field[2], { name: 'content_length', jsonName: 'contentLength' });
  const list = await messageOf('grpc.health.v1.Health', 'HealthListResponse');
  t.is(list?.nestedType[0]?.name, 'StatusesEntry');
  t.true(list?.nestedType[0]?.options?.mapEntry);
  t.is(list?.field[0]?.typeName, 'StatusesEntry');
});

const ROOT = path.resolve(import.meta.dirname, '../../..');
const TOKEN = 'a-token-of-sixteen-or-more';

/** Runs the example of docs/grpc.md. */
async function runExample(input: string, output: string, env: Readonly<Record<string, string>>) {
  const text = await readFile(path.join(ROOT, 'docs/grpc.md'), 'utf8');
  const code = /```ts\n(.*?)```/s.exec(text)?.[1];
  assert.ok(code, 'docs/grpc.md has an example');
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-', input, output], {
    cwd: ROOT,
    env: { ...STARTED_ENV, NODE_ADDRESS: node.address, ...env },
    stdio: ['pipe', 'inherit', 'pipe'],
  });
  child.stdin.end(code);
  let stderr = '';
  child.stderr.on('data', data => {
    stderr += data;
  });
  const exitCode = await new Promise(resolve => child.once('close', resolve));
  return { exitCode, stderr };
}

test('the example of the documentation cuts a file out, and tells the code of an error', async t => {
  await reopen({ token: TOKEN });
  const directory = await temporaryFolder(t);
  const input = path.join(directory, 'photo.jpg');
  const output = path.join(directory, 'cutout.png');
  const photo = Buffer.alloc(3 * CHUNK_BYTES_MAX + 5, 3);
  await writeFile(input, photo);
  node.pictures.result = Buffer.alloc(CHUNK_BYTES_MAX + 7, 9);
  const { exitCode, stderr } = await runExample(input, output, { MATTING_NODE_TOKEN: TOKEN });
  t.is(exitCode, 0, stderr);
  t.true((await readFile(output)).equals(node.pictures.result));
  t.truthy(node.pictures.decoded[0]?.file.equals(photo));
  t.regex(stderr, /STAGE_INFERRING/);
  const refused = await runExample(input, output, { MATTING_NODE_TOKEN: 'another-token-1' });
  t.is(refused.exitCode, 1);
  t.regex(refused.stderr, /^INVALID_NODE_TOKEN: /m);
});
