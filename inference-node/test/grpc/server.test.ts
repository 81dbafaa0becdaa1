/** What a node's gRPC server answers: health, what it is, and nothing over its bound. */

import { status } from '@grpc/grpc-js';
import ava from 'ava';
import { MESSAGE_BYTES_MAX } from '#contract/limits.ts';
import type { GetNodeInfoResponse } from '#gen/matting/v1/matte_service.ts';
import { HealthClient } from './health-client.ts';
import { chunk, MatteCaller, openTestNode, type TestNode } from './test-node.ts';

const test = ava.serial;

let node: TestNode;

test.beforeEach(async () => {
  node = await openTestNode();
});

test.afterEach.always(async () => {
  await node.close();
});

test('health › follows the state, for the server and the service', async t => {
  const client = new HealthClient(node.address);
  const both = async () => [await client.check(''), await client.check('matting.v1.MatteService')];
  t.deepEqual(await both(), ['SERVING', 'SERVING']);
  node.engines.set({ enginesReady: 0 });
  t.deepEqual(await both(), ['NOT_SERVING', 'NOT_SERVING']);
  node.engines.set({ enginesReady: 1 });
  t.deepEqual(await both(), ['SERVING', 'SERVING']);
  node.status.drain('command');
  t.deepEqual(await both(), ['NOT_SERVING', 'NOT_SERVING']);
  node.status.undrain();
  t.deepEqual(await both(), ['SERVING', 'SERVING']);
  node.engines.set({ state: 'failed' });
  t.deepEqual(await both(), ['NOT_SERVING', 'NOT_SERVING']);
  await t.throwsAsync(client.check('unknown'), { code: status.NOT_FOUND });
  client.close();
});

test('health › tells its watchers', async t => {
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
  t.deepEqual(seen, ['SERVING', 'NOT_SERVING']);
  watch.cancel();
  client.close();
});

test('the server › tells what it is', async t => {
  const info = await new Promise<GetNodeInfoResponse>((resolve, reject) => {
    node.client.getNodeInfo({}, (error, found) => (error ? reject(error) : resolve(found)));
  });
  t.is(info.protocolVersion, 'matting.v1');
  t.is(info.plan, 'tiny');
  t.deepEqual(
    info.models.map(({ model }) => model),
    ['tiny'],
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
  await node.matte.untilIdle();
  t.is(node.admission.snapshot().images, 0);
});
