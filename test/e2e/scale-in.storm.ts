/**
 * Nodes that come when there is work and are ended while they have some, each a process of its own,
 * beside nodes that never become ready: no attempt is lost, and no image waits for the latter.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import sharp from 'sharp';
import { NodeState } from '#gen/matting/v1/matte_service.ts';
import { findFreePorts } from '../../bin/free-ports.ts';
import { ScriptedNode, TEST_TOKEN } from '../../control-plane/test/nodes/scripted-node.ts';
import { until } from '../../control-plane/test/services/dispatch/harness.ts';
import { type Caller, Replicas } from '../../control-plane/test/support/replicas.ts';
import { THIS_VERSION } from '../support/fleet/installed-version.ts';
import { FleetNode } from '../support/fleet/program.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
/** Of one image at a time each: those of a round outlast the node that they begin on. */
const ROUND_JOBS = 8;

let directory: string;
let replicas: Replicas;
let caller: Caller;
const spawned: FleetNode[] = [];

/** An inference node with a tiny model. */
async function startNode(name: string): Promise<FleetNode> {
  const [grpc = 0, http = 0] = await findFreePorts(2);
  const env = {
    TMPDIR: directory,
    MATTING_NODE_TOKEN: TEST_TOKEN,
    MATTING_REGISTRY_ADDRESS: `127.0.0.1:${replicas.plane(0).ports.registry}`,
  };
  const place = { ports: { grpc, http }, planes: [], model: 'tiny' } as const;
  const node = new FleetNode(THIS_VERSION, { name, env, directory }, place);
  spawned.push(node);
  node.start();
  return node;
}

test.before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-scale-in-'));
  replicas = await Replicas.open('sqlite', { env: { MATTING_NODES_ON_DEMAND: 'true' } });
  caller = await replicas.createCaller(1000);
});

test.after.always(async () => {
  for (const node of spawned) await node.kill();
  await replicas?.close();
  await rm(directory, { recursive: true, force: true });
});

const submitted: string[] = [];

async function submitRound(): Promise<void> {
  for (let sent = 0; sent < ROUND_JOBS; sent += 1) {
    const width = 300 + submitted.length;
    const create = { width, height: 300, channels: 3 as const, background: 'gray' };
    const image = (await sharp({ create }).png().toBuffer()).toString('base64');
    const request = { path: JOBS, replica: sent % 2 };
    const answer = await replicas.post(caller, { image_base64: image }, request);
    assert.equal(answer.status, 202, JSON.stringify(answer.body));
    submitted.push(answer.body.job_id);
  }
}

async function countOf(...states: readonly string[]): Promise<number> {
  const jobs = await Promise.all(submitted.map(id => replicas.stores.jobs.find(id)));
  return jobs.filter(job => job !== undefined && states.includes(job.state)).length;
}

async function metric(name: string): Promise<number> {
  const page = await fetch(`http://127.0.0.1:${replicas.plane(1).ports.metrics}/metrics`);
  return Number(new RegExp(`^${name} (.*)$`, 'm').exec(await page.text())?.[1]);
}

test('nodes that come and go under work lose no attempt, and some that never come cost nothing', async t => {
  // One that never says it is ready, one that registers and cannot be reached.
  const starting = await ScriptedNode.start();
  starting.state = NodeState.NODE_STATE_STARTING;
  await starting.join(replicas.plane(0).ports.registry);
  replicas.nodes.push(starting);
  const gone = { ...starting.registration, nodeId: 'nowhere', address: '127.0.0.1:1' };
  await replicas.stores.nodes.register(gone, 600_000);
  await submitRound();
  await until(async () => (await metric('matting_control_nodes_wanted')) >= 1, 'a node is wanted');
  for (const name of ['first', 'second']) {
    const node = await startNode(name);
    const before = await countOf('succeeded');
    await until(async () => (await countOf('succeeded')) > before, 'an image of the node');
    await submitRound();
    await until(async () => (await countOf('running')) > 0, 'an image under way');
    await node.stop();
    t.true((await countOf('accepted', 'ready')) > 0, 'work is left for the next node');
  }
  await startNode('third');
  await until(async () => (await countOf('succeeded')) === submitted.length, 'all images');
  for (const id of submitted) {
    const job = await replicas.stores.jobs.find(id);
    t.deepEqual([job?.lostAttempts, job?.takeovers], [0, 0], 'no attempt was lost');
  }
  t.is(starting.headers.length, 0);
  const credits = await replicas.stores.ledger.credits(caller.accountId);
  t.deepEqual([credits?.sums.charge, credits?.reserved], [submitted.length, 0]);
  t.deepEqual(await replicas.stores.ledger.check(), []);
});
