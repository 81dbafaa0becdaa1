import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { assertBalanced, fundedCaller } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import type { Stores } from '@matting/core/test/internals.ts';
import { Receiver } from '@matting/core/test/receiver.ts';
import { planeEnv } from '@matting/core/test/support/plane-env.ts';
import { pictureBody, resultPath, submitTo } from '@matting/core/test/support/replicas.ts';
import { cutOutAfter } from '@matting/nodes/test/scripted-exchange.ts';
import { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import { openDirectoryBlobStore } from '@matting/storage/directory-store.ts';
import { at } from '@matting/test-support/at.ts';
import {
  createTestDatabase,
  onDatabases,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import ava from 'ava';
import { series, storesOn } from '../fixtures.ts';
import { ReplicaChild } from '../programs.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;
const SECRET = 'a raw callback secret of the tests';
const PRELOAD = path.resolve(import.meta.dirname, '../../../test/support/shifted-clock.ts');

const shifted = (shiftMs: number) => ({ MATTING_TEST_CLOCK_SHIFT_MS: String(shiftMs) });

for (const shiftMs of [2 * HOUR_MS, -2 * HOUR_MS]) {
  test(`a sweeper whose clock is off by ${shiftMs / HOUR_MS} hours › meets no file that is younger than an hour`, async t => {
    const root = await mkdtemp(path.join(tmpdir(), 'matting-clocks-'));
    try {
      const store = await openDirectoryBlobStore(root);
      const writer = await store.createWriter('inputs/upload');
      await writer.write(Buffer.from('an upload under way'));
      const module = new URL('../../storage/directory-store.ts', import.meta.url);
      const list = `import { openDirectoryBlobStore } from ${JSON.stringify(module.href)};
          const store = await openDirectoryBlobStore(${JSON.stringify(root)});
          console.log(Date.now());
          for await (const name of store.listOlderThan(${HOUR_MS})) console.log(name);
          for await (const name of store.listOlderThan(-1000)) console.log('there');`;
      const args = ['--import', PRELOAD, '--input-type=module', '--eval', list];
      const env = { PATH: process.env.PATH, ...shifted(shiftMs) };
      const out = execFileSync(process.execPath, args, { env, encoding: 'utf8' });
      const [clock, ...listed] = out.trim().split('\n');
      const offMs = Number(clock) - Date.now();
      t.true(Math.abs(offMs - shiftMs) < HOUR_MS / 2, 'its clock is wrong');
      t.deepEqual(listed, ['there']);
      await writer.commit();
    } finally {
      await rm(root, { recursive: true });
    }
  });
}

onDatabases(test, 'replicas with wrong clocks', (test, dialect) => {
  let directory: string;
  let fixture: TestDatabase;
  let stores: Stores;
  let receiver: Receiver;
  let node: ScriptedNode;
  let token: string;
  const replicas: ReplicaChild[] = [];
  const opened = Promise.withResolvers<void>();

  test.before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'matting-clocks-'));
    fixture = await createTestDatabase(dialect, { series });
    stores = storesOn(await fixture.open());
    receiver = await Receiver.open(SECRET);
    ({ token } = await fundedCaller(stores, 100));
    for (const shiftMs of [HOUR_MS, -HOUR_MS]) replicas.push(await startReplica(shiftMs));
    node = await ScriptedNode.start({
      script: cutOutAfter(opened.promise),
    });
    await node.join(at(replicas, 0).ports.registry);
    const ready = async ({ ports: { http } }: ReplicaChild) =>
      (await fetch(url(http, '/readyz'))).ok;
    for (const replica of replicas) await until(() => ready(replica), 'readiness');
  });
  test.after.always(async () => {
    opened.resolve();
    await Promise.all(replicas.map(replica => replica.kill()));
    await node?.down();
    await receiver?.[Symbol.asyncDispose]();
    await fixture?.close();
    await rm(directory, { recursive: true, force: true });
  });

  function startReplica(shiftMs: number): Promise<ReplicaChild> {
    const env = {
      ...planeEnv(directory, fixture.url),
      ...shifted(shiftMs),
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
      MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
    };
    const name = `off-by${shiftMs}`;
    const nodeArgs = ['--import', PRELOAD];
    return ReplicaChild.start(env, { name, leaseMs: 15_000, renewMs: 5000, nodeArgs });
  }

  const url = (port: number, place: string) => `http://127.0.0.1:${port}${place}`;

  async function submit({ ports: { http } }: ReplicaChild): Promise<string> {
    const hook = { callback_url: receiver.url(), callback_secret: SECRET };
    const answer = await submitTo(`http://127.0.0.1:${http}`, token, pictureBody(hook));
    const job = (await answer.json()) as { job_id: string };
    assert.equal(answer.status, 202, JSON.stringify(job));
    return job.job_id;
  }

  async function oldestAgeS({ ports: { metrics } }: ReplicaChild): Promise<number> {
    const page = await (await fetch(url(metrics, '/metrics'))).text();
    return Number(/^matting_control_queue_oldest_age_seconds (\S+)$/m.exec(page)?.[1]);
  }

  test('sign, expire, count and take turns by the database’s clock', async t => {
    const jobs: string[] = [];
    // More than the node takes at once, so that some wait.
    for (const replica of [...replicas, ...replicas]) jobs.push(await submit(replica));
    for (const replica of replicas) {
      await until(async () => (await oldestAgeS(replica)) >= 0, 'the age of the queue');
      t.true((await oldestAgeS(replica)) < 1800, 'what waits has waited for a moment');
    }
    opened.resolve();
    for (const jobId of jobs) {
      await until(async () => (await stores.jobs.find(jobId))?.finishedAtMs != null, 'its end');
      const job = await stores.jobs.find(jobId);
      t.is(job?.state, 'succeeded', job?.failure?.detail);
      t.is(job?.takeovers, 0, 'no lease was taken for one that had run out');
      for (const {
        ports: { http },
      } of replicas) {
        const answer = await fetch(url(http, await resultPath(http, token, jobId)));
        t.is(answer.status, 200);
        const maxAgeS = Number(
          /max-age=(\d+)/.exec(answer.headers.get('cache-control') ?? '')?.[1],
        );
        t.true(maxAgeS > 23 * 3600 && maxAgeS <= 24 * 3600, `max-age=${maxAgeS}`);
        await answer.arrayBuffer();
      }
    }
    const told = () => jobs.every(jobId => receiver.of(jobId).length > 0);
    await until(told, 'the notifications');
    for (const delivery of receiver.deliveries) {
      t.truthy(delivery.signatureHolds, 'a receiver believes it');
    }
    await assertBalanced(stores);
  });
});
