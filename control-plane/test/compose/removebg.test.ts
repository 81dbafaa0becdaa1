/** The remove.bg interface on two control planes: the same request is one job, and is paid once. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, before, it } from 'node:test';
import { describeOnDatabases } from '../../../test/support/database.ts';
import { REMOVEBG_REMEMBERED_MS } from '../../src/services/removebg/remove-background.ts';
import type { Script } from '../nodes/scripted-exchange.ts';
import type { ScriptedNode } from '../nodes/scripted-node.ts';
import { until } from '../services/dispatch/harness.ts';
import { assertBalanced } from '../store/fixtures.ts';
import { type Caller, Replicas, type RestAnswer } from '../support/replicas.ts';
import { pngHeader } from '../support/test-app.ts';

const TWINS = 20;
const cutOut: Script = exchange => exchange.cutOut();

function pictureOf(more: Record<string, unknown> = {}): Record<string, unknown> {
  const picture = Buffer.concat([pngHeader(4, 3), Buffer.from(randomUUID())]);
  return { image_file_b64: picture.toString('base64'), ...more };
}

function failing(code: 'PROCESSING_FAILED' | 'INVALID_PARAMETER'): Script {
  return async exchange => {
    exchange.admit();
    await exchange.receive();
    exchange.fail(code);
  };
}

describeOnDatabases('the remove.bg interface of two replicas', dialect => {
  const replicas = Replicas.use(dialect, { env: { MATTING_REMOVEBG_WAIT_MS: '1000' } });
  let node: ScriptedNode;

  before(async () => {
    node = await replicas.addNode();
  });
  afterEach(() => assertBalanced(replicas.stores));

  function post(caller: Caller, body: unknown, replica = 0): Promise<RestAnswer> {
    const headers = { accept: 'application/json' };
    return replicas.post(caller, body, { replica, path: '/v1.0/removebg', headers });
  }

  const jobOf = ({ headers }: RestAnswer) => headers.get('x-job-id') ?? '';
  const chargeOf = ({ headers }: RestAnswer) => Number(headers.get('x-credits-charged'));
  const codeOf = ({ body }: RestAnswer) => body.errors[0].code;

  async function spent(caller: Caller): Promise<number> {
    const credits = await replicas.stores.ledger.credits(caller.accountId);
    assert.ok(credits);
    assert.equal(credits.reserved, 0);
    assert.equal(credits.sums.reserve, credits.sums.charge + credits.sums.release);
    return credits.sums.charge;
  }

  /** As if the job had been submitted so long ago. */
  async function age(jobId: string, ageMs: number): Promise<void> {
    const job = await replicas.stores.jobs.find(jobId);
    assert.ok(job);
    await replicas.database.kysely
      .updateTable('jobs')
      .set({ created_at: job.readAtMs - ageMs })
      .where('id', '=', jobId)
      .execute();
  }

  it('makes one job of twins, answers all with its picture, and charges one of them', async () => {
    node.script = cutOut;
    const caller = await replicas.createCaller(1);
    const body = pictureOf();
    const twins = Array.from({ length: TWINS }, (_, index) => post(caller, body, index % 2));
    const answers = await Promise.all(twins);
    for (const answer of answers) assert.equal(answer.status, 200, JSON.stringify(answer.body));
    assert.equal(new Set(answers.map(jobOf)).size, 1);
    assert.equal(new Set(answers.map(({ body: { data } }) => data.result_b64)).size, 1);
    assert.equal(
      answers.reduce((sum, answer) => sum + chargeOf(answer), 0),
      1,
    );
    assert.equal(await spent(caller), 1);
  });

  it('answers 503 where it takes too long, goes on, and charges the retry nothing more', async () => {
    const gate = Promise.withResolvers<void>();
    node.script = async exchange => {
      await gate.promise;
      await exchange.cutOut();
    };
    const caller = await replicas.createCaller(1);
    const body = pictureOf({ crop: 'false', size: 'auto' });
    const late = await post(caller, body);
    assert.equal(late.status, 503);
    assert.equal(codeOf(late), 'service_unavailable');
    assert.match(late.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
    assert.equal(chargeOf(late), 0);
    const still = await post(caller, body, 1);
    assert.deepEqual([still.status, jobOf(still)], [503, jobOf(late)]);
    gate.resolve();
    const done = await post(caller, body, 1);
    assert.deepEqual([done.status, jobOf(done)], [200, jobOf(late)]);
    assert.equal(await spent(caller), 1);
  });

  it('replays for ten minutes, then makes one new job of requests on both replicas', async () => {
    node.script = cutOut;
    const caller = await replicas.createCaller(3);
    const body = pictureOf();
    const first = await post(caller, body);
    assert.equal(chargeOf(first), 1);
    await age(jobOf(first), REMOVEBG_REMEMBERED_MS - 60_000);
    const replay = await post(caller, body, 1);
    assert.deepEqual([replay.status, jobOf(replay), chargeOf(replay)], [200, jobOf(first), 0]);
    assert.deepEqual(replay.body, first.body);
    await age(jobOf(first), REMOVEBG_REMEMBERED_MS);
    const twins = Array.from({ length: TWINS }, (_, index) => post(caller, body, index % 2));
    const [made, ...more] = new Set((await Promise.all(twins)).map(jobOf));
    assert.deepEqual(more, []);
    assert.notEqual(made, jobOf(first));
    assert.equal(await spent(caller), 2);
  });

  it('makes the next job where a replica died after it had freed the key', async () => {
    node.script = cutOut;
    const caller = await replicas.createCaller(2);
    const body = pictureOf();
    const first = await post(caller, body);
    await age(jobOf(first), REMOVEBG_REMEMBERED_MS);
    const { idempotencyKeyHash } = (await replicas.stores.jobs.find(jobOf(first))) ?? {};
    await replicas.stores.jobs.freeKey(
      jobOf(first),
      idempotencyKeyHash ?? '',
      REMOVEBG_REMEMBERED_MS,
    );
    const [a, b] = await Promise.all([post(caller, body), post(caller, body, 1)]);
    assert.deepEqual([a.status, b.status, jobOf(a)], [200, 200, jobOf(b)]);
    assert.equal(await spent(caller), 2);
  });

  it('goes on where the caller is gone, and has the picture for its next request', async () => {
    const gate = Promise.withResolvers<void>();
    node.script = async exchange => {
      await gate.promise;
      await exchange.cutOut();
    };
    const caller = await replicas.createCaller(1);
    const body = pictureOf();
    const gone = new AbortController();
    const sent = replicas.post(caller, body, { path: '/v1.0/removebg', signal: gone.signal });
    const open = async () => {
      const credits = await replicas.stores.ledger.balances(caller.accountId);
      return credits?.reserved === 1;
    };
    await until(open, 'the reservation');
    gone.abort();
    await assert.rejects(sent);
    gate.resolve();
    assert.equal((await post(caller, body, 1)).status, 200);
    assert.equal(await spent(caller), 1);
  });

  it('replays a failure by the picture, and costs nothing', async () => {
    node.script = failing('PROCESSING_FAILED');
    const caller = await replicas.createCaller(1);
    const body = pictureOf();
    const first = await post(caller, body);
    assert.deepEqual([first.status, codeOf(first)], [400, 'failed_to_read_image']);
    node.script = cutOut;
    const again = await post(caller, body, 1);
    assert.deepEqual([again.status, jobOf(again)], [400, jobOf(first)]);
    await age(jobOf(first), REMOVEBG_REMEMBERED_MS);
    assert.equal((await post(caller, body, 1)).status, 200);
    assert.equal(await spent(caller), 1);
  });

  it('takes a region that the node finds empty for the request’s fault, and asks no other', async () => {
    node.script = failing('INVALID_PARAMETER');
    const caller = await replicas.createCaller(1);
    const seen = node.headers.length;
    const answer = await post(caller, pictureOf({ roi: '1px 1px 3px 2px' }));
    assert.equal(answer.status, 400, JSON.stringify(answer.body));
    assert.equal(node.headers.length, seen + 1);
    assert.equal(await spent(caller), 0);
  });

  it('makes jobs of their own for other parameters, other keys, and other interfaces', async () => {
    node.script = cutOut;
    const caller = await replicas.createCaller(9);
    const other = await replicas.addKey(caller.accountId);
    const body = pictureOf();
    const picture = { image_base64: body.image_file_b64 };
    const answers = [
      await post(caller, body),
      await post(caller, { ...body, format: 'webp' }),
      await post(other, body),
      await post(caller, { ...body, type: 'person', add_shadow: true }, 1),
    ];
    const [first, webp, others, unrendered] = answers.map(jobOf);
    assert.equal(new Set([first, webp, others]).size, 3);
    // What is not rendered makes no other picture.
    assert.equal(unrendered, first);
    const v1 = await replicas.post(caller, picture);
    assert.equal(v1.status, 200);
    assert.notEqual(v1.body.job_id, first);
    assert.equal(await spent(caller), 4);
  });
});
