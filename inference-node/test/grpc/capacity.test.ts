import type { ClientReadableStream, ServiceError } from '@grpc/grpc-js';
import ava from 'ava';
import { fromServiceError } from '#contract/grpc-status.ts';
import {
  InputFormat,
  NodeState,
  OutputFormat,
  type WatchCapacityResponse,
} from '#gen/matting/v1/matte_service.ts';
import { tokenMetadata } from '../../src/grpc/callers.ts';
import { CHANGE_INTERVAL_MS } from '../../src/grpc/capacity.ts';
import { MatteCaller, openTestNode, type TestNode } from './test-node.ts';

const test = ava.serial;

let node: TestNode;

test.beforeEach(async () => {
  node = await openTestNode();
});

test.afterEach.always(async () => {
  await node.close();
});

class Watcher {
  readonly seen: { message: WatchCapacityResponse; atMs: number }[] = [];
  readonly call: ClientReadableStream<WatchCapacityResponse>;
  readonly ended: Promise<unknown>;
  #arrived = Promise.withResolvers<void>();

  constructor(testNode: TestNode) {
    this.call = testNode.client.watchCapacity({});
    this.call.on('data', message => {
      this.seen.push({ message, atMs: performance.now() });
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
      const found = this.seen.find(({ message }) => wanted(message));
      if (found) return found.message;
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
  const sequences = watcher.seen.map(({ message }) => message.sequence);
  t.deepEqual(
    sequences,
    sequences.map((_, index) => index + 1),
  );
});

test('WatchCapacity › gathers changes that come close together', async t => {
  const watcher = new Watcher(node);
  await watcher.until(() => true);
  const before = watcher.seen.length;
  const startedMs = performance.now();
  for (let i = 1; i <= 60; i += 1) {
    node.engines.set({ inferMs: 100 + i });
    await new Promise(resolve => setTimeout(resolve, 2));
  }
  await watcher.until(({ inferMs }) => inferMs === 160);
  const tookMs = performance.now() - startedMs;
  const messages = watcher.seen.length - before;
  // One as the changes begin, one an interval, the repeats of each second.
  const most = 2 + tookMs / CHANGE_INTERVAL_MS + tookMs / 1000;
  t.true(messages <= most, `${messages} messages in ${Math.round(tookMs)} ms`);
});

test('WatchCapacity › repeats itself without a change', async t => {
  const watcher = new Watcher(node);
  const third = await watcher.until(({ sequence }) => sequence === 2);
  t.is(third.state, NodeState.NODE_STATE_SERVING);
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

test('WatchCapacity › of a node that starts has nothing to offer', async t => {
  await node.close();
  node = await openTestNode({ starting: true });
  const watcher = new Watcher(node);
  const first = await watcher.until(() => true);
  t.is(first.state, NodeState.NODE_STATE_STARTING);
  t.is(first.imagesFree, 0);
});

test('a direct caller watches a few times at once, and keeps no control plane from it', async t => {
  await node.close();
  const shop = { name: 'shop', token: 'the-token-of-the-shop' };
  const fleet = 'the-token-of-the-fleet';
  node = await openTestNode({ token: fleet, callers: { callerTokens: [shop] } });
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
