/** Processes stopped for longer than a lease are fenced off; nothing is lost. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { assertBalanced, fundedCaller } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import type { Stores } from '@matting/core/test/internals.ts';
import { planeEnv } from '@matting/core/test/support/plane-env.ts';
import { pictureBody, resultPath, submitTo } from '@matting/core/test/support/replicas.ts';
import { type Database, transact } from '@matting/database/database.ts';
import { cutOutOf } from '@matting/nodes/test/scripted-exchange.ts';
import { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import {
  createTestDatabase,
  onDatabases,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import { Program } from '@matting/test-support/program.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import { series, storesOn } from '../fixtures.ts';
import { ReplicaChild } from '../programs.ts';

const test = ava.serial;

const STUB_NODE = path.resolve(import.meta.dirname, '../../core/test/support/stub-node-process.ts');

onDatabases(test, 'processes that stop', (test, dialect) => {
  let directory: string;
  let fixture: TestDatabase;
  let database: Database;
  let stores: Stores;
  let token: string;
  let accountId: string;
  const children: Program[] = [];
  const nodes: ScriptedNode[] = [];

  const cleanUp = async () => {
    await Promise.all(children.splice(0).map(child => child.kill()));
    for (const node of nodes.splice(0)) await node.down();
    await fixture.close();
  };

  const prepare = async (t: ExecutionContext) => {
    directory = await temporaryFolder(t);
    fixture = await createTestDatabase(dialect, { series });
    t.teardown(cleanUp);
    database = await fixture.open();
    stores = storesOn(database);
    ({ accountId, token } = await fundedCaller(stores, 100));
  };

  async function startReplica(name: string): Promise<ReplicaChild> {
    const child = await ReplicaChild.start(planeEnv(directory, fixture.url), { name });
    children.push(child);
    return child;
  }

  async function submit(port: number): Promise<{ jobId: string; picture: Buffer }> {
    const body = pictureBody();
    const answer = await submitTo(`http://127.0.0.1:${port}`, token, body);
    const job = (await answer.json()) as { job_id: string };
    assert.equal(answer.status, 202, JSON.stringify(job));
    return { jobId: job.job_id, picture: Buffer.from(String(body.image_base64), 'base64') };
  }

  async function resultOf(jobId: string, port: number): Promise<Buffer> {
    const link = await resultPath(port, token, jobId);
    const file = await fetch(`http://127.0.0.1:${port}${link}`);
    assert.equal(file.status, 200);
    return Buffer.from(await file.arrayBuffer());
  }

  async function assertDoneOnce(jobId: string, picture: Buffer, port: number): Promise<void> {
    await until(async () => (await stores.jobs.find(jobId))?.finishedAtMs != null, 'the end');
    const job = await stores.jobs.find(jobId);
    assert.equal(job?.state, 'succeeded', job?.failure?.detail);
    assert.deepEqual(await resultOf(jobId, port), cutOutOf(picture));
    const credits = await stores.ledger.credits(accountId);
    assert.deepEqual([credits?.available, credits?.reserved], [99, 0]);
    await assertBalanced(stores);
  }

  test('a control plane: its job is taken over, and what it brings late is void', async t => {
    await prepare(t);
    const first = await startReplica('first');
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const node = await ScriptedNode.start({
      script: async exchange => {
        exchange.admit();
        const input = await exchange.receive();
        // The first attempt lasts until its control plane is stopped.
        if (exchange.header.attempt === 1) await held;
        exchange.answer(input);
      },
    });
    nodes.push(node);
    await node.join(first.ports.registry);
    const { jobId, picture } = await submit(first.ports.http);
    await until(async () => (await stores.jobs.find(jobId))?.state === 'running', 'admission');
    // SQLite's one writer would block the other replica while stopped in a transaction.
    await transact(database, async () => void first.signal('SIGSTOP'));
    const second = await startReplica('second');
    // The second registry keeps the node a member meanwhile.
    await node.join(second.ports.registry);
    await until(async () => (await stores.jobs.find(jobId))?.finishedAtMs != null, 'take-over');
    const taken = await stores.jobs.find(jobId);
    release();
    first.signal('SIGCONT');
    // It answers again, so it had time to deliver its result.
    await until(async () => {
      const answer = await fetch(`http://127.0.0.1:${first.ports.http}/readyz`);
      return answer.ok;
    }, 'the first replica');
    const later = await submit(first.ports.http);
    await until(async () => (await stores.jobs.find(later.jobId))?.finishedAtMs != null, 'later');
    const job = await stores.jobs.find(jobId);
    t.is(job?.fence, 2);
    t.is(job?.takeovers, 1);
    t.deepEqual(job?.result, taken?.result, 'the second result stands');
    t.deepEqual(
      node.headers.filter(header => header.jobId === jobId).map(({ attempt }) => attempt),
      [1, 2],
    );
    t.deepEqual(await resultOf(jobId, first.ports.http), cutOutOf(picture));
    const credits = await stores.ledger.credits(accountId);
    t.deepEqual([credits?.available, credits?.reserved], [98, 0]);
    await assertBalanced(stores);
  });

  test('a node: it is not a member when its lease is over, and goes on when it is back', async t => {
    await prepare(t);
    const { ports } = await startReplica('only');
    const args = [STUB_NODE, 'sleeper', String(ports.registry)];
    const sleeper = new Program('sleeper', args, {});
    children.push(sleeper);
    sleeper.start();
    await sleeper.firstLine();
    const { jobId, picture } = await submit(ports.http);
    await until(async () => (await stores.jobs.find(jobId))?.state === 'running', 'admission');
    sleeper.signal('SIGSTOP');
    await until(async () => (await stores.nodes.listLive()).length === 0, 'the end of its lease');
    const lease = async () => (await stores.jobs.find(jobId))?.lease;
    t.truthy(await lease(), 'the job stays with its control plane');
    sleeper.signal('SIGCONT');
    sleeper.signal('SIGUSR2');
    await assertDoneOnce(jobId, picture, ports.http);
    await until(async () => (await stores.nodes.listLive()).length === 1, 'its return');
    const given = sleeper.output.split('\n').filter(line => line.startsWith(jobId));
    t.deepEqual(given, [`${jobId} 1`], 'one attempt, which outlived the pause');
  });
});
