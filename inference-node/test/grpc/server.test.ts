/** What a node's gRPC server answers: who may call, health, what it is, reflection. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import {
  type ClientDuplexStream,
  credentials,
  loadPackageDefinition,
  Metadata,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import { loadSync, type PackageDefinition } from '@grpc/proto-loader';
import { fromServiceError } from '#contract/grpc-status.ts';
import { MESSAGE_BYTES_MAX } from '#contract/limits.ts';
import type { GetNodeInfoResponse } from '#gen/matting/v1/matte_service.ts';
import { tokenMetadata } from '../../src/grpc/callers.ts';
import { HealthClient } from './health-client.ts';
import { chunk, header, MatteCaller, openTestNode, sha256, type TestNode } from './test-node.ts';

const PROTO_DIR = path.resolve(import.meta.dirname, '../../../proto');
const TOKEN = 'a-token-of-sixteen-or-more';

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

  it('lets its bearer in', async () => {
    assert.equal((await infoOf(tokenMetadata(TOKEN))).nodeId, 'node-1');
    const caller = await new MatteCaller(node, { token: TOKEN }).sendFile('12345');
    assert.equal(await caller.ended, undefined);
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
