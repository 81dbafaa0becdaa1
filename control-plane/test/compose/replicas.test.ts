/** Two control planes on one database: whatever one promised, the other keeps. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, it } from 'node:test';
import { describeOnDatabases } from '../../../test/support/database.ts';
import { WaitForJob } from '../../src/services/reading/wait-for-job.ts';
import type { Script } from '../nodes/scripted-exchange.ts';
import type { ScriptedNode } from '../nodes/scripted-node.ts';
import { until } from '../services/dispatch/harness.ts';
import { assertBalanced } from '../store/fixtures.ts';
import { type Caller, pictureBody, Replicas, type RestAnswer } from '../support/replicas.ts';

const TWINS = 50;
const JOBS = '/v1/matting/jobs';

const cutOut: Script = exchange => exchange.cutOut();
/** An image at fault: final, and not retryable. */
const spoilt: Script = async exchange => {
  exchange.admit();
  await exchange.receive();
  exchange.fail('PROCESSING_FAILED');
};

/** Holds every exchange until it is opened. */
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

function header(answer: RestAnswer, name: string): string | null {
  return answer.headers.get(name);
}

describeOnDatabases('two replicas', dialect => {
  const replicas = Replicas.use(dialect);
  let node: ScriptedNode;

  before(async () => {
    node = await replicas.addNode();
  });

  async function credits(caller: Caller) {
    const found = await replicas.stores.ledger.credits(caller.accountId);
    assert.ok(found);
    const { available, reserved, sums } = found;
    return { available, reserved, reserves: sums.reserve, charged: sums.charge };
  }

  /** Inferences of a job, by what reached a node. */
  function runsOf(jobId: string): number {
    return node.headers.filter(({ jobId: id }) => id === jobId).length;
  }

  it('start at once on an empty database: one migrates, both serve', async () => {
    const names = await replicas.database.kysely
      .withTables<{ kysely_migration: { name: string } }>()
      .selectFrom('kysely_migration')
      .select('name')
      .execute();
    assert.equal(new Set(names.map(({ name }) => name)).size, names.length);
    for (const index of [0, 1]) {
      assert.equal((await fetch(replicas.url(index, '/livez'))).status, 200);
    }
  });

  it('50 twins with one credit: one job, one reservation, one inference, one answer', async () => {
    const gate = new Gate();
    node.script = gate.script;
    const caller = await replicas.createCaller(1);
    const key = randomUUID();
    const body = pictureBody();
    const sent = Array.from({ length: TWINS }, (_, index) =>
      replicas.post(caller, body, { key, replica: index % 2 }),
    );
    await until(() => node.headers.length > 0, 'the inference');
    assert.deepEqual(await credits(caller), {
      available: 0,
      reserved: 1,
      reserves: 1,
      charged: 0,
    });
    gate.open();
    const answers = await Promise.all(sent);
    node.script = cutOut;
    const job = answers[0]?.body;
    for (const answer of answers) {
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
      assert.deepEqual(answer.body, job);
    }
    assert.equal(job.status, 'succeeded');
    const charged = answers.map(answer => header(answer, 'x-credits-charged')).sort();
    assert.deepEqual(charged, [...Array(TWINS - 1).fill('0'), '1']);
    assert.equal(runsOf(job.job_id), 1);
    const after = { available: 0, reserved: 0, reserves: 1, charged: 1 };
    assert.deepEqual(await credits(caller), after);
    await assertBalanced(replicas.stores);
  });

  it('a caller of one replica soon gets the end of a job that the other runs', async () => {
    const caller = await replicas.createCaller(4);
    for (let round = 0; round < 4; round++) {
      const gate = new Gate();
      node.script = gate.script;
      const key = randomUUID();
      const body = pictureBody();
      const made = await replicas.post(caller, body, { key, path: JOBS });
      const holderOf = async () =>
        (await replicas.stores.jobs.find(made.body.job_id))?.lease?.holder;
      await until(async () => (await holderOf()) !== undefined, 'the claim');
      const other = (await holderOf()) === 'replica-0' ? 1 : 0;
      const headers = { prefer: 'wait=20' };
      const waiting = replicas.post(caller, body, { key, replica: other, headers });
      gate.open();
      const answer = await waiting;
      node.script = cutOut;
      assert.equal(answer.status, 200, 'the wait would have ended with 202');
      assert.equal(answer.body.job_id, made.body.job_id);
    }
  });

  it('a finished job is replayed by both, with the same link on every read', async () => {
    const caller = await replicas.createCaller(1);
    const key = randomUUID();
    const body = pictureBody();
    const first = await replicas.post(caller, body, { key });
    assert.equal(first.status, 200);
    assert.equal(header(first, 'idempotent-replayed'), null);
    const place = `${JOBS}/${first.body.job_id}`;
    for (const replica of [0, 1]) {
      const reads = [await replicas.get(caller, place, { replica })];
      for (const path of ['/v1/matting', JOBS]) {
        const replay = await replicas.post(caller, body, { key, replica, path });
        assert.equal(replay.status, 200);
        assert.equal(header(replay, 'idempotent-replayed'), 'true');
        assert.equal(header(replay, 'x-credits-charged'), '0');
        reads.push(replay);
      }
      for (const read of reads) assert.deepEqual(read.body, first.body);
      const file = await replicas.download(replica, first.body.result.url);
      assert.equal(file.status, 200);
      assert.equal(file.bytes.length, first.body.result.sizeBytes);
    }
    assert.equal(runsOf(first.body.job_id), 1);
    assert.equal((await credits(caller)).charged, 1);
  });

  it('an open job is joined: 202 at once asynchronously, the answer synchronously', async () => {
    const gate = new Gate();
    node.script = gate.script;
    const caller = await replicas.createCaller(1);
    const key = randomUUID();
    const body = pictureBody();
    const made = await replicas.post(caller, body, { key, path: JOBS });
    assert.equal(made.status, 202);
    assert.equal(made.body.status, 'queued');
    const joined = await replicas.post(caller, body, { key, path: JOBS, replica: 1 });
    assert.equal(joined.status, 202);
    assert.equal(joined.body.job_id, made.body.job_id);
    assert.equal(header(joined, 'idempotent-replayed'), null);
    assert.equal(header(joined, 'location'), joined.body.status_url);
    const timedOut = await replicas.post(caller, body, {
      key,
      replica: 1,
      headers: { prefer: 'wait=0' },
    });
    assert.equal(timedOut.status, 202);
    assert.equal(timedOut.body.sync_timeout, true);
    assert.equal((await credits(caller)).reserved, 1);
    const waiting = replicas.post(caller, body, { key, replica: 1 });
    gate.open();
    const done = await waiting;
    node.script = cutOut;
    assert.equal(done.status, 200);
    assert.equal(done.body.job_id, made.body.job_id);
    assert.equal(header(done, 'x-credits-charged'), '0');
    assert.equal(runsOf(made.body.job_id), 1);
  });

  it('a failed job is replayed as its own error, asynchronously as the job', async () => {
    node.script = spoilt;
    const caller = await replicas.createCaller(1);
    const key = randomUUID();
    const body = pictureBody();
    const first = await replicas.post(caller, body, { key });
    node.script = cutOut;
    assert.equal(first.status, 422, JSON.stringify(first.body));
    assert.equal(first.body.code, 'PROCESSING_FAILED');
    assert.equal(first.body.retryable, false);
    for (const replica of [0, 1]) {
      const sync = await replicas.post(caller, body, { key, replica });
      assert.equal(sync.status, 422);
      assert.equal(header(sync, 'idempotent-replayed'), 'true');
      assert.equal(sync.body.job_id, first.body.job_id);
      const async = await replicas.post(caller, body, { key, replica, path: JOBS });
      assert.equal(async.status, 200);
      assert.equal(header(async, 'idempotent-replayed'), 'true');
      assert.equal(async.body.status, 'failed');
    }
    const after = { available: 1, reserved: 0, reserves: 1, charged: 0 };
    assert.deepEqual(await credits(caller), after);
  });

  it('an expired job is 410 on replay, and reads expired, by the database’s clock', async () => {
    const caller = await replicas.createCaller(1);
    const key = randomUUID();
    const body = pictureBody();
    const first = await replicas.post(caller, body, { key });
    assert.equal(first.status, 200);
    await replicas.database.kysely
      .updateTable('jobs')
      .set({ expires_at: 1 })
      .where('id', '=', first.body.job_id)
      .execute();
    for (const replica of [0, 1]) {
      const sync = await replicas.post(caller, body, { key, replica });
      assert.equal(sync.status, 410);
      assert.equal(sync.body.code, 'RESULT_EXPIRED');
      assert.equal(sync.body.job_id, first.body.job_id);
      assert.equal(header(sync, 'idempotent-replayed'), 'true');
      const async = await replicas.post(caller, body, { key, replica, path: JOBS });
      assert.equal(async.status, 200);
      assert.equal(async.body.status, 'expired');
      assert.equal(async.body.result, undefined);
      assert.equal((await replicas.download(replica, first.body.result.url)).status, 410);
    }
    assert.equal((await credits(caller)).charged, 1);
  });

  it('any field that differs is a conflict, on both, and costs nothing', async () => {
    const caller = await replicas.createCaller(2);
    const key = randomUUID();
    const body = pictureBody({ output_format: 'png' });
    const first = await replicas.post(caller, body, { key });
    const others = [
      { ...body, output_format: 'webp' },
      pictureBody(),
      { image_url: 'https://pictures.example.com/a.png' },
      { ...body, callback_url: 'https://hooks.example.com/', callback_secret: 's'.repeat(24) },
    ];
    for (const [index, other] of others.entries()) {
      const refused = await replicas.post(caller, other, { key, replica: index % 2 });
      assert.equal(refused.status, 409);
      assert.equal(refused.body.code, 'IDEMPOTENCY_CONFLICT');
      assert.equal(refused.body.job_id, first.body.job_id);
    }
    const spelling = { image_base64: `data:image/x;base64,${body.image_base64}` };
    const same = await replicas.post(caller, spelling, { key, replica: 1 });
    assert.equal(same.status, 200);
    assert.equal(same.body.job_id, first.body.job_id);
    assert.equal((await credits(caller)).charged, 1);
  });

  it('the same key under another API key is another request, and sees nothing', async () => {
    const caller = await replicas.createCaller(2);
    const other = await replicas.addKey(caller.accountId);
    const key = randomUUID();
    const body = pictureBody();
    const first = await replicas.post(caller, body, { key });
    const second = await replicas.post(other, body, { key, replica: 1 });
    assert.equal(second.status, 200);
    assert.notEqual(second.body.job_id, first.body.job_id);
    for (const replica of [0, 1]) {
      const hidden = await replicas.get(other, `${JOBS}/${first.body.job_id}`, { replica });
      assert.equal(hidden.status, 404);
      assert.equal(hidden.body.code, 'JOB_NOT_FOUND');
    }
  });

  it('a refused request is not remembered: the key works once there is credit', async () => {
    const caller = await replicas.createCaller(0);
    const key = randomUUID();
    const body = pictureBody();
    for (const replica of [0, 1]) {
      const refused = await replicas.post(caller, body, { key, replica });
      assert.equal(refused.status, 402);
      assert.equal(refused.body.code, 'INSUFFICIENT_CREDITS');
    }
    await replicas.stores.ledger.grant(caller.accountId, 1, 'later');
    const other = await replicas.post(caller, pictureBody(), { key, replica: 1 });
    assert.equal(other.status, 200, 'not even its content was remembered');
  });

  it('a retryable failure frees the key; those who had joined get that failure', async t => {
    const waits = t.mock.method(WaitForJob.prototype, 'wait');
    const gate = Promise.withResolvers<void>();
    node.script = async exchange => {
      exchange.admit();
      await exchange.receive();
      await gate.promise;
      exchange.fail('NODE_FAULT');
    };
    const caller = await replicas.createCaller(1);
    const key = randomUUID();
    const body = pictureBody();
    const runsBefore = node.headers.length;
    const sent = [0, 1].map(replica => replicas.post(caller, body, { key, replica }));
    await until(() => node.headers.length > runsBefore, 'the attempt');
    await until(() => waits.mock.callCount() === 2, 'both wait');
    gate.resolve();
    const failures = await Promise.all(sent);
    node.script = cutOut;
    for (const failure of failures) {
      assert.equal(failure.status, 422, JSON.stringify(failure.body));
      assert.equal(failure.body.retryable, true);
      assert.equal(failure.body.job_id, failures[0]?.body.job_id);
    }
    const before = { available: 1, reserved: 0, reserves: 1, charged: 0 };
    assert.deepEqual(await credits(caller), before);
    const again = await replicas.post(caller, body, { key, replica: 1 });
    assert.equal(again.status, 200);
    assert.notEqual(again.body.job_id, failures[0]?.body.job_id);
    assert.equal((await credits(caller)).charged, 1);
  });

  it('a caller that hangs up cancels nothing', async () => {
    const gate = new Gate();
    node.script = gate.script;
    const caller = await replicas.createCaller(1);
    const key = randomUUID();
    const body = pictureBody();
    const runsBefore = node.headers.length;
    const hangUp = new AbortController();
    const sent = replicas.post(caller, body, { key, signal: hangUp.signal });
    await until(() => node.headers.length > runsBefore, 'the inference');
    hangUp.abort();
    await assert.rejects(sent);
    gate.open();
    const answer = await replicas.post(caller, body, { key, replica: 1 });
    node.script = cutOut;
    assert.equal(answer.status, 200);
    assert.equal(runsOf(answer.body.job_id), 1);
    assert.equal((await credits(caller)).charged, 1);
    await assertBalanced(replicas.stores);
  });
});
