import { once } from 'node:events';
import { connect } from 'node:net';
import ava from 'ava';
import { PIPELINED_MAX } from '#program/ports/http-guard.ts';
import { openHttpEndpoints } from '../../src/http-endpoints.ts';
import { NodeMetrics } from '../../src/metrics.ts';
import { NodeStatus } from '../../src/node-state.ts';
import { FakeEnginePool, FakePicturePool, StageGates } from '../grpc/fake-pools.ts';
import { MatteCaller, openTestNode } from '../grpc/test-node.ts';

const test = ava.serial;

let status: NodeStatus;
let endpoints: Awaited<ReturnType<typeof openHttpEndpoints>>;
let info: object | undefined;

test.beforeEach(async () => {
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

test.afterEach.always(async () => {
  await endpoints.close();
});

async function get(path: string, init?: RequestInit) {
  const answer = await fetch(`http://127.0.0.1:${endpoints.port}${path}`, init);
  return { status: answer.status, text: await answer.text(), headers: answer.headers };
}

test('the HTTP side › has nothing else, and takes nothing', async t => {
  t.is((await get('/')).status, 404);
  t.is((await get('/metrics/../secret')).status, 404);
  t.is((await get('/livez', { method: 'POST', body: 'x' })).status, 405);
});

test('the HTTP side › is ready only while the node serves', async t => {
  t.is((await get('/livez')).status, 200);
  t.is((await get('/readyz')).status, 503);
  const engines = new FakeEnginePool(new StageGates());
  status.attach([engines], new FakePicturePool(new StageGates()));
  t.is((await get('/readyz?probe=1')).status, 200);
  engines.set({ enginesReady: 0 });
  t.is((await get('/readyz')).text, 'starting\n');
  engines.set({ enginesReady: 1 });
  status.drain('shutdown');
  const draining = await get('/readyz');
  t.deepEqual([draining.status, draining.text], [503, 'draining\n']);
  t.is((await get('/livez')).status, 200);
});

test('the HTTP side › tells what the node is', async t => {
  info = { plan: 'tiny' };
  t.deepEqual(JSON.parse((await get('/info')).text), { state: 'starting', plan: 'tiny' });
});

test('the HTTP side › is not closed to probes by connections that say nothing', async t => {
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
  for (let probe = 0; probe < 5; probe += 1) t.is((await get('/livez')).status, 200);
  for (const socket of [...silent, half]) socket.destroy();
});

test('the HTTP side › ends a connection on which many requests come before their answers', async t => {
  const socket = connect(endpoints.port, '127.0.0.1');
  socket.on('error', () => undefined).resume();
  socket.write('GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(PIPELINED_MAX + 1));
  await once(socket, 'close');
  t.is((await get('/livez')).status, 200);
});

test('the HTTP side › says which port is in use and what to set', async t => {
  const { registry } = new NodeMetrics();
  const taken = { host: '127.0.0.1', port: endpoints.port, status, registry, info: () => info };
  await t.throwsAsync(openHttpEndpoints(taken), {
    name: 'ListenError',
    message: /^port \d+ of 127\.0\.0\.1 is in use.*MATTING_NODE_HTTP_PORT/,
  });
});

test('metrics keep to the naming rules, and tell what happened', async t => {
  const node = await openTestNode({ model: { precisionFallback: 'no VNNI' } });
  await new MatteCaller(node).serve('12345');
  await node.matte.untilIdle();
  const text = await node.metrics.registry.metrics();
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)];
  for (const [, name = '', type] of types.filter(([, name]) => name?.startsWith('matting_'))) {
    t.regex(name, /^matting_node_[a-z_]+$/);
    t.is(name.endsWith('_total'), type === 'counter', name);
    t.notRegex(name, /_(ms|milliseconds|mb|kb|minutes)(_|$)/);
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
  t.is(value(ok), 1);
  t.is(value('matting_node_received_bytes_total'), 5);
  t.is(value('matting_node_sent_bytes_total'), node.pictures.result.length);
  t.is(value('matting_node_images_in_flight'), 0);
  t.is(value('matting_node_images_max'), 4);
  t.is(value('matting_node_state{state="serving"}'), 1);
  const tiny = 'model="tiny",input_size="4",role="subject"';
  t.is(value(`matting_node_engine_runs_total{${tiny},outcome="succeeded"}`), 1);
  const fallback = 'matting_node_execution_provider_fallback{requested="auto",selected="cpu"}';
  t.is(value(fallback), 1);
  t.is(value(`matting_node_precision_fallback{${tiny},selected="fp32"}`), 1);
  t.is(value('matting_node_stage_duration_seconds_count{stage="infer"}'), 1);
  t.regex(text, /^nodejs_eventloop_lag_seconds /m);
  t.regex(text, /^process_resident_memory_bytes /m);
  await node.close();
});
