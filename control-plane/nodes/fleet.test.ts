import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { ChannelCredentials, type ServerOptions } from '@grpc/grpc-js';
import {
  InputFormat,
  NodeLimits,
  NodeModel,
  NodeState,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { Fleet } from './fleet.ts';
import type { FleetMember } from './node-link.ts';
import type { NodeSnapshot } from './node-view.ts';
import { NODE_TIMING } from './registry-server.ts';
import { cutOutAfter } from './test/scripted-exchange.ts';
import {
  callOf,
  ScriptedNode,
  type ScriptedNodeOptions,
  TEST_TOKEN,
} from './test/scripted-node.ts';

const test = ava.serial;

let members: FleetMember[] | Error = [];
let nowMs = 0;
let logLines: string[] = [];
let runsOn: (string | undefined)[] = [];
let fleet: Fleet;
const nodes: ScriptedNode[] = [];

test.beforeEach(async () => {
  members = [];
  nowMs = 0;
  logLines = [];
  runsOn = [];
  await begin();
});

async function begin(options: Partial<ConstructorParameters<typeof Fleet>[0]> = {}) {
  fleet = new Fleet({
    listMembers: async () => {
      if (members instanceof Error) throw members;
      return members;
    },
    noteModels: async (_member, _models, on) => runsOn.push(on),
    nodeToken: () => TEST_TOKEN,
    log: (_level, message, fields) => logLines.push(`${message} ${JSON.stringify(fields)}`),
    now: () => nowMs,
    ...options,
  });
  await fleet.start();
}

test.afterEach.always(async () => {
  await fleet.close();
  for (const node of nodes.splice(0)) await node.down();
});

async function started(options: ScriptedNodeOptions = {}): Promise<ScriptedNode> {
  const node = await ScriptedNode.start(options);
  nodes.push(node);
  return node;
}

async function follow(...followed: ScriptedNode[]): Promise<void> {
  members = followed.map(node => node.member);
  await fleet.refresh();
}

async function joined(options: ScriptedNodeOptions = {}): Promise<ScriptedNode> {
  const node = await started(options);
  await follow(node);
  await until('one routable node', () => routable().length === 1);
  return node;
}

const routable = () => fleet.snapshots().map(node => node.nodeId);

function theOnly(): NodeSnapshot {
  const [node, ...more] = fleet.snapshots();
  assert.ok(node !== undefined && more.length === 0, 'one node is routable');
  return node;
}

test('a node › is routable as soon as it is a member and reports that it serves', async t => {
  const node = await started();
  node.state = NodeState.NODE_STATE_STARTING;
  await follow(node);
  await until('a change', () => node.watched);
  t.deepEqual(routable(), []);
  t.false(fleet.hasBeenRoutable);
  node.state = NodeState.NODE_STATE_SERVING;
  node.report();
  await until('one routable node', () => routable().length === 1);
  t.true(fleet.hasBeenRoutable);
});

test('a node › is stored with the processor of its models, or with its provider alone', async t => {
  const named = [{ runtime: 'openvino' }, { runtime: 'onnxruntime' }, { runtime: 'openvino' }];
  const models = named.map(one => NodeModel.create(one));
  await joined({ info: { models } });
  await fleet.refresh();
  t.deepEqual(runsOn, ['cpu (onnxruntime, openvino)']);
  const older = [NodeModel.create({ model: 'isnet' })];
  await joined({ info: { models: older, executionProviderSelected: 'webgpu' } });
  await fleet.refresh();
  t.is(runsOn.at(-1), 'webgpu');
  const hostile = Array.from({ length: 99 }, (_, at) => NodeModel.create({ runtime: `r${at}` }));
  hostile.unshift(NodeModel.create({ runtime: '\u001b[2J' }));
  await joined({ info: { models: hostile, executionProviderSelected: 'x'.repeat(33) } });
  await fleet.refresh();
  t.is(runsOn.at(-1), '? (r0, r1, r10, r11, r12, r13, r14, r15)');
});

test('a node › leaves at once when it announces draining, fails or stops its membership', async t => {
  const node = await joined();
  for (const state of [NodeState.NODE_STATE_DRAINING, NodeState.NODE_STATE_FAILED]) {
    node.state = state;
    node.report();
    await until('no routable node', () => routable().length === 0);
    node.state = NodeState.NODE_STATE_SERVING;
    node.report();
    await until('one routable node', () => routable().length === 1);
  }
  await follow();
  t.deepEqual(routable(), []);
});

test('a node › that dies is not routable, and again when it is back at its address', async t => {
  const node = await joined();
  await node.down();
  await until('no routable node', () => routable().length === 0);
  await node.up();
  await t.notThrowsAsync(until('one routable node', () => routable().length === 1));
});

test('a node › that restarts is followed under its new boot id only once it has registered', async t => {
  const node = await joined();
  const old = node.bootId;
  await node.down();
  await node.restart();
  await until('a change', () => logLines.some(line => /another node.* within 15 s/.test(line)));
  t.deepEqual(routable(), []);
  await follow(node);
  await until('one routable node', () => routable().length === 1);
  t.not(fleet.snapshots()[0]?.bootId, old);
});

test('a node › of another protocol is never routable, and the log says why', async t => {
  const node = await started({ info: { protocolVersion: 'matting.v2' } });
  await follow(node);
  await until('a change', () => logLines.some(line => line.includes('matting.v2')));
  t.deepEqual(routable(), []);
});

test('a node › is judged by its advertised abilities, and unknown formats are ignored', async t => {
  await joined({
    info: { inputFormats: [InputFormat.INPUT_FORMAT_JXL, 99 as InputFormat] },
  });
  t.deepEqual([...theOnly().inputFormats], ['jxl']);
});

test('a node › that the operator drains is not routable before it says so itself', async t => {
  const node = await joined();
  members = [{ ...node.member, draining: true }];
  await fleet.refresh();
  t.deepEqual(routable(), []);
});

test('a stream that falls silent › takes its node out, as a process that is stopped would', async t => {
  const { setTimeout: real } = globalThis;
  const patience = sinon.stub(globalThis, 'setTimeout');
  t.teardown(() => patience.restore());
  // Shortens only the wait for a report. The node reports each second.
  patience.callsFake(((run: () => void, ms: number) =>
    real(run, ms === 5000 ? 1500 : ms)) as typeof setTimeout);
  const node = await joined();
  node.reporting = false;
  await until('the end of the patience', () => routable().length === 0);
  node.reporting = true;
  await t.notThrowsAsync(until('one routable node', () => routable().length === 1));
});

/** Its connections change every 300 ms, and it must stay routable. */
async function changing(t: ExecutionContext, sides: { node?: ServerOptions; own?: number }) {
  await fleet.close();
  const credentials = ChannelCredentials.createInsecure();
  const security = { credentials, options: { 'grpc.keepalive_time_ms': 100 } };
  await begin({ security, connectionAgeMaxMs: sides.own ?? 60_000 });
  const { promise: go, resolve: finish } = Promise.withResolvers<void>();
  const node = await joined({ script: cutOutAfter(go), server: sides.node ?? {} });
  const lines = logLines.length;
  fleet.onChange(() => t.is(routable().length, 1));
  return { node, finish, logLines: () => logLines.slice(lines) };
}

for (const [name, odd] of [
  ['megapixelsFree', Number.NaN],
  ['inferMs', Number.POSITIVE_INFINITY],
  ['encodeMsPerMegapixel', -1],
] as const) {
  test(`a node › that reports ${odd} as ${name} gets no image, and the log says why`, async t => {
    let number: number = odd;
    await follow(await started({ load: () => ({ [name]: number }) }));
    await until('a complaint', () => logLines.some(line => line.includes(`${name} out of range`)));
    t.deepEqual(routable(), []);
    number = 1;
    await until('one routable node', () => routable().length === 1);
  });
}

test('a node › whose limits are no numbers is never routable, and the log says why', async t => {
  const limits = NodeLimits.create({ imagesMax: 2, megapixelsMax: Number.NaN });
  await follow(await started({ info: { limits } }));
  await until('a complaint', () => logLines.some(line => line.includes('limits.megapixelsMax')));
  t.deepEqual(routable(), []);
});

test('a node › that reports without a pause is read at its pace, and leaves the loop to others', async t => {
  const node = await joined();
  let changes = 0;
  fleet.onChange(() => {
    changes += 1;
  });
  const began = performance.now();
  for (let sent = 0; sent < 5000; sent += 1) node.report();
  await until('some reports', () => changes >= 20);
  t.true(changes <= 2 + (performance.now() - began) / 10);
});

test('a change of connections › that the control plane makes loses neither the node nor an attempt', async t => {
  const { node, finish, logLines: newLines } = await changing(t, { own: 300 });
  const offer = fleet.offer(theOnly(), { megapixels: 1 });
  assert.ok(offer);
  const attempt = offer.client.matte(callOf(Buffer.from('abc')));
  await until('the attempt', () => node.headers.length === 1);
  const connected = node.connectionsMade;
  await until('three changes', () => node.connectionsMade >= connected + 3);
  finish();
  t.is((await attempt).kind, 'done');
  offer.end();
  await until('the old connections to close', () => node.connections <= 2);
  t.deepEqual(newLines(), []);
});

test('a change of connections › that an older node or a proxy asks for does not lose the node', async t => {
  const age = { 'grpc.max_connection_age_ms': 300 };
  const { node, logLines: newLines } = await changing(t, { node: age });
  await until('three changes', () => node.connectionsMade >= 4);
  t.deepEqual(newLines(), []);
});

test('a change of connections › to a node that takes no more of them keeps the one there is', async t => {
  const { node, logLines: newLines } = await changing(t, { own: 300 });
  node.stopListening();
  await until('a complaint', () => newLines().length > 0);
  t.regex(newLines().join(), /^node not reachable/);
  t.is(routable().length, 1);
});

test('an unreachable database › changes nothing for nodes with live streams', async t => {
  await joined();
  members = new Error('away');
  await fleet.refresh();
  await fleet.refresh();
  t.is(routable().length, 1);
  t.is(logLines.filter(line => line.startsWith('members not readable')).length, 1);
  // Every lease expired meanwhile, and no heartbeat was recorded yet.
  members = [];
  nowMs += NODE_TIMING.leaseMs - 1;
  await fleet.refresh();
  t.is(routable().length, 1);
  nowMs += 1;
  await fleet.refresh();
  t.deepEqual(routable(), []);
});

test('a database that is back › decides about a node whose stream has ended', async t => {
  const node = await joined();
  members = new Error('away');
  await fleet.refresh();
  await node.down();
  await until('no routable node', () => routable().length === 0);
  members = [];
  await fleet.refresh();
  t.is(fleet.counts().members, 0);
});

test('room on a node › excludes offered images until the node counts them itself', async t => {
  await joined({ imagesMax: 2 });
  const before = theOnly();
  t.deepEqual([before.imagesFree, before.imagesInFlight], [2, 0]);
  const first = fleet.offer(before, { megapixels: 12 });
  const second = fleet.offer(before, { megapixels: 12 });
  assert.ok(first && second);
  const during = theOnly();
  t.deepEqual([during.imagesFree, during.unreportedImages, during.imagesInFlight], [0, 2, 2]);
  first.end();
  first.end();
  t.is(theOnly().imagesFree, 1);
  second.end();
  t.is(theOnly().imagesFree, 2);
});

test('room on a node › is not given on a boot that is gone', async t => {
  await joined();
  const snapshot = theOnly();
  t.is(fleet.offer({ ...snapshot, bootId: randomUUID() }, { megapixels: 1 }), undefined);
  await follow();
  t.is(fleet.offer(snapshot, { megapixels: 1 }), undefined);
});

test('room on a node › that was taken keeps its channel when the membership ends', async t => {
  const { promise: go, resolve } = Promise.withResolvers<void>();
  const node = await joined({
    script: cutOutAfter(go),
  });
  const offer = fleet.offer(theOnly(), { megapixels: 1 });
  assert.ok(offer);
  const attempt = offer.client.matte(callOf(Buffer.from('abc')));
  await until('a change', () => node.headers.length === 1);
  await follow();
  t.is(fleet.counts().attemptsInFlight, 1);
  resolve();
  t.is((await attempt).kind, 'done');
  offer.end();
  t.is(fleet.counts().attemptsInFlight, 0);
});

test('the time without a routable node › counts from the start, is 0 while there is one, and from its loss on', async t => {
  nowMs = 500;
  t.is(fleet.unroutableMs(), 500);
  await joined();
  nowMs = 10_000;
  t.is(fleet.unroutableMs(), 0);
  await follow();
  nowMs = 10_700;
  t.is(fleet.unroutableMs(), 700);
});

test('the reported state of a node › is the one that dispatch uses, with its cause', async t => {
  const node = await started();
  node.state = NodeState.NODE_STATE_STARTING;
  await follow(node);
  const seen = () => fleet.seen().map(({ state, cause }) => ({ state, cause }));
  t.deepEqual(seen(), [], 'nothing is said before the first answer');
  for (const [state, expected] of [
    [NodeState.NODE_STATE_STARTING, 'starting'],
    [NodeState.NODE_STATE_SERVING, 'serving'],
    [NodeState.NODE_STATE_DRAINING, 'draining'],
    [NodeState.NODE_STATE_FAILED, 'failed'],
    [NodeState.NODE_STATE_SERVING, 'serving'],
  ] as const) {
    node.state = state;
    node.report();
    await until('a change', () => seen()[0]?.state === expected);
    t.is(routable().length === 1, expected === 'serving');
    t.is(seen()[0]?.cause === null, expected === 'serving');
  }
  await node.down();
  await until('a change', () => seen()[0]?.cause === 'it refuses the connection');
  t.is(seen()[0]?.state, 'unreachable');
  t.deepEqual(routable(), []);
  await node.up();
  await until('a change', () => seen()[0]?.state === 'serving');
  t.pass();
});

test('the reported state of a node › is ejected until dispatch may use the node again', async t => {
  const node = await joined();
  const offer = fleet.offer(theOnly(), { megapixels: 1 });
  for (let fault = 0; fault < 5; fault += 1) offer?.judge('fault');
  offer?.end();
  t.is(fleet.seen()[0]?.state, 'ejected');
  t.regex(fleet.seen()[0]?.cause ?? '', /lost too many images/);
  nowMs += theOnly().ejectedUntilMs;
  t.is(fleet.seen()[0]?.nodeId, node.nodeId);
  t.is(fleet.seen()[0]?.state, 'serving');
});
