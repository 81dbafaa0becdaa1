/**
 * The last release's own program beside this one, on one database and one storage: it starts first
 * and goes on while this one migrates under it. Both take submissions and dispatch, each reads and
 * hands out what the other made, and the old one is killed in the middle of its work.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, it } from 'node:test';
import { ScriptedNode, TEST_TOKEN } from '../../control-plane/test/nodes/scripted-node.ts';
import { until } from '../../control-plane/test/services/dispatch/harness.ts';
import { Receiver } from '../../control-plane/test/services/notification/receiver.ts';
import { assertBalanced, storesOn } from '../../control-plane/test/store/fixtures.ts';
import { pictureBody } from '../../control-plane/test/support/replicas.ts';
import { at } from '../support/at.ts';
import {
  createTestDatabase,
  DIALECTS,
  skipReason,
  type TestDatabase,
} from '../support/database.ts';
import { lastRelease, releaseSkipReason } from '../upgrade/releases.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const PROGRAM = 'control-plane/test/support/replica-process.ts';
const SECRET = 'a raw callback secret of the tests';
const JOBS = 300;

/** The release's sources; undefined where this clone has no history. */
function checkOut(): string | undefined {
  const { commit } = lastRelease();
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-last-release-'));
  try {
    const archive = execFileSync('git', ['archive', commit], {
      cwd: ROOT,
      maxBuffer: 1 << 30,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    execFileSync('tar', ['-x', '-C', directory], { input: archive });
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(directory, 'node_modules'));
    return directory;
  } catch {
    rmSync(directory, { recursive: true, force: true });
    return undefined;
  }
}

interface Ports {
  readonly http: number;
  readonly registry: number;
}

const release = checkOut();
const noHistory = releaseSkipReason(lastRelease());
process.once('exit', () => {
  if (release !== undefined) rmSync(release, { recursive: true, force: true });
});

for (const dialect of DIALECTS) {
  const skip = noHistory || skipReason(dialect);
  describe(`the last release beside this version on ${dialect}`, { skip }, () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'matting-rolling-'));
    const children: ChildProcess[] = [];
    const ports: Ports[] = [];
    const nodes: ScriptedNode[] = [];
    let test: TestDatabase;
    let receiver: Receiver;

    before(async () => {
      test = await createTestDatabase(dialect, { migrated: false });
      receiver = await Receiver.open(SECRET);
      // The old one makes the tables; the new one migrates them under it.
      for (const root of [release!, ROOT]) ports.push(await startReplica(root));
      for (const { registry } of ports) {
        const node = await ScriptedNode.start();
        nodes.push(node);
        await node.join(registry);
      }
      for (const replica of ports) {
        await until(async () => (await fetch(url(replica, '/readyz'))).ok, 'readiness');
      }
    });
    after(async () => {
      for (const child of children) await end(child);
      for (const node of nodes) await node.down();
      await receiver?.[Symbol.asyncDispose]();
      await test?.close();
      rmSync(directory, { recursive: true, force: true });
    });

    const url = ({ http }: Ports, place: string) => `http://127.0.0.1:${http}${place}`;

    async function startReplica(root: string): Promise<Ports> {
      const args = [path.join(root, PROGRAM), `replica-${ports.length}`, '3000', '300'];
      const child = spawn(process.execPath, args, {
        cwd: root,
        env: {
          PATH: process.env.PATH,
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
          MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
          MATTING_READS_PER_MINUTE: '1000000',
        },
        stdio: ['pipe', 'pipe', 'inherit'],
      });
      children.push(child);
      const [line] = await once(createInterface(child.stdout!), 'line');
      return JSON.parse(line) as Ports;
    }

    async function end(child: ChildProcess): Promise<void> {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    }

    it('does all of both, once', async () => {
      const stores = storesOn(await test.open());
      const account = await stores.accounts.create('caller');
      assert.ok(account);
      await stores.ledger.grant(account.id, JOBS, 'order');
      const { token } = await stores.apiKeys.create(account.id, 'key');
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
      const callback = { callback_url: receiver.url(), callback_secret: SECRET };
      const accepted: string[] = [];
      for (let count = 0; count < JOBS; count += 1) {
        const replica = at(ports, accepted.length < JOBS / 2 ? count % 2 : 1);
        const answer = await fetch(url(replica, '/v1/matting/jobs'), {
          method: 'POST',
          headers: { ...headers, 'idempotency-key': randomUUID() },
          body: JSON.stringify(pictureBody(callback)),
        });
        const job = (await answer.json()) as { job_id: string };
        assert.equal(answer.status, 202, JSON.stringify(job));
        accepted.push(job.job_id);
        // In the middle of whatever it holds.
        if (accepted.length === JOBS / 2) await end(at(children, 0));
        else if (accepted.length < JOBS / 2) await readBothWays(accepted, headers);
      }
      for (const jobId of accepted) {
        await until(async () => (await stores.jobs.find(jobId))?.finishedAtMs != null, 'its end');
        assert.equal((await stores.jobs.find(jobId))?.state, 'succeeded');
      }
      const told = () => accepted.every(jobId => receiver.of(jobId).length > 0);
      await until(told, 'every notification');
      const credits = await stores.ledger.credits(account.id);
      assert.deepEqual([credits?.available, credits?.reserved, credits?.sums.charge], [0, 0, JOBS]);
      await assertBalanced(stores);
      assert.ok(
        nodes.every(node => node.headers.length > 0),
        'both nodes worked',
      );
    });

    /** Each replica knows what either has taken. */
    async function readBothWays(accepted: string[], headers: Record<string, string>) {
      const jobId = accepted[Math.floor(accepted.length / 2)];
      for (const replica of ports) {
        const answer = await fetch(url(replica, `/v1/matting/jobs/${jobId}`), {
          headers: { ...headers, 'idempotency-key': randomUUID() },
        });
        assert.equal(answer.status, 200, await answer.text());
      }
    }
  });
}
