/**
 * Nodes that come when there is work and are ended while they have some, each a process of its own,
 * beside nodes that never become ready: no attempt is lost, and no image waits for the latter.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import sharp from 'sharp';
import { NodeState } from '#gen/matting/v1/matte_service.ts';
import { ScriptedNode, TEST_TOKEN } from '../../control-plane/test/nodes/scripted-node.ts';
import { until } from '../../control-plane/test/services/dispatch/harness.ts';
import { type Caller, Replicas } from '../../control-plane/test/support/replicas.ts';
import { ROOT } from '../support/running-service.ts';

const JOBS = '/v1/matting/jobs';
/** Of one image at a time each: those of a round outlast the node that they begin on. */
const ROUND_JOBS = 8;

let directory: string;
let replicas: Replicas;
let caller: Caller;
const spawned: NodeProcess[] = [];

/** An inference node with a tiny model. */
class NodeProcess {
  readonly #child: ChildProcess;
  readonly #exited: Promise<number | null>;
  #errors = '';

  constructor(name: string) {
    const hook = path.join(ROOT, 'test/support/tiny-plan-hook.ts');
    this.#child = spawn(process.execPath, ['--import', hook, 'inference-node/src/main.ts'], {
      cwd: ROOT,
      env: {
        PATH: process.env.PATH,
        TMPDIR: directory,
        MATTING_NODE_TOKEN: TEST_TOKEN,
        MATTING_REGISTRY_ADDRESS: `127.0.0.1:${replicas.plane(0).ports.registry}`,
        MATTING_NODE_ID: name,
        MATTING_NODE_PORT: '0',
        MATTING_NODE_HTTP_PORT: '0',
        MATTING_MODEL_DIR: path.join(directory, 'models'),
        MATTING_EXECUTION_PROVIDER: 'cpu',
        MATTING_ENGINES: '1',
        MATTING_ENGINE_THREADS: '1',
        MATTING_PICTURE_WORKERS: '1',
        MATTING_NODE_MEGAPIXELS_MAX: '200',
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#exited = new Promise(resolve => this.#child.once('close', resolve));
    this.#child.stderr?.setEncoding('utf8').on('data', text => {
      this.#errors += text;
    });
    spawned.push(this);
  }

  /** As an autoscaler ends it. */
  async scaleIn(): Promise<void> {
    this.#child.kill('SIGTERM');
    assert.equal(await this.#exited, 0, this.#errors);
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#exited;
  }
}

before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-scale-in-'));
  replicas = await Replicas.open('sqlite', { env: { MATTING_NODES_ON_DEMAND: 'true' } });
  caller = await replicas.createCaller(1000);
});

after(async () => {
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

test('nodes that come and go under work lose no attempt, and some that never come cost nothing', async () => {
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
    const node = new NodeProcess(name);
    const before = await countOf('succeeded');
    await until(async () => (await countOf('succeeded')) > before, 'an image of the node');
    await submitRound();
    await until(async () => (await countOf('running')) > 0, 'an image under way');
    await node.scaleIn();
    assert.ok((await countOf('accepted', 'ready')) > 0, 'work is left for the next node');
  }
  new NodeProcess('third');
  await until(async () => (await countOf('succeeded')) === submitted.length, 'all images');
  for (const id of submitted) {
    const job = await replicas.stores.jobs.find(id);
    assert.deepEqual([job?.lostAttempts, job?.takeovers], [0, 0], 'no attempt was lost');
  }
  assert.equal(starting.headers.length, 0);
  const credits = await replicas.stores.ledger.credits(caller.accountId);
  assert.deepEqual([credits?.sums.charge, credits?.reserved], [submitted.length, 0]);
  assert.deepEqual(await replicas.stores.ledger.check(), []);
});
