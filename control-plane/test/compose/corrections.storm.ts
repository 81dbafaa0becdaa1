import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import type { Job } from '@matting/core/jobs/job.ts';
import { assertBalanced, fundedCaller } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import { planeEnv } from '@matting/core/test/support/plane-env.ts';
import { pictureBody, resultPath, submitTo } from '@matting/core/test/support/replicas.ts';
import { cutOutOf, type Script } from '@matting/nodes/test/scripted-exchange.ts';
import { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import { at } from '@matting/test-support/at.ts';
import { createTestDatabase, onDatabases } from '@matting/test-support/database.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { series, storesOn } from '../fixtures.ts';
import { ReplicaChild } from '../programs.ts';

const MATTE = Buffer.from('a matte');
const STEPS = ['claimed', 'admitted', 'received', 'matte sent', 'result sent'] as const;
type Step = (typeof STEPS)[number];

onDatabases(ava.serial, 'a replica that dies in a correction', (test, dialect) => {
  test('leaves it to the other at every step, for no credit, with what the family keeps', async t => {
    const directory = await temporaryFolder(t);
    const fixture = await createTestDatabase(dialect, { series });
    const stores = storesOn(await fixture.open());
    const { accountId, token } = await fundedCaller(stores, 100);
    const names = ['first', 'second'];
    const start = (name: string) => ReplicaChild.start(planeEnv(directory, fixture.url), { name });
    const replicas = await Promise.all(names.map(start));
    const hold = holding();
    const node = await ScriptedNode.start({
      script: hold.script,
      info: { capabilities: ['matte'] },
    });
    t.teardown(async () => {
      await Promise.all(replicas.map(replica => replica.kill()));
      await node.down();
      await fixture.close();
    });
    await node.join(at(replicas, 0).ports.registry);

    const portOf = (index: number) => at(replicas, index).ports.http;
    const ended = async (jobId: string): Promise<Job> => {
      await until(async () => (await stores.jobs.find(jobId))?.finishedAtMs != null, 'the end');
      const job = await stores.jobs.find(jobId);
      assert.equal(job?.state, 'succeeded', job?.failure?.detail);
      return job;
    };
    const correct = (index: number, of: string, key?: string) =>
      submit(portOf(index), token, {}, { path: `/v1/matting/jobs/${of}/corrections`, key });

    for (const step of STEPS) {
      const body = pictureBody();
      const first = await ended(await submit(portOf(0), token, { ...body, correctable: true }));
      const before = await stores.ledger.balances(accountId);
      const reached = hold.at(step);
      const key = randomUUID();
      const made = await correct(1, first.id, key);
      await reached;
      const holder = (await stores.jobs.find(made))?.lease?.holder ?? '';
      const dead = names.indexOf(holder);
      assert.ok(dead >= 0, `nobody holds the correction: ${holder}`);
      await at(replicas, dead).kill();
      const alive = 1 - dead;
      await node.join(at(replicas, alive).ports.registry);
      t.is(await correct(alive, first.id, key), made, 'a retry joins');
      const done = await ended(made);
      t.true(done.fence > 1, step);
      const input = Buffer.from(String(body.image_base64), 'base64');
      const link = await resultPath(portOf(alive), token, made);
      const file = await fetch(`http://127.0.0.1:${portOf(alive)}${link}`);
      const expected = cutOutOf(Buffer.concat([input, MATTE]));
      t.true(Buffer.from(await file.arrayBuffer()).equals(expected), step);
      const next = await ended(await correct(alive, made));
      t.deepEqual(next.correction?.first, first.id);
      t.is((await stores.jobs.find(first.id))?.corrections, 2, step);
      t.deepEqual(await stores.ledger.balances(accountId), before);
      await assertBalanced(stores);
      replicas[dead] = await start(at(names, dead));
    }
  });
});

async function submit(
  port: number,
  token: string,
  body: object,
  { key = randomUUID(), ...more }: { path?: string; key?: string | undefined } = {},
): Promise<string> {
  const answer = await submitTo(`http://127.0.0.1:${port}`, token, body, { ...more, key });
  const { job_id } = (await answer.json()) as { job_id: string };
  assert.ok([200, 202].includes(answer.status), String(answer.status));
  return job_id;
}

/** The next correction's first call stops at a step; all others are answered. */
function holding() {
  let held: { readonly step: Step; readonly reached: () => void } | undefined;
  const script: Script = async exchange => {
    const { givenMatte, attempt } = exchange.header;
    const standStill = async (step: Step): Promise<boolean> => {
      if (held?.step !== step || givenMatte === undefined || attempt > 1) return false;
      held.reached();
      held = undefined;
      await exchange.cancelled;
      return true;
    };
    if (await standStill('claimed')) return;
    exchange.admit();
    if (await standStill('admitted')) return;
    const input = await exchange.receive();
    if (await standStill('received')) return;
    if (!exchange.header.matte) {
      exchange.answer(input);
      return;
    }
    const result = cutOutOf(input);
    exchange.announce(result, { matteBytes: MATTE.length });
    exchange.write({ $case: 'matteChunk', value: { data: MATTE } });
    if (await standStill('matte sent')) return;
    exchange.send(result);
    if (await standStill('result sent')) return;
    exchange.done(createHash('sha256').update(result).digest());
    exchange.end();
  };
  return {
    script,
    at(step: Step): Promise<void> {
      const { promise, resolve } = Promise.withResolvers<void>();
      held = { step, reached: resolve };
      return promise;
    },
  };
}
