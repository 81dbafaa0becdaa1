/** Needs: removebg. */
import { assertBalanced } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import { type Caller, pictureBody, type RestAnswer } from '@matting/core/test/support/replicas.ts';
import ava from 'ava';
import { Replicas } from '../programs.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
const ENV = { MATTING_NO_NODE_GRACE_MS: '0', MATTING_SYNC_WAIT_MS: '1000' };

const replicas = Replicas.use(test, 'sqlite', { env: { ...ENV, MATTING_NODES_ON_DEMAND: 'true' } });
const living = Replicas.use(test, 'sqlite', { env: ENV });
let caller: Caller;
const waiting: RestAnswer[] = [];

test.before(async () => {
  caller = await replicas.createCaller(10);
});

test('a fleet that sleeps › is ready without a node, and answers who waits with 202 in time', async t => {
  for (const replica of [0, 1]) {
    t.is((await fetch(replicas.url(replica, '/readyz'))).status, 200);
  }
  const asynchronous = await replicas.post(caller, pictureBody(), { path: JOBS });
  t.is(asynchronous.status, 202);
  const headers = { prefer: 'wait=0' };
  const synchronous = await replicas.post(caller, pictureBody(), { headers, replica: 1 });
  t.is(synchronous.status, 202);
  t.true(synchronous.body.sync_timeout);
  t.true(Number(synchronous.headers.get('retry-after')) > 0);
  // Accepted, because the abilities of future nodes are unknown.
  const body = pictureBody({ background: 'white' });
  const odd = await replicas.post(caller, body, { path: JOBS });
  t.is(odd.status, 202, JSON.stringify(odd.body));
  waiting.push(asynchronous, synchronous, odd);
});

test('a fleet that sleeps › tells clients of remove.bg to come again, and has their job then', async t => {
  const body = { image_file_b64: pictureBody().image_base64 };
  const headers = { accept: 'application/json' };
  const post = () => replicas.post(caller, body, { path: '/v1.0/removebg', headers });
  const early = await post();
  t.is(early.status, 503);
  t.true(Number(early.headers.get('retry-after')) > 0);
  await replicas.addNode();
  let late = early;
  const came = async () => {
    late = await post();
    return late.status === 200;
  };
  await until(came, 'its picture');
  t.is(late.headers.get('x-job-id'), early.headers.get('x-job-id'));
});

test('a fleet that sleeps › did all that waited, once, when a node came', async t => {
  for (const { body } of waiting) {
    const read = () => replicas.get(caller, `${JOBS}/${body.job_id}`);
    await until(async () => (await read()).body.status === 'succeeded', 'the cut-out');
  }
  const credits = await replicas.stores.ledger.credits(caller.accountId);
  t.deepEqual([credits?.charged, credits?.reserved], [waiting.length + 1, 0]);
  await assertBalanced(replicas.stores);
});

test('a fleet that sleeps › takes what no node alive can do, and jobs when its last node has gone', async t => {
  for (const replica of [0, 1]) {
    const body = pictureBody({ output_format: 'jxl' });
    const answer = await replicas.post(caller, body, { path: JOBS, replica });
    t.is(answer.status, 202, JSON.stringify(answer.body));
  }
  for (const node of replicas.nodes) await node.down();
  t.is((await replicas.post(caller, pictureBody(), { path: JOBS })).status, 202);
  t.is((await fetch(replicas.url(0, '/readyz'))).status, 200);
});

test('a fleet that must live › refuses all without a node, and what none can do by the name of its field', async t => {
  const caller = await living.createCaller(3);
  const jxl = (replica: number) =>
    living.post(caller, pictureBody({ output_format: 'jxl' }), { path: JOBS, replica });
  t.is((await fetch(living.url(0, '/readyz'))).status, 503);
  const early = await living.post(caller, pictureBody(), { path: JOBS });
  t.deepEqual([early.status, early.body.code], [503, 'SERVICE_UNAVAILABLE']);
  const node = await living.addNode();
  for (const replica of [0, 1]) {
    const { status, body } = await jxl(replica);
    t.deepEqual([status, body.code], [400, 'UNSUPPORTED_OUTPUT_FORMAT']);
    t.deepEqual([body.errors[0].field, body.retryable], ['output_format', false]);
    const webp = pictureBody({ output_format: 'webp' });
    t.is((await living.post(caller, webp, { replica })).status, 200);
  }
  await node.down();
  await until(async () => (await jxl(0)).status === 503, 'no node to be there');
  const credits = await living.stores.ledger.credits(caller.accountId);
  t.deepEqual([credits?.charged, credits?.reserved], [2, 0]);
});
