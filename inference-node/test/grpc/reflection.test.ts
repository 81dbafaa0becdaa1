import { once } from 'node:events';
import { connect as connectHttp2, constants } from 'node:http2';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fromBinary } from '@bufbuild/protobuf';
import { type DescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { type ClientDuplexStream, credentials, loadPackageDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import ava from 'ava';
import { openTestNode, type TestNode } from './test-node.ts';

const test = ava.serial;

const PROTO_DIR = path.resolve(
  import.meta.dirname,
  '../../../node_modules/@grpc/reflection/build/proto',
);
/** A frame of gRPC with a message whose field 4, the symbol asked for, has 16,000 characters. */
const QUESTION = Buffer.concat([
  Buffer.from([0, 0, 0, 0x3e, 0x83, 0x22, 0x80, 0x7d]),
  Buffer.alloc(16_000, 'x'),
]);
/** Four times what the window of a stream takes. */
const UNREAD_QUESTIONS_MAX = 256;

interface ReflectionClient {
  ServerReflectionInfo(): ClientDuplexStream<object, object>;
  close(): void;
}

interface Answer {
  readonly fileDescriptorResponse?: { readonly fileDescriptorProto: readonly Buffer[] };
  readonly listServicesResponse?: { readonly service: readonly { readonly name: string }[] };
}

let node: TestNode;
let client: ReflectionClient;

test.before(async () => {
  node = await openTestNode();
  const proto = loadSync('grpc/reflection/v1/reflection.proto', { includeDirs: [PROTO_DIR] });
  // biome-ignore lint/suspicious/noExplicitAny: the shape of a package is known at run time only
  const { grpc } = loadPackageDefinition(proto) as any;
  client = new grpc.reflection.v1.ServerReflection(node.address, credentials.createInsecure());
});

test.after.always(async () => {
  client.close();
  await node.close();
});

async function ask(question: object): Promise<Answer> {
  const call = client.ServerReflectionInfo();
  call.write(question);
  const [answer] = (await once(call, 'data')) as [Answer];
  call.end();
  return answer;
}

async function messagesOf(symbol: string): Promise<DescriptorProto[]> {
  const { fileDescriptorResponse } = await ask({ fileContainingSymbol: symbol });
  const files = fileDescriptorResponse?.fileDescriptorProto ?? [];
  return files.flatMap(bytes => fromBinary(FileDescriptorProtoSchema, bytes).messageType);
}

test('lists the services', async t => {
  const { listServicesResponse } = await ask({ listServices: '' });
  const names = listServicesResponse?.service.map(({ name }) => name);
  t.deepEqual(names?.toSorted(), ['grpc.health.v1.Health', 'matting.v1.MatteService']);
});

test('takes no more questions than its reader takes answers', async t => {
  // Of a caller whose window lets no answer through.
  const session = connectHttp2(`http://${node.address}`, { settings: { initialWindowSize: 0 } });
  const stream = session.request({
    [constants.HTTP2_HEADER_METHOD]: 'POST',
    [constants.HTTP2_HEADER_PATH]: '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
    [constants.HTTP2_HEADER_CONTENT_TYPE]: 'application/grpc',
  });
  stream.on('error', () => undefined);
  let taken = 0;
  let isTaken = true;
  while (isTaken && taken < UNREAD_QUESTIONS_MAX) {
    const written = new Promise<boolean>(resolve => {
      stream.write(QUESTION, () => resolve(true));
    });
    // Ten times what all that fits takes.
    isTaken = await Promise.race([written, delay(2000, false)]);
    taken += 1;
  }
  session.destroy();
  t.true(taken < UNREAD_QUESTIONS_MAX, `${taken} questions were taken, and no answer was`);
});

test('gives the fields the names of the .proto file', async t => {
  const header = (await messagesOf('matting.v1.MatteService')).find(
    ({ name }) => name === 'MatteHeader',
  );
  const names = header?.field.map(({ name, jsonName }) => `${name} ${jsonName}`);
  t.deepEqual(names?.slice(0, 4), [
    'job_id jobId',
    'attempt attempt',
    'content_length contentLength',
    'sha256 sha256',
  ]);
});

test('names the entries of maps as protoc does, or strict readers refuse the file', async t => {
  const list = (await messagesOf('grpc.health.v1.Health')).find(
    ({ name }) => name === 'HealthListResponse',
  );
  t.is(list?.nestedType[0]?.name, 'StatusesEntry');
  t.true(list?.nestedType[0]?.options?.mapEntry);
  t.is(list?.field[0]?.typeName, 'StatusesEntry');
});
