/**
 * Control planes whose machines have lost their time synchronisation, one an hour ahead and one an
 * hour behind, on one database and one storage: callers, receivers and operators notice nothing.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import {
  createTestDatabase,
  DIALECTS,
  skipReason,
  type TestDatabase,
} from '../../../test/support/database.ts';
import { openDirectoryBlobStore } from '../../src/storage/directory/directory-blob-store.ts';
import type { Stores } from '../../src/store/stores.ts';
import { ScriptedNode, TEST_TOKEN } from '../nodes/scripted-node.ts';
import { until } from '../services/dispatch/harness.ts';
import { Receiver } from '../services/notification/receiver.ts';
import { assertBalanced, storesOn } from '../store/fixtures.ts';
import { pictureBody } from '../support/replicas.ts';

const HOUR_MS = 3_600_000;
const SECRET = 'a raw callback secret of the tests';
const SUPPORT = path.join(import.meta.dirname, '../support');
const PRELOAD = path.resolve(import.meta.dirname, '../../../test/support/shifted-clock.ts');

function spawnShifted(shiftMs: number, args: string[], env: NodeJS.ProcessEnv = {}): ChildProcess {
  return spawn(process.execPath, ['--import', PRELOAD, ...args], {
    env: { PATH: process.env.PATH, MATTING_TEST_CLOCK_SHIFT_MS: String(shiftMs), ...env },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
}

for (const shiftMs of [2 * HOUR_MS, -2 * HOUR_MS]) {
  describe(`a sweeper whose clock is off by ${shiftMs / HOUR_MS} hours`, () => {
    it('meets no file that is younger than an hour', async () => {
      const root = await mkdtemp(path.join(tmpdir(), 'matting-clocks-'));
      try {
        const store = await openDirectoryBlobStore(root);
        const writer = await store.createWriter('inputs/upload');
        await writer.write(Buffer.from('an upload under way'));
        const module = new URL(
          '../../src/storage/directory/directory-blob-store.ts',
          import.meta.url,
        );
        const list = `import { openDirectoryBlobStore } from ${JSON.stringify(module.href)};
          const store = await openDirectoryBlobStore(${JSON.stringify(root)});
          console.log(Date.now());
          for await (const name of store.listOlderThan(${HOUR_MS})) console.log(name);
          for await (const name of store.listOlderThan(-1000)) console.log('there');`;
        const child = spawnShifted(shiftMs, ['--input-type=module', '--eval', list]);
        const [clock, ...listed] = (await text(child.stdout!)).trim().split('\n');
        const offMs = Number(clock) - Date.now();
        assert.ok(Math.abs(offMs - shiftMs) < HOUR_MS / 2, 'its clock is wrong');
        assert.deepEqual(listed, ['there']);
        await writer.commit();
      } finally {
        await rm(root, { recursive: true });
      }
    });
  });
}

interface Ports {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
}

for (const dialect of DIALECTS) {
  describe(`replicas with wrong clocks on ${dialect}`, { skip: skipReason(dialect) }, () => {
    let directory: string;
    let test: TestDatabase;
    let stores: Stores;
    let receiver: Receiver;
    let node: ScriptedNode;
    let token: string;
    let accountId: string;
    const children: ChildProcess[] = [];
    const ports: Ports[] = [];
    const opened = Promise.withResolvers<void>();

    before(async () => {
      directory = await mkdtemp(path.join(tmpdir(), 'matting-clocks-'));
      test = await createTestDatabase(dialect);
      stores = storesOn(await test.open());
      receiver = await Receiver.open(SECRET);
      const account = await stores.accounts.create('caller');
      assert.ok(account);
      accountId = account.id;
      await stores.ledger.grant(accountId, 100, 'test');
      token = (await stores.apiKeys.create(accountId, 'test')).token;
      for (const shiftMs of [HOUR_MS, -HOUR_MS]) ports.push(await startReplica(shiftMs));
      node = await ScriptedNode.start({
        script: async exchange => {
          await opened.promise;
          await exchange.cutOut();
        },
      });
      const [first] = ports;
      assert.ok(first);
      await node.join(first.registry);
      const ready = async ({ http }: Ports) => (await fetch(url(http, '/readyz'))).ok;
      for (const replica of ports) await until(() => ready(replica), 'readiness');
    });
    after(async () => {
      opened.resolve();
      for (const child of children) {
        const ended = once(child, 'exit');
        if (child.kill('SIGKILL')) await ended;
      }
      await node?.down();
      await receiver?.[Symbol.asyncDispose]();
      await test?.close();
      await rm(directory, { recursive: true, force: true });
    });

    async function startReplica(shiftMs: number): Promise<Ports> {
      const args = [path.join(SUPPORT, 'replica-process.ts'), `off-by${shiftMs}`, '15000', '5000'];
      const child = spawnShifted(shiftMs, args, {
        MATTING_DATA_DIR: directory,
        MATTING_DATABASE_URL: test.url,
        MATTING_SECRETS_KEY: 'ab'.repeat(32),
        MATTING_PORT: '0',
        MATTING_REGISTRY_PORT: '0',
        MATTING_METRICS_PORT: '0',
        MATTING_BASE_URL: 'http://links.example',
        MATTING_NODE_TOKEN: TEST_TOKEN,
        MATTING_ALLOW_HTTP_CALLBACKS: 'true',
        MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
      });
      children.push(child);
      const [line] = await once(createInterface(child.stdout!), 'line');
      return JSON.parse(line) as Ports;
    }

    const url = (port: number, place: string) => `http://127.0.0.1:${port}${place}`;

    async function submit({ http }: Ports): Promise<string> {
      const answer = await fetch(url(http, '/v1/matting/jobs'), {
        method: 'POST',
        headers: {
          authorization: `Bearer ${token}`,
          'idempotency-key': randomUUID(),
          'content-type': 'application/json',
        },
        body: JSON.stringify(
          pictureBody({ callback_url: receiver.url(), callback_secret: SECRET }),
        ),
      });
      const job = (await answer.json()) as { job_id: string };
      assert.equal(answer.status, 202, JSON.stringify(job));
      return job.job_id;
    }

    /** The path of the link that the caller is shown. */
    async function linkOf(jobId: string, http: number): Promise<string> {
      const headers = { authorization: `Bearer ${token}`, 'idempotency-key': 'read' };
      const answer = await fetch(url(http, `/v1/matting/jobs/${jobId}`), { headers });
      const { result } = (await answer.json()) as { result: { url: string } };
      return new URL(result.url).pathname;
    }

    async function oldestAgeS({ metrics }: Ports): Promise<number> {
      const page = await (await fetch(url(metrics, '/metrics'))).text();
      return Number(/^matting_control_queue_oldest_age_seconds (\S+)$/m.exec(page)?.[1]);
    }

    it('sign, expire, count and take turns by the database’s clock', async () => {
      const jobs: string[] = [];
      // More than the node takes at once, so that some wait.
      for (const replica of [...ports, ...ports]) jobs.push(await submit(replica));
      for (const replica of ports) {
        await until(async () => (await oldestAgeS(replica)) >= 0, 'the age of the queue');
        assert.ok((await oldestAgeS(replica)) < 1800, 'what waits has waited for a moment');
      }
      opened.resolve();
      for (const jobId of jobs) {
        await until(async () => (await stores.jobs.find(jobId))?.finishedAtMs != null, 'its end');
        const job = await stores.jobs.find(jobId);
        assert.equal(job?.state, 'succeeded', job?.failure?.detail);
        assert.equal(job?.takeovers, 0, 'no lease was taken for one that had run out');
        for (const { http } of ports) {
          const answer = await fetch(url(http, await linkOf(jobId, http)));
          assert.equal(answer.status, 200);
          const maxAgeS = Number(
            /max-age=(\d+)/.exec(answer.headers.get('cache-control') ?? '')?.[1],
          );
          assert.ok(maxAgeS > 23 * 3600 && maxAgeS <= 24 * 3600, `max-age=${maxAgeS}`);
          await answer.arrayBuffer();
        }
      }
      const told = () => jobs.every(jobId => receiver.of(jobId).length > 0);
      await until(told, 'the notifications');
      for (const delivery of receiver.deliveries) {
        assert.ok(delivery.signatureHolds, 'a receiver believes it');
      }
      await assertBalanced(stores);
    });
  });
}
