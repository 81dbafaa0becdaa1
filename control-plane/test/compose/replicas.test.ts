/** Needs: removebg. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { assertBalanced, creditsOf } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import { WaitForJob } from '@matting/core/test/internals.ts';
import { Receiver } from '@matting/core/test/receiver.ts';
import {
  type Caller,
  pictureBody,
  type RestAnswer,
  submitTo,
} from '@matting/core/test/support/replicas.ts';
import type { Script } from '@matting/nodes/test/scripted-exchange.ts';
import type { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import { onDatabases } from '@matting/test-support/database.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { Replicas } from '../programs.ts';

const REMEMBERED_MS = 600_000;
const test = ava.serial;

const TWINS = 50;
const JOBS = '/v1/matting/jobs';
const SECRET = 'a raw callback secret of the tests';

const cutOut: Script = exchange => exchange.cutOut();

/** Final if the image is at fault. */
const failing =
  (code: 'PROCESSING_FAILED' | 'INVALID_PARAMETER'): Script =>
  async exchange => {
    exchange.admit();
    await exchange.receive();
    exchange.fail(code);
  };

class Gate {
  readonly #opened = Promise.withResolvers<void>();

  open(): void {
    this.#opened.resolve();
  }

  readonly script: Script = async exchange => {
    await this.#opened.promise;
    await exchange.cutOut();
  };
}

const header = (answer: RestAnswer, name: string) => answer.headers.get(name);
const removebgJob = (answer: RestAnswer) => header(answer, 'x-job-id') ?? '';
const removebgCode = ({ body }: RestAnswer) => body.errors[0].code;

function removebgBody(more: Record<string, unknown> = {}): Record<string, unknown> {
  return { image_file_b64: pictureBody().image_base64, ...more };
}

/** Records or shortens waits of this process. */
function shortWaits(t: ExecutionContext, waitMs: number): sinon.SinonStub {
  const { wait } = WaitForJob.prototype;
  const stub = sinon.stub(WaitForJob.prototype, 'wait');
  stub.callsFake(function (this: WaitForJob, job, _waitMs, hangUp) {
    return wait.call(this, job, waitMs, hangUp);
  });
  t.teardown(() => stub.restore());
  return stub;
}

