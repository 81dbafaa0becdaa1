/** A fleet that sleeps: two control planes take work while no node lives, and nodes come later. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, describe, it } from 'node:test';
import { until } from '../services/dispatch/harness.ts';
import { assertBalanced } from '../store/fixtures.ts';
import { type Caller, pictureBody, Replicas, type RestAnswer } from '../support/replicas.ts';
import { pngHeader } from '../support/test-app.ts';

const JOBS = '/v1/matting/jobs';
const REMOVEBG = '/v1.0/removebg';
const ENV = { MATTING_NO_NODE_GRACE_MS: '0', MATTING_REMOVEBG_WAIT_MS: '1000' };

function removebgBody(): Record<string, unknown> {
  const picture = Buffer.concat([pngHeader(4, 3), Buffer.from(randomUUID())]);
  return { image_file_b64: picture.toString('base64') };
}

describe('a fleet that sleeps', () => {
  const replicas = Replicas.use('sqlite', { env: { ...ENV, MATTING_NODES_ON_DEMAND: 'true' } });
  let caller: Caller;
  const waiting: RestAnswer[] = [];

  before(async () => {
    caller = await replicas.createCaller(10);
  });

  it('is ready without a node', async () => {
    for (const replica of [0, 1]) {
      assert.equal((await fetch(replicas.url(replica, '/readyz'))).status, 200);
    }
  });

  it('takes jobs, and answers who waits with 202 in time', async () => {
    const asynchronous = await replicas.post(caller, pictureBody(), { path: JOBS });
    assert.equal(asynchronous.status, 202);
    const headers = { prefer: 'wait=1' };
    const synchronous = await replicas.post(caller, pictureBody(), { headers, replica: 1 });
    assert.equal(synchronous.status, 202);
    assert.equal(synchronous.body.sync_timeout, true);
    assert.ok(Number(synchronous.headers.get('retry-after')) > 0);
    waiting.push(asynchronous, synchronous);
  });

  it('makes a job of what no node may be able to do: who will come is not known', async () => {
    const body = pictureBody({ background: 'white' });
    const answer = await replicas.post(caller, body, { path: JOBS });
    assert.equal(answer.status, 202, JSON.stringify(answer.body));
    waiting.push(answer);
  });

  it('tells clients of remove.bg to come again, and has their job then', async () => {
    const body = removebgBody();
    const post = () =>
      replicas.post(caller, body, { path: REMOVEBG, headers: { accept: 'application/json' } });
    const early = await post();
    assert.equal(early.status, 503);
    assert.ok(Number(early.headers.get('retry-after')) > 0);
    assert.equal((await post()).headers.get('x-job-id'), early.headers.get('x-job-id'));
    await replicas.addNode();
    const late = await post();
    assert.equal(late.status, 200, JSON.stringify(late.body));
    assert.equal(late.headers.get('x-job-id'), early.headers.get('x-job-id'));
  });

  it('did all that waited, once, when a node came', async () => {
    for (const { body } of waiting) {
      const read = () => replicas.get(caller, `${JOBS}/${body.job_id}`);
      await until(async () => (await read()).body.status === 'succeeded', 'the cut-out');
    }
    const credits = await replicas.stores.ledger.credits(caller.accountId);
    assert.deepEqual([credits?.sums.charge, credits?.reserved], [waiting.length + 1, 0]);
    await assertBalanced(replicas.stores);
  });

  it('takes what no node alive can do: another kind may come', async () => {
    for (const replica of [0, 1]) {
      const body = pictureBody({ output_format: 'jxl' });
      const answer = await replicas.post(caller, body, { path: JOBS, replica });
      assert.equal(answer.status, 202, JSON.stringify(answer.body));
    }
  });

  it('takes jobs when its last node has gone, too', async () => {
    for (const node of replicas.nodes) await node.down();
    const answer = await replicas.post(caller, pictureBody(), { path: JOBS });
    assert.equal(answer.status, 202);
    assert.equal((await fetch(replicas.url(0, '/readyz'))).status, 200);
  });
});

describe('a fleet that must live', () => {
  it('is not ready before its first node, and refuses work without one', async () => {
    const replicas = await Replicas.open('sqlite', { replicas: 1, env: ENV });
    const caller = await replicas.createCaller(1);
    assert.equal((await fetch(replicas.url(0, '/readyz'))).status, 503);
    const answer = await replicas.post(caller, pictureBody(), { path: JOBS });
    assert.equal(answer.status, 503);
    assert.equal(answer.body.detail, 'no inference node is available');
    const credits = await replicas.stores.ledger.credits(caller.accountId);
    assert.equal(credits?.reserved, 0);
    await replicas.close();
  });

  it('refuses what no node can do by the name of its field, and all once none is there', async () => {
    const replicas = await Replicas.open('sqlite', { env: ENV });
    const caller = await replicas.createCaller(3);
    const node = await replicas.addNode();
    const jxl = (replica: number) =>
      replicas.post(caller, pictureBody({ output_format: 'jxl' }), { path: JOBS, replica });
    for (const replica of [0, 1]) {
      const { status, body } = await jxl(replica);
      assert.deepEqual([status, body.code], [400, 'UNSUPPORTED_OUTPUT_FORMAT']);
      assert.deepEqual([body.errors[0].field, body.retryable], ['output_format', false]);
      const webp = pictureBody({ output_format: 'webp' });
      assert.equal((await replicas.post(caller, webp, { replica })).status, 200);
    }
    await node.down();
    await until(async () => (await jxl(0)).status === 503, 'no node to be there');
    const credits = await replicas.stores.ledger.credits(caller.accountId);
    assert.deepEqual([credits?.sums.charge, credits?.reserved], [2, 0]);
    await replicas.close();
  });
});
