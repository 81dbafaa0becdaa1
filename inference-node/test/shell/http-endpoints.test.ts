import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { PIPELINED_MAX } from '#program/ports/http-guard.ts';
import { openHttpEndpoints } from '../../src/http-endpoints.ts';
import { NodeMetrics } from '../../src/metrics.ts';
import { NodeStatus } from '../../src/node-state.ts';
import { FakeEnginePool, FakePicturePool, StageGates } from '../grpc/fake-pools.ts';
import { MatteCaller, openTestNode } from '../grpc/test-node.ts';

let status: NodeStatus;
let endpoints: Awaited<ReturnType<typeof openHttpEndpoints>>;
let info: object | undefined;

beforeEach(async () => {
  status = new NodeStatus();
  const { registry } = new NodeMetrics();
  info = undefined;
  endpoints = await openHttpEndpoints({
    host: '127.0.0.1',
    port: 0,
    status,
    registry,
    info: () => info,
  });
});

afterEach(async () => {
  await endpoints.close();
});

async function get(path: string, init?: RequestInit) {
  const answer = await fetch(`http://127.0.0.1:${endpoints.port}${path}`, init);
  return { status: answer.status, text: await answer.text(), headers: answer.headers };
}

describe('the HTTP side', () => {
  it('has nothing else, and takes nothing', async () => {
    assert.equal((await get('/')).status, 404);
    assert.equal((await get('/metrics/../secret')).status, 404);
    assert.equal((await get('/livez', { method: 'POST', body: 'x' })).status, 405);
  });

  it('is ready only while the node serves', async () => {
    assert.equal((await get('/livez')).status, 200);
    assert.equal((await get('/readyz')).status, 503);
    const engines = new FakeEnginePool(new StageGates());
    status.attach([engines], new FakePicturePool(new StageGates()));
    assert.equal((await get('/readyz?probe=1')).status, 200);
    engines.set({ enginesReady: 0 });
    assert.equal((await get('/readyz')).text, 'starting\n');
    engines.set({ enginesReady: 1 });
    status.drain('shutdown');
    const draining = await get('/readyz');
    assert.deepEqual([draining.status, draining.text], [503, 'draining\n']);
    assert.equal((await get('/livez')).status, 200);
  });

  it('tells what the node is', async () => {
    info = { plan: 'tiny' };
    assert.deepEqual(JSON.parse((await get('/info')).text), { state: 'starting', plan: 'tiny' });
  });

  it('is not closed to probes by connections that say nothing', async () => {
    const silent = await Promise.all(
      Array.from({ length: 100 }, async () => {
        const socket = connect(endpoints.port, '127.0.0.1');
        socket.on('error', () => undefined).resume();
        await once(socket, 'connect');
        return socket;
      }),
    );
    const half = connect(endpoints.port, '127.0.0.1');
    half.on('error', () => undefined).resume();
    half.write('GET /livez HTTP/1.1\r\nHost: x\r\n');
    for (let probe = 0; probe < 5; probe += 1) assert.equal((await get('/livez')).status, 200);
    for (const socket of [...silent, half]) socket.destroy();
  });

  it('ends a connection on which many requests come before their answers', async () => {
    const socket = connect(endpoints.port, '127.0.0.1');
    socket.on('error', () => undefined).resume();
    socket.write('GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(PIPELINED_MAX + 1));
    await once(socket, 'close');
    assert.equal((await get('/livez')).status, 200);
  });

  it('says which port is in use and what to set', async () => {
    const { registry } = new NodeMetrics();
    const taken = { host: '127.0.0.1', port: endpoints.port, status, registry, info: () => info };
    await assert.rejects(openHttpEndpoints(taken), {
      name: 'ListenError',
      message: /^port \d+ of 127\.0\.0\.1 is in use.*MATTING_NODE_HTTP_PORT/,
    });
  });
});

it('metrics keep to the naming rules, and tell what happened', async () => {
  const node = await openTestNode({ model: { precisionFallback: 'no VNNI' } });
  await new MatteCaller(node).serve('12345');
  await node.matte.untilIdle();
  const text = await node.metrics.registry.metrics();
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)];
  for (const [, name = '', type] of types.filter(([, name]) => name?.startsWith('matting_'))) {
    assert.match(name, /^matting_node_[a-z_]+$/);
    assert.equal(name.endsWith('_total'), type === 'counter', name);
    assert.doesNotMatch(name, /_(ms|milliseconds|mb|kb|minutes)(_|$)/);
  }
  const value = (line: string) =>
    Number(
      text
        .split('\n')
        .find(l => l.startsWith(line))
        ?.split(' ')
        .at(-1),
    );
  const ok = 'matting_node_images_total{outcome="succeeded",code="",output_format="png"}';
  assert.equal(value(ok), 1);
  assert.equal(value('matting_node_received_bytes_total'), 5);
  assert.equal(value('matting_node_sent_bytes_total'), node.pictures.result.length);
  assert.equal(value('matting_node_images_in_flight'), 0);
  assert.equal(value('matting_node_images_max'), 4);
  assert.equal(value('matting_node_state{state="serving"}'), 1);
  const tiny = 'model="tiny",input_size="4",role="subject"';
  assert.equal(value(`matting_node_engine_runs_total{${tiny},outcome="succeeded"}`), 1);
  const fallback = 'matting_node_execution_provider_fallback{requested="auto",selected="cpu"}';
  assert.equal(value(fallback), 1);
  assert.equal(value(`matting_node_precision_fallback{${tiny},selected="fp32"}`), 1);
  assert.equal(value('matting_node_stage_duration_seconds_count{stage="infer"}'), 1);
  assert.match(text, /^nodejs_eventloop_lag_seconds /m);
  assert.match(text, /^process_resident_memory_bytes /m);
  await node.close();
});
