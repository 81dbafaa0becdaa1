/** A database server that is demoted under a running service: it says so, and follows the address. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { rename } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { until } from '../services/dispatch/harness.ts';
import { DatabasePair, pairSkipReason } from '../store/database/database-pair.ts';
import { assertBalanced, storesOn } from '../store/fixtures.ts';
import { pictureBody, Replicas } from '../support/replicas.ts';

const REPLICAS = [0, 1];

async function isUnready(replicas: Replicas, replica: number): Promise<boolean> {
  const answer = await fetch(replicas.url(replica, '/readyz'));
  return answer.status === 503 && /database/.test(await answer.text());
}

async function unreadyMetric(replicas: Replicas, replica: number): Promise<string | undefined> {
  const { metrics } = replicas.plane(replica).ports;
  const page = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
  return /^matting_control_unready\{cause="database"\} (\d)$/m.exec(page)?.[1];
}

describe('a database that is demoted under a service', { skip: pairSkipReason }, () => {
  const opened = Promise.withResolvers<void>();
  let pair: DatabasePair;

  before(async () => {
    pair = await DatabasePair.create();
  });
  after(() => opened.resolve());
  const replicas = Replicas.use('mysql', () => ({ database: pair.asTestDatabase() }));

  it('shows in /readyz and the metrics, and loses nothing once the address leads on', async () => {
    let cutOut = 0;
    const node = await replicas.addNode({
      script: async exchange => {
        await opened.promise;
        await exchange.cutOut();
        cutOut += 1;
      },
    });
    const caller = await replicas.createCaller(4);
    const waiting = REPLICAS.map(replica => replicas.post(caller, pictureBody(), { replica }));
    await until(() => node.headers.length === 2, 'both attempts');

    await pair.demoteFirst();
    for (const replica of REPLICAS) {
      const refused = await replicas.post(caller, pictureBody(), { replica });
      assert.equal(refused.status, 503, JSON.stringify(refused.body));
      assert.equal(refused.body.code, 'SERVICE_UNAVAILABLE');
      await until(() => isUnready(replicas, replica), 'unreadiness');
      assert.equal(await unreadyMetric(replicas, replica), '1');
    }
    // Cut out while it cannot be written down.
    opened.resolve();
    await until(() => cutOut === 2, 'the cut-outs');

    pair.promoteSecond();
    const promotedAtMs = await replicas.stores.rateQuotas.nowMs();
    for (const answer of await Promise.all(waiting)) {
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
    }
    const second = storesOn(pair.second.database);
    for (const replica of REPLICAS) {
      const done = await replicas.post(caller, pictureBody(), { replica });
      assert.equal(done.status, 200, JSON.stringify(done.body));
      await until(async () => !(await isUnready(replicas, replica)), 'readiness');
      assert.equal(await unreadyMetric(replicas, replica), '0');
    }
    const heartbeat = async () => (await second.nodes.find(node.nodeId))?.heartbeatAtMs ?? 0;
    await until(async () => (await heartbeat()) > promotedAtMs, 'a heartbeat on the new primary');
    const credits = await second.ledger.credits(caller.accountId);
    assert.deepEqual(
      [credits?.available, credits?.reserved, credits?.sums.reserve, credits?.sums.charge],
      [0, 0, 4, 4],
    );
    await assertBalanced(second);
    // The test's own handle, which has written nothing since.
    await replicas.stores.check();
    await until(
      async () => (await pair.first.connections()) === 0,
      'that no connection is left at the old primary',
    );
  });
});

/** Undefined, with the reason: this user or this machine may not mount. */
function mountReadOnly(directory: string): (() => void) | string {
  try {
    execFileSync('mount', ['--bind', directory, directory], { stdio: 'pipe' });
  } catch (error) {
    return `nothing could be mounted: ${(error as Error).message.trim()}`;
  }
  execFileSync('mount', ['-o', 'remount,bind,ro', directory], { stdio: 'pipe' });
  return () => execFileSync('umount', [directory]);
}

describe('a database file that takes no writes', () => {
  const replicas = Replicas.use('sqlite', { replicas: 1 });
  let file: string;

  before(async () => {
    await replicas.addNode();
    file = replicas.databaseUrl.slice('sqlite:'.length);
  });

  it('because it is gone shows in /readyz, and so does its return', async () => {
    await rename(file, `${file}.away`);
    await until(() => isUnready(replicas, 0), 'unreadiness');
    await rename(`${file}.away`, file);
    await until(async () => !(await isUnready(replicas, 0)), 'readiness');
  });

  it('because its directory is read-only shows in /readyz', async context => {
    const unmount = mountReadOnly(path.dirname(file));
    if (typeof unmount === 'string') return context.skip(unmount);
    try {
      await until(() => isUnready(replicas, 0), 'unreadiness');
      assert.equal(await unreadyMetric(replicas, 0), '1');
    } finally {
      unmount();
    }
    await until(async () => !(await isUnready(replicas, 0)), 'readiness');
  });
});
