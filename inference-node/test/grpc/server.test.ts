/** What a node's gRPC server answers: health, what it is, and nothing over its bound. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { status } from '@grpc/grpc-js';
import { MESSAGE_BYTES_MAX } from '#contract/limits.ts';
import type { GetNodeInfoResponse } from '#gen/matting/v1/matte_service.ts';
import { HealthClient } from './health-client.ts';
import { chunk, MatteCaller, openTestNode, type TestNode } from './test-node.ts';

let node: TestNode;

beforeEach(async () => {
  node = await openTestNode();
});

afterEach(async () => {
  await node.close();
});

describe('health', () => {
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
  it('tells what it is', async () => {
    const info = await new Promise<GetNodeInfoResponse>((resolve, reject) => {
      node.client.getNodeInfo({}, (error, found) => (error ? reject(error) : resolve(found)));
    });
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
    const caller = await new MatteCaller(node).announce({ contentLength: 2 * MESSAGE_BYTES_MAX });
    caller.send(chunk(Buffer.alloc(MESSAGE_BYTES_MAX + 1)));
    const error = await caller.ended;
    assert.equal(error?.code, status.RESOURCE_EXHAUSTED);
    await node.matte.untilIdle();
    assert.equal(node.admission.snapshot().images, 0);
  });
});
