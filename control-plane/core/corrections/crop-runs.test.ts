import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { saidModel, saidPlan } from '@matting/nodes/test/nodes-seen.ts';
import type { Script } from '@matting/nodes/test/scripted-exchange.ts';
import type { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import ava, { type ExecutionContext } from 'ava';
import { until } from '../test/harness.ts';
import { type Caller, pictureBody, Replicas } from '../test/support/replicas.ts';
import { formDataOf, pngHeader } from '../test/support/test-app.ts';

const test = ava.serial;

const KEEP = { keep: [{ box: [0, 0, 2, 2] }] };
const ERASE_LINE = { erase: [{ line: [[1, 1]], radius: 1 }] };
const ERASE_BOX = { erase: [{ box: [0, 0, 2, 2] }] };
const HINTS = ['hints.keep', 'hints.erase', 'hints.picture', 'matte'];
const WAITS = { prefer: 'wait=60' };
const NOTHING = ['', '', ''];

const matting: Script = async exchange => {
  exchange.admit();
  const input = await exchange.receive();
  if (exchange.header.matte) exchange.answerMatte(input, Buffer.from('a matte'));
  else exchange.answer(input);
};

/** Another release gives the same plan another checksum. */
const oldNode = () => ({
  script: matting,
  info: {
    capabilities: HINTS,
    selectable: [saidPlan('standard', { sha256: 'aa' }), saidModel('heavy')],
  },
});
const newNode = (...models: string[]) => ({
  script: matting,
  info: {
    capabilities: [...HINTS, 'crop_run'],
    selectable: [
      saidPlan('standard', { sha256: 'bb' }),
      ...models.map(name => saidModel(name, { sha256: 'aa' })),
    ],
  },
});

class Service {
  readonly #replicas: Replicas;
  readonly caller: Caller;

  constructor(replicas: Replicas, caller: Caller) {
    this.#replicas = replicas;
    this.caller = caller;
  }

  static async open(t: ExecutionContext): Promise<Service> {
    const env = { MATTING_MODELS_OFFERED: 'standard,heavy' };
    const replicas = await Replicas.open('sqlite', { replicas: 1, env });
    t.teardown(() => replicas.close());
    return new Service(replicas, await replicas.createCaller(10));
  }

  async add(options: Parameters<Replicas['addNode']>[0]): Promise<ScriptedNode> {
    const node = await this.#replicas.addNode(options);
    await until(() => node.watched, 'the stream of the node');
    return node;
  }

  async submit(more: object = {}): Promise<string> {
    const path = '/v1/matting/jobs';
    const { body } = await this.#replicas.post(this.caller, pictureBody({ ...more }), { path });
    return body.job_id;
  }

  async succeeded(more: object = {}): Promise<string> {
    const jobId = await this.submit(more);
    await this.untilSucceeded(jobId);
    return jobId;
  }

  async correct(of: string, hints: object, headers = WAITS) {
    const path = `/v1/matting/jobs/${of}/corrections`;
    const answer = await this.#replicas.post(this.caller, hints, { path, headers });
    const { body } = answer;
    assert.deepEqual(body.credits, { reserved: 0, charged: 0 }, JSON.stringify(body));
    const cropRun = /\bcrop_run;dur=\d+/.exec(answer.headers.get('server-timing') ?? '')?.[0];
    return { ...(body as { job_id: string; status: string }), cropRun };
  }

  async correctByFile(of: string): Promise<void> {
    const authorization = `Bearer ${this.caller.token}`;
    const headers = { ...WAITS, authorization, 'idempotency-key': randomUUID() };
    const path = `/v1/matting/jobs/${of}/corrections`;
    const body = formDataOf({ hints_file: pngHeader(4, 3).fill(2, 25, 26) });
    const answer = await fetch(this.#replicas.url(0, path), { method: 'POST', headers, body });
    assert.equal(answer.status, 200, await answer.text());
  }

  async untilSucceeded(jobId: string): Promise<void> {
    const path = `/v1/matting/jobs/${jobId}`;
    const status = async () => (await this.#replicas.get(this.caller, path)).body.status;
    await until(async () => (await status()) === 'succeeded', 'the end of the job');
  }

  async assertCharged(t: ExecutionContext, credits: number): Promise<void> {
    const { ledger } = this.#replicas.stores;
    t.deepEqual(await ledger.balances(this.caller.accountId), {
      available: 10 - credits,
      reserved: 0,
    });
    t.deepEqual(await ledger.check(), []);
  }
}

const named = ({ headers }: ScriptedNode) => {
  const { plan, model, selectableSha256 } = headers.at(-1)!;
  return [plan, model, selectableSha256];
};

test('a node without runs on crops alone makes every correction as before', async t => {
  const service = await Service.open(t);
  const node = await service.add(oldNode());
  for (const model of [undefined, 'heavy']) {
    const first = await service.succeeded({ correctable: true, model });
    for (const hints of [KEEP, ERASE_LINE, ERASE_BOX, {}]) {
      const { status, cropRun } = await service.correct(first, hints);
      t.deepEqual([status, cropRun], ['succeeded', undefined]);
      t.truthy(node.headers.at(-1)?.givenMatte);
      t.deepEqual(named(node), NOTHING);
    }
  }
  await service.assertCharged(t, 2);
});

test('the header names the first job’s model or the own plan if the hints may need a run', async t => {
  const service = await Service.open(t);
  const node = await service.add(newNode('heavy'));
  for (const [model, names] of [
    [undefined, ['standard', '', 'bb']],
    ['standard', ['standard', '', 'bb']],
    ['heavy', ['', 'heavy', 'aa']],
  ] as const) {
    const first = await service.succeeded({ correctable: true, model });
    const { job_id: one, cropRun } = await service.correct(first, KEEP);
    t.deepEqual(named(node), [...names]);
    t.is(cropRun, 'crop_run;dur=7');
    await service.correct(one, ERASE_LINE);
    t.deepEqual(named(node), [...names], 'a correction of a correction');
    await service.correctByFile(one);
    t.deepEqual(named(node), [...names], 'a file of hints');
    for (const hints of [ERASE_BOX, {}]) {
      await service.correct(one, hints);
      t.deepEqual(named(node), NOTHING);
    }
  }
  await service.assertCharged(t, 3);
});

test('of an old and a new node the new one makes what may need a run, by its own plan’s sum', async t => {
  const service = await Service.open(t);
  const nodes = [await service.add(oldNode()), await service.add(oldNode())];
  const first = await service.succeeded({ correctable: true });
  const waiting = await service.correct(first, KEEP);
  t.is(waiting.status, 'succeeded');
  const node = await service.add(newNode());
  const others = nodes.map(({ headers }) => headers.length);
  for (let count = 0; count < 3; count += 1) {
    await service.correct(first, KEEP);
    t.deepEqual(named(node), ['standard', '', 'bb']);
  }
  t.deepEqual(
    nodes.map(({ headers }) => headers.length),
    others,
  );
  await node.down();
  t.is((await service.correct(first, KEEP)).status, 'succeeded', 'by an old node');
});

test('a model that no new node has leaves the correction to any node', async t => {
  const service = await Service.open(t);
  const old = await service.add(oldNode());
  const first = await service.succeeded({ correctable: true, model: 'heavy' });
  const node = await service.add(newNode());
  await service.correct(first, KEEP);
  const made = [old, node].find(({ headers }) => headers.at(-1)?.givenMatte);
  t.deepEqual(named(made!), NOTHING);
});

test('a new node that is full is waited for, and other jobs pass', async t => {
  const service = await Service.open(t);
  const { promise: held, resolve: free } = Promise.withResolvers<void>();
  const node = await service.add({ ...newNode(), imagesMax: 1 });
  const first = await service.succeeded({ correctable: true });
  node.script = async exchange => {
    exchange.admit();
    const input = await exchange.receive();
    await held;
    exchange.answer(input);
  };
  const blocking = await service.submit();
  await until(() => node.headers.length === 2, 'the call that fills the node');
  const old = await service.add(oldNode());
  const { job_id: correction } = await service.correct(first, KEEP, { prefer: 'respond-async' });
  await service.succeeded();
  await service.correct(first, ERASE_BOX);
  t.deepEqual([old.headers.length, node.headers.length], [2, 2]);
  node.script = matting;
  free();
  for (const job of [blocking, correction]) await service.untilSucceeded(job);
  t.deepEqual(named(node), ['standard', '', 'bb']);
  t.is(old.headers.length, 2);
});