onDatabases(test, 'two replicas', (test, dialect) => {
  const replicas = Replicas.use(test, dialect, {
    env: {
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
      MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
      MATTING_WEBHOOK_SCHEDULE_MS: '0,50,50',
    },
  });
  let node: ScriptedNode;
  let receiver: Receiver;

  test.before(async () => {
    node = await replicas.addNode();
    receiver = await Receiver.open(SECRET);
  });
  test.after.always(() => receiver?.[Symbol.asyncDispose]());

  function scripted(t: ExecutionContext, script: Script): void {
    node.script = script;
    t.teardown(() => {
      node.script = cutOut;
    });
  }

  function gated(t: ExecutionContext): Gate {
    const gate = new Gate();
    scripted(t, gate.script);
    return gate;
  }

  function nextAttempt(): Promise<void> {
    const before = node.headers.length;
    return until(() => node.headers.length > before, 'the attempt');
  }

  async function newRequest(credits = 1, more: Record<string, unknown> = {}) {
    const caller = await replicas.createCaller(credits);
    return { caller, key: randomUUID(), body: pictureBody(more) };
  }

  async function credits(caller: Caller) {
    const found = await creditsOf(replicas.stores, caller.accountId);
    assert.ok(found);
    const { available, reserved, sums } = found;
    return { available, reserved, reserves: sums.reserve, charged: sums.charge };
  }

  function runsOf(jobId: string): number {
    return node.headers.filter(({ jobId: id }) => id === jobId).length;
  }

  test('50 twins with one credit, for JSON and for pictures: one job, one reservation, one inference, one answer', async t => {
    const gate = gated(t);
    const { caller, key, body } = await newRequest();
    const begun = nextAttempt();
    const sent = Array.from({ length: TWINS }, (_, index) => {
      const accept = index % 4 < 2 ? 'image/png' : 'application/json';
      return picture(caller, index % 2, { key, body, accept });
    });
    await begun;
    t.deepEqual(await credits(caller), {
      available: 0,
      reserved: 1,
      reserves: 1,
      charged: 0,
    });
    gate.open();
    const answers = await Promise.all(sent);
    t.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    const pictures = answers.filter(({ headers }) => headers.get('x-job-id') !== null);
    t.is(pictures.length, TWINS / 2 + 1);
    const [job, ...others] = answers
      .filter(answer => !pictures.includes(answer))
      .map(({ bytes }) => JSON.parse(bytes.toString()));
    for (const other of others) t.deepEqual(other, job);
    t.is(job.status, 'succeeded');
    const file = await replicas.download(1, job.result.url);
    for (const { bytes, headers } of pictures) {
      t.deepEqual(bytes, file.bytes);
      t.is(headers.get('x-job-id'), job.job_id);
      t.is(headers.get('content-location'), job.result.url);
    }
    const charged = answers.map(({ headers }) => headers.get('x-credits-charged')).sort();
    t.deepEqual(charged, [...Array(TWINS - 1).fill('0'), '1']);
    t.is(runsOf(job.job_id), 1);
    const after = { available: 0, reserved: 0, reserves: 1, charged: 1 };
    t.deepEqual(await credits(caller), after);
    await assertBalanced(replicas.stores);
  });

  test('a finished job is replayed by both, with the same link on every read', async t => {
    const { caller, key, body } = await newRequest();
    const first = await replicas.post(caller, body, { key });
    t.is(first.status, 200);
    t.is(header(first, 'idempotent-replayed'), null);
    const place = `${JOBS}/${first.body.job_id}`;
    for (const replica of [0, 1]) {
      const reads = [await replicas.get(caller, place, { replica })];
      for (const path of ['/v1/matting', JOBS]) {
        const replay = await replicas.post(caller, body, { key, replica, path });
        t.is(replay.status, 200);
        t.is(header(replay, 'idempotent-replayed'), 'true');
        t.is(header(replay, 'x-credits-charged'), '0');
        reads.push(replay);
      }
      for (const read of reads) t.deepEqual(read.body, first.body);
      const file = await replicas.download(replica, first.body.result.url);
      t.is(file.status, 200);
      t.is(file.bytes.length, first.body.result.sizeBytes);
    }
    t.is(runsOf(first.body.job_id), 1);
    t.is((await credits(caller)).charged, 1);
  });

  test('an open job is joined: 202 at once asynchronously, the answer synchronously', async t => {
    const gate = gated(t);
    const { caller, key, body } = await newRequest();
    const made = await replicas.post(caller, body, { key, path: JOBS });
    t.deepEqual([made.status, made.body.status], [202, 'queued']);
    const joined = await replicas.post(caller, body, { key, path: JOBS, replica: 1 });
    t.deepEqual([joined.status, joined.body.job_id], [202, made.body.job_id]);
    t.is(header(joined, 'idempotent-replayed'), null);
    t.is(header(joined, 'location'), joined.body.status_url);
    const timedOut = await replicas.post(caller, body, {
      key,
      replica: 1,
      headers: { prefer: 'wait=0' },
    });
    t.is(timedOut.status, 202);
    t.true(timedOut.body.sync_timeout);
    t.is((await credits(caller)).reserved, 1);
    const waiting = replicas.post(caller, body, { key, replica: 1 });
    gate.open();
    const done = await waiting;
    t.deepEqual([done.status, done.body.job_id], [200, made.body.job_id]);
    t.is(header(done, 'x-credits-charged'), '0');
    t.is(runsOf(made.body.job_id), 1);
  });

  test('a retryable failure frees the key; those who had joined get that failure', async t => {
    const waits = sinon.spy(WaitForJob.prototype, 'wait');
    t.teardown(() => waits.restore());
    const gate = Promise.withResolvers<void>();
    scripted(t, async exchange => {
      exchange.admit();
      await exchange.receive();
      await gate.promise;
      exchange.fail('NODE_FAULT');
    });
    const { caller, key, body } = await newRequest();
    const begun = nextAttempt();
    const sent = [0, 1].map(replica => replicas.post(caller, body, { key, replica }));
    await begun;
    await until(() => waits.callCount === 2, 'both wait');
    gate.resolve();
    const failures = await Promise.all(sent);
    node.script = cutOut;
    for (const failure of failures) {
      t.is(failure.status, 422, JSON.stringify(failure.body));
      t.true(failure.body.retryable);
      t.is(failure.body.job_id, failures[0]?.body.job_id);
    }
    const before = { available: 1, reserved: 0, reserves: 1, charged: 0 };
    t.deepEqual(await credits(caller), before);
    const again = await replicas.post(caller, body, { key, replica: 1 });
    t.is(again.status, 200);
    t.not(again.body.job_id, failures[0]?.body.job_id);
    t.is((await credits(caller)).charged, 1);
  });

  test('a caller that hangs up cancels nothing', async t => {
    const gate = gated(t);
    const { caller, key, body } = await newRequest();
    const begun = nextAttempt();
    const hangUp = new AbortController();
    const sent = replicas.post(caller, body, { key, signal: hangUp.signal });
    await begun;
    hangUp.abort();
    await t.throwsAsync(sent);
    gate.open();
    const answer = await replicas.post(caller, body, { key, replica: 1 });
    t.is(answer.status, 200);
    t.is(runsOf(answer.body.job_id), 1);
    t.is((await credits(caller)).charged, 1);
    await assertBalanced(replicas.stores);
  });

  async function picture(caller: Caller, replica: number, request: Record<string, unknown>) {
    const { key, body, accept } = request as { key: string; body: object; accept: string };
    const sent = { path: '/v1/matting', key, headers: { accept } };
    const answer = await submitTo(replicas.url(replica, ''), caller.token, body, sent);
    const { status, headers } = answer;
    return { status, headers, bytes: Buffer.from(await answer.arrayBuffer()) };
  }

  test('a change, a rotation and a revocation of a key by another process are followed', async t => {
    const { apiKeys } = replicas.stores;
    const caller = await replicas.createCaller(1);
    const other = await replicas.addKey(caller.accountId);
    const { accountId, apiKeyId } = caller;
    const by = { accountId, actor: { kind: 'operator' } } as const;
    const statuses = async (...of: Caller[]) => {
      const asked = of.flatMap(one =>
        [0, 1].map(replica => replicas.get(one, '/v1/account', { replica })),
      );
      return (await Promise.all(asked)).map(({ status }) => status);
    };
    const forgotten = () => delay(500);
    t.deepEqual(await statuses(caller, other), [200, 200, 200, 200]);
    await apiKeys.change(apiKeyId, by, { policy: { scopes: ['submit'] } });
    await apiKeys.revoke(other.apiKeyId, by);
    await forgotten();
    t.deepEqual(await statuses(caller, other), [403, 403, 401, 401]);
    await apiKeys.change(apiKeyId, by, { policy: {} });
    const rotated = await apiKeys.rotate(apiKeyId, { ...by, overlapMs: 60_000 });
    assert.ok(rotated);
    const next = { ...caller, token: rotated.token };
    t.deepEqual(await statuses(next), [200, 200], 'a new secret is good at once');
    await forgotten();
    t.deepEqual(await statuses(caller, next), [200, 200, 200, 200]);
    const [key, body] = [randomUUID(), pictureBody()];
    const made = await replicas.post(caller, body, { path: JOBS, key, replica: 0 });
    const again = await replicas.post(next, body, { path: JOBS, key, replica: 1 });
    t.is(again.body.job_id, made.body.job_id, 'one job under both secrets');
    await apiKeys.rotate(apiKeyId, { ...by, overlapMs: 0 });
    await forgotten();
    t.deepEqual(await statuses(caller, next), [401, 401, 401, 401]);
  });

  const hook = () => ({ callback_url: receiver.url(), callback_secret: SECRET });

  async function finalCallback(caller: Caller, jobId: string, replica: number) {
    const read = () => replicas.get(caller, `${JOBS}/${jobId}`, { replica });
    await until(async () => (await read()).body.callback.status !== 'pending');
    return (await read()).body;
  }

  test('notifications › come for a synchronous request too, with the job as GET shows it', async t => {
    const caller = await replicas.createCaller(1);
    const answer = await replicas.post(caller, pictureBody(hook()), { replica: 1 });
    t.is(answer.status, 200);
    const { job_id: jobId } = answer.body;
    for (const replica of [0, 1]) {
      const { callback, ...job } = await finalCallback(caller, jobId, replica);
      t.deepEqual(
        [callback.status, callback.attempts, callback.last_status_code, callback.next_attempt_at],
        ['delivered', 1, 204, null],
      );
      t.true(Date.parse(callback.last_attempt_at) >= Date.parse(job.finished_at) - 1);
      const [delivery, ...more] = receiver.of(jobId);
      t.deepEqual(more, []);
      assert.ok(delivery);
      t.true(delivery.signatureHolds);
      const told = { type: 'matting.job.succeeded', timestamp: job.finished_at, job_id: jobId };
      t.deepEqual(JSON.parse(delivery.body.toString()), { ...told, data: job });
    }
  });

  function removebg(caller: Caller, body: unknown, replica = 0): Promise<RestAnswer> {
    const headers = { accept: 'application/json' };
    return replicas.post(caller, body, { replica, path: '/v1.0/removebg', headers });
  }

  async function spent(caller: Caller): Promise<number> {
    const { reserved, charged } = await credits(caller);
    assert.equal(reserved, 0);
    await assertBalanced(replicas.stores, caller.accountId);
    return charged;
  }

  async function age(jobId: string, ageMs: number): Promise<void> {
    const job = await replicas.stores.jobs.find(jobId);
    assert.ok(job);
    const jobs = replicas.database.kysely.updateTable('jobs').where('id', '=', jobId);
    const atMs = job.readAtMs - ageMs;
    await jobs.set({ created_at: atMs, finished_at: atMs }).execute();
  }

  const removebgTwins = (caller: Caller, body: unknown) =>
    Promise.all(Array.from({ length: 20 }, (_, index) => removebg(caller, body, index % 2)));

  test('remove.bg › makes one job of twins, answers all with its picture, and charges one of them', async t => {
    const caller = await replicas.createCaller(1);
    const answers = await removebgTwins(caller, removebgBody());
    for (const answer of answers) t.is(answer.status, 200, JSON.stringify(answer.body));
    t.is(new Set(answers.map(removebgJob)).size, 1);
    t.is(new Set(answers.map(({ body: { data } }) => data.result_b64)).size, 1);
    const charged = answers.map(answer => header(answer, 'x-credits-charged')).sort();
    t.deepEqual(charged, [...Array(answers.length - 1).fill('0'), '1']);
    t.is(await spent(caller), 1);
  });

  test('remove.bg › answers 503 where it takes too long, goes on, and charges the retry nothing more', async t => {
    const gate = gated(t);
    const waits = shortWaits(t, 50);
    const caller = await replicas.createCaller(1);
    const body = removebgBody({ crop: 'false', size: 'auto' });
    const late = await removebg(caller, body);
    t.is(late.status, 503);
    t.is(removebgCode(late), 'service_unavailable');
    t.regex(header(late, 'retry-after') ?? '', /^[1-9]\d*$/);
    t.is(header(late, 'x-credits-charged'), '0');
    const still = await removebg(caller, body, 1);
    t.deepEqual([still.status, removebgJob(still)], [503, removebgJob(late)]);
    waits.restore();
    gate.open();
    const done = await removebg(caller, body, 1);
    t.deepEqual([done.status, removebgJob(done)], [200, removebgJob(late)]);
    t.is(await spent(caller), 1);
  });

  test('remove.bg › replays for ten minutes, then makes one new job of requests on both replicas', async t => {
    const caller = await replicas.createCaller(3);
    const body = removebgBody();
    const first = await removebg(caller, body);
    t.is(header(first, 'x-credits-charged'), '1');
    await age(removebgJob(first), REMEMBERED_MS - 60_000);
    const replay = await removebg(caller, body, 1);
    t.deepEqual([replay.status, removebgJob(replay)], [200, removebgJob(first)]);
    t.is(header(replay, 'x-credits-charged'), '0');
    t.deepEqual(replay.body, first.body);
    await age(removebgJob(first), REMEMBERED_MS);
    const [made, ...more] = new Set((await removebgTwins(caller, body)).map(removebgJob));
    t.deepEqual(more, []);
    t.not(made, removebgJob(first));
    t.is(await spent(caller), 2);
  });

  test('remove.bg › makes the next job where a replica died after it had freed the key', async t => {
    const caller = await replicas.createCaller(2);
    const body = removebgBody();
    const jobId = removebgJob(await removebg(caller, body));
    await age(jobId, REMEMBERED_MS);
    const { jobs, queue } = replicas.stores;
    const { apiKeyId = '', idempotencyKeyHash } = (await jobs.find(jobId)) ?? {};
    const key = { hash: idempotencyKeyHash ?? '', rememberedMs: REMEMBERED_MS };
    t.is(await queue.findByKey(apiKeyId, key), undefined);
    const [a, b] = await Promise.all([removebg(caller, body), removebg(caller, body, 1)]);
    t.deepEqual([a.status, b.status, removebgJob(a)], [200, 200, removebgJob(b)]);
    t.is(await spent(caller), 2);
  });

  test('remove.bg › replays a failure by the picture, and costs nothing', async t => {
    scripted(t, failing('PROCESSING_FAILED'));
    const caller = await replicas.createCaller(1);
    const body = removebgBody();
    const first = await removebg(caller, body);
    t.deepEqual([first.status, removebgCode(first)], [400, 'failed_to_read_image']);
    node.script = cutOut;
    const again = await removebg(caller, body, 1);
    t.deepEqual([again.status, removebgJob(again)], [400, removebgJob(first)]);
    await age(removebgJob(first), REMEMBERED_MS);
    t.is((await removebg(caller, body, 1)).status, 200);
    t.is(await spent(caller), 1);
  });

  test('remove.bg › takes a region that the node finds empty for the request’s fault, and asks no other', async t => {
    scripted(t, failing('INVALID_PARAMETER'));
    const caller = await replicas.createCaller(1);
    const seen = node.headers.length;
    const answer = await removebg(caller, removebgBody({ roi: '1px 1px 3px 2px' }));
    t.is(answer.status, 400, JSON.stringify(answer.body));
    t.is(node.headers.length, seen + 1);
    t.is(await spent(caller), 0);
  });

  test('remove.bg › makes jobs of their own for other parameters, other keys, and other interfaces', async t => {
    const caller = await replicas.createCaller(9);
    const other = await replicas.addKey(caller.accountId);
    const body = removebgBody();
    const answers = [
      await removebg(caller, body),
      await removebg(caller, { ...body, format: 'webp' }),
      await removebg(other, body),
      await removebg(caller, { ...body, type: 'person', add_shadow: true }, 1),
    ];
    const [first, webp, others, unrendered] = answers.map(removebgJob);
    t.is(new Set([first, webp, others]).size, 3);
    // An ignored parameter makes no other picture.
    t.is(unrendered, first);
    const v1 = await replicas.post(caller, { image_base64: body.image_file_b64 });
    t.is(v1.status, 200);
    t.not(v1.body.job_id, first);
    t.is(await spent(caller), 4);
  });
});
