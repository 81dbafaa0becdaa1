/** Two control planes on one database, and callers who take the picture as their answer. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, it } from 'node:test';
import { describeOnDatabases } from '../../../test/support/database.ts';
import type { ScriptedNode } from '../nodes/scripted-node.ts';
import { until } from '../services/dispatch/harness.ts';
import { assertBalanced } from '../store/fixtures.ts';
import { type Caller, pictureBody, Replicas, submitTo } from '../support/replicas.ts';

const TWINS = 20;

describeOnDatabases('pictures of two replicas', dialect => {
  const replicas = Replicas.use(dialect);
  let node: ScriptedNode;
  before(async () => {
    node = await replicas.addNode();
  });

  async function ask(caller: Caller, replica: number, request: object) {
    const { key, body, accept } = request as { key: string; body: object; accept: string };
    const { http } = replicas.plane(replica).ports;
    const sent = { path: '/v1/matting', key, headers: { accept } };
    const answer = await submitTo(`http://127.0.0.1:${http}`, caller.token, body, sent);
    const { status, headers } = answer;
    return { status, headers, bytes: Buffer.from(await answer.arrayBuffer()) };
  }

  it('twins of both replicas, of JSON and of pictures, make one job and are charged once', async () => {
    const held = Promise.withResolvers<void>();
    node.script = async exchange => {
      await held.promise;
      await exchange.cutOut();
    };
    const caller = await replicas.createCaller(1);
    const request = { key: randomUUID(), body: pictureBody() };
    const sent = Array.from({ length: TWINS }, (_, index) => {
      const accept = index % 4 < 2 ? 'image/png' : 'application/json';
      return ask(caller, index % 2, { ...request, accept });
    });
    await until(() => node.headers.length > 0, 'the inference');
    held.resolve();
    const answers = await Promise.all(sent);
    assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
    const pictures = answers.filter(({ headers }) => headers.get('x-job-id') !== null);
    assert.equal(pictures.length, TWINS / 2);
    const jobs = answers
      .filter(answer => !pictures.includes(answer))
      .map(({ bytes }) => JSON.parse(bytes.toString()));
    const ids = pictures.map(({ headers }) => headers.get('x-job-id'));
    assert.equal(new Set([...ids, ...jobs.map(({ job_id }) => job_id)]).size, 1);
    const file = await replicas.download(1, jobs[0].result.url);
    for (const { bytes, headers } of pictures) {
      assert.deepEqual(bytes, file.bytes);
      assert.equal(headers.get('content-location'), jobs[0].result.url);
    }
    const charged = answers.map(({ headers }) => headers.get('x-credits-charged')).sort();
    assert.deepEqual(charged, [...Array(TWINS - 1).fill('0'), '1']);
    const found = await replicas.stores.ledger.credits(caller.accountId);
    assert.deepEqual(found?.sums.charge, 1);
    await assertBalanced(replicas.stores);
  });

  it('a picture that one replica made is replayed by the other', async () => {
    node.script = exchange => exchange.cutOut();
    const caller = await replicas.createCaller(1);
    const request = { key: randomUUID(), body: pictureBody(), accept: 'image/webp' };
    const first = await ask(caller, 0, request);
    assert.equal(first.status, 200);
    const again = await ask(caller, 1, request);
    assert.deepEqual(again.bytes, first.bytes);
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    assert.equal(again.headers.get('content-type'), 'image/webp');
    const other = await ask(caller, 1, { ...request, accept: 'image/avif' });
    assert.equal(other.status, 409);
  });
});
