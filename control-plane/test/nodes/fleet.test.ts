/** Which nodes are routable, and with how much room, as they come, change, hang and go. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { InputFormat, NodeState } from '#gen/matting/v1/matte_service.ts';
import type { NodeSnapshot } from '../../src/domain/dispatch/dispatch-policy.ts';
import { Fleet } from '../../src/nodes/fleet.ts';
import type { FleetMember } from '../../src/nodes/node-link.ts';
import { NODE_TIMING } from '../../src/nodes/registry-server.ts';
import { until } from '../services/dispatch/harness.ts';
import { callOf, ScriptedNode, type ScriptedNodeOptions, TEST_TOKEN } from './scripted-node.ts';

let members: FleetMember[] | Error = [];
let nowMs = 0;
let said: string[] = [];
let fleet: Fleet;
const nodes: ScriptedNode[] = [];

beforeEach(async () => {
  members = [];
  nowMs = 0;
  said = [];
  fleet = new Fleet({
    listMembers: async () => {
      if (members instanceof Error) throw members;
      return members;
    },
    nodeToken: TEST_TOKEN,
    log: (_level, message, fields) => said.push(`${message} ${JSON.stringify(fields)}`),
    now: () => nowMs,
  });
  await fleet.start();
});

afterEach(async () => {
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

/** A member that is routable. */
async function joined(options: ScriptedNodeOptions = {}): Promise<ScriptedNode> {
  const node = await started(options);
  await follow(node);
  await until(() => routable().length === 1);
  return node;
}

const routable = () => fleet.snapshots().map(node => node.nodeId);

function theOnly(): NodeSnapshot {
  const [node, ...more] = fleet.snapshots();
  assert.ok(node !== undefined && more.length === 0, 'one node is routable');
  return node;
}

describe('a node', () => {
  it('is routable as soon as it is a member and reports that it serves', async () => {
    const node = await started();
    node.state = NodeState.NODE_STATE_STARTING;
    await follow(node);
    await until(() => node.watched);
    assert.deepEqual(routable(), []);
    assert.equal(fleet.hasBeenRoutable, false);
    node.state = NodeState.NODE_STATE_SERVING;
    node.report();
    await until(() => routable().length === 1);
    assert.equal(fleet.hasBeenRoutable, true);
  });

  it('leaves at once when it announces draining, fails or stops its membership', async () => {
    const node = await joined();
    for (const state of [NodeState.NODE_STATE_DRAINING, NodeState.NODE_STATE_FAILED]) {
      node.state = state;
      node.report();
      await until(() => routable().length === 0);
      node.state = NodeState.NODE_STATE_SERVING;
      node.report();
      await until(() => routable().length === 1);
    }
    await follow();
    assert.deepEqual(routable(), []);
  });

  it('that dies is not routable, and again when it is back at its address', async () => {
    const node = await joined();
    await node.down();
    await until(() => routable().length === 0);
    await node.up();
    await until(() => routable().length === 1);
  });

  it('that restarts is followed under its new boot id only once it has registered', async () => {
    const node = await joined();
    const old = node.bootId;
    await node.down();
    await node.restart();
    await until(() => said.some(line => line.includes('another node or boot answers')));
    assert.deepEqual(routable(), []);
    await follow(node);
    await until(() => routable().length === 1);
    assert.notEqual(fleet.snapshots()[0]?.bootId, old);
  });

  it('of another protocol is never routable, and the log says why', async () => {
    const node = await started({ info: { protocolVersion: 'matting.v2' } });
    await follow(node);
    await until(() => said.some(line => line.includes('matting.v2')));
    assert.deepEqual(routable(), []);
  });

  it('is judged by what it advertises, and unknown formats are no harm', async () => {
    await joined({
      info: { inputFormats: [InputFormat.INPUT_FORMAT_JXL, 99 as InputFormat] },
    });
    assert.deepEqual([...theOnly().inputFormats], ['jxl']);
  });

  it('that the operator drains is not routable before it says so itself', async () => {
    const node = await joined();
    members = [{ ...node.member, draining: true }];
    await fleet.refresh();
    assert.deepEqual(routable(), []);
  });
});

describe('a stream that falls silent', () => {
  it('takes its node out, as a process that is stopped would', async () => {
    const node = await joined();
    node.reporting = false;
    await until(() => routable().length === 0, 'the end of the patience');
    node.reporting = true;
    await until(() => routable().length === 1);
  });
});

describe('the database', () => {
  it('that is away changes nothing for nodes whose streams live', async () => {
    await joined();
    members = new Error('away');
    await fleet.refresh();
    await fleet.refresh();
    assert.equal(routable().length, 1);
    assert.equal(said.filter(line => line.startsWith('members not readable')).length, 1);
    // Back: every lease ran out meanwhile, and no heartbeat was written down yet.
    members = [];
    nowMs += NODE_TIMING.leaseMs - 1;
    await fleet.refresh();
    assert.equal(routable().length, 1);
    nowMs += 1;
    await fleet.refresh();
    assert.deepEqual(routable(), []);
  });

  it('that is back is believed of a node whose stream has ended', async () => {
    const node = await joined();
    members = new Error('away');
    await fleet.refresh();
    await node.down();
    await until(() => routable().length === 0);
    members = [];
    await fleet.refresh();
    assert.equal(fleet.counts().members, 0);
  });
});

describe('room on a node', () => {
  it('is less what was offered, until the node counts it itself', async () => {
    await joined({ imagesMax: 2 });
    const before = theOnly();
    assert.deepEqual([before.imagesFree, before.imagesInFlight], [2, 0]);
    const first = fleet.offer(before, 12);
    const second = fleet.offer(before, 12);
    assert.ok(first && second);
    const during = theOnly();
    assert.deepEqual(
      [during.imagesFree, during.unreportedImages, during.imagesInFlight],
      [0, 2, 2],
    );
    first.end();
    first.end();
    assert.equal(theOnly().imagesFree, 1);
    second.end();
    assert.equal(theOnly().imagesFree, 2);
  });

  it('is none after a refusal until the next report', async () => {
    const node = await joined();
    fleet.offer(theOnly(), 1)?.end('for-all');
    assert.equal(theOnly().imagesFree, 0);
    node.report();
    await until(() => theOnly().imagesFree === 2);
  });

  it('is not given on a boot that is gone', async () => {
    await joined();
    const snapshot = theOnly();
    assert.equal(fleet.offer({ ...snapshot, bootId: randomUUID() }, 1), undefined);
    await follow();
    assert.equal(fleet.offer(snapshot, 1), undefined);
  });

  it('that was taken keeps its channel when the membership ends', async () => {
    const { promise: go, resolve } = Promise.withResolvers<void>();
    const node = await joined({
      script: async exchange => {
        await go;
        await exchange.cutOut();
      },
    });
    const offer = fleet.offer(theOnly(), 1);
    assert.ok(offer);
    const attempt = offer.client.matte(callOf(Buffer.from('abc')));
    await until(() => node.headers.length === 1);
    await follow();
    assert.equal(fleet.counts().attemptsInFlight, 1);
    resolve();
    assert.equal((await attempt).kind, 'done');
    offer.end();
    assert.equal(fleet.counts().attemptsInFlight, 0);
  });
});

describe('the time without a routable node', () => {
  it('counts from the start, is 0 while there is one, and from its loss on', async () => {
    nowMs = 500;
    assert.equal(fleet.unroutableMs(), 500);
    await joined();
    nowMs = 10_000;
    assert.equal(fleet.unroutableMs(), 0);
    await follow();
    nowMs = 10_700;
    assert.equal(fleet.unroutableMs(), 700);
  });
});
