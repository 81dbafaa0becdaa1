import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { assertBalanced, creditsOf } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import { pictureBody, type RestAnswer } from '@matting/core/test/support/replicas.ts';
import { DatabasePair, pairSkipReason } from '@matting/database/test/database-pair.ts';
import { DatabaseProxy } from '@matting/database/test/database-proxy.ts';
import { cutOutAfter } from '@matting/nodes/test/scripted-exchange.ts';
import { groupIf, skipReason } from '@matting/test-support/database.ts';
import ava from 'ava';
import { series, storesOn } from '../fixtures.ts';
import { Replicas } from '../programs.ts';

const test = ava.serial;

const OUTAGE_MS = 10_000;
const ANSWERED_MS = 500;
const JOBS = '/v1/matting/jobs';

function assertUnavailable(answer: RestAnswer): void {
  assert.equal(answer.status, 503, JSON.stringify(answer.body));
  assert.equal(answer.body.code, 'SERVICE_UNAVAILABLE');
  assert.equal(answer.body.retryable, true);
  assert.match(answer.headers.get('content-type') ?? '', /^application\/problem\+json/);
  assert.ok(Number(answer.headers.get('retry-after')) > 0);
}

const outage = groupIf(skipReason('mysql') === false, test, 'an outage of the database');
let proxy: DatabaseProxy;
const replicas = Replicas.use(outage, 'mysql', {
  databaseUrl: async url => {
    proxy = new DatabaseProxy(url);
    await proxy.open();
    return proxy.url;
  },
});
outage.after.always(() => proxy?.close());

outage('is answered with 503, and what was accepted before is done once it is back', async t => {
  const opened = Promise.withResolvers<void>();
  const node = await replicas.addNode({
    script: cutOutAfter(opened.promise),
  });
  const caller = await replicas.createCaller(3);
  const waiting = [0, 1].map(replica => replicas.post(caller, pictureBody(), { replica }));
  await until(() => node.headers.length > 0, 'the attempts');
  const reserved = async () =>
    (await replicas.stores.ledger.balances(caller.accountId))?.reserved === 2;
  await until(reserved, 'both jobs');
  // Others see a row before its replica gets the commit's answer.
  await delay(ANSWERED_MS);

  await proxy.close();
  const goneAtMs = performance.now();
  const key = randomUUID();
  const body = pictureBody();
  const refused = await Promise.all(
    [0, 1].flatMap(replica => [
      replicas.post(caller, body, { key, replica }),
      replicas.post(caller, body, { key, replica, path: JOBS }),
      replicas.get(caller, `${JOBS}/${randomUUID()}`, { replica }),
      replicas.get(caller, '/v1/account', { replica }),
    ]),
  );
  for (const answer of refused) assertUnavailable(answer);
  for (const replica of [0, 1]) {
    t.is((await fetch(replicas.url(replica, '/readyz'))).status, 503);
    t.is((await fetch(replicas.url(replica, '/livez'))).status, 200);
  }
  // The node finishes while the database takes no writes.
  opened.resolve();
  await delay(OUTAGE_MS - (performance.now() - goneAtMs));
  await proxy.open();

  for (const answer of await Promise.all(waiting)) {
    t.is(answer.status, 200, JSON.stringify(answer.body));
  }
  const again = await replicas.post(caller, body, { key, replica: 1 });
  t.is(again.status, 200, 'the refused request was not remembered');
  const credits = await creditsOf(replicas.stores, caller.accountId);
  t.deepEqual(
    [credits?.available, credits?.reserved, credits?.sums.reserve, credits?.sums.charge],
    [0, 0, 3, 3],
  );
  await assertBalanced(replicas.stores);
  for (const replica of [0, 1]) {
    t.is((await fetch(replicas.url(replica, '/readyz'))).status, 200);
  }
});

const REPLICAS = [0, 1];

async function unreadyMetric(replicas: Replicas, replica: number): Promise<string | undefined> {
  const { metrics } = replicas.plane(replica).ports;
  const page = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
  return /^matting_control_unready\{cause="database"\} (\d)$/m.exec(page)?.[1];
}

const opened = Promise.withResolvers<void>();
let pair: DatabasePair;

const demoted = groupIf(
  pairSkipReason === false,
  test,
  'a database that is demoted under a service',
);
demoted.before(async () => {
  pair = await DatabasePair.create(series);
});
demoted.after.always(() => opened.resolve());
const following = Replicas.use(demoted, 'mysql', () => ({ database: pair.asTestDatabase() }));

demoted(
  'shows in /readyz and the metrics, and loses nothing once the address leads on',
  async t => {
    let cutOut = 0;
    const node = await following.addNode({
      script: async exchange => {
        await opened.promise;
        await exchange.cutOut();
        cutOut += 1;
      },
    });
    const caller = await following.createCaller(4);
    const waiting = REPLICAS.map(replica => following.post(caller, pictureBody(), { replica }));
    await until(() => node.headers.length === 2, 'both attempts');

    await pair.demoteFirst();
    for (const replica of REPLICAS) {
      const refused = await following.post(caller, pictureBody(), { replica });
      t.is(refused.status, 503, JSON.stringify(refused.body));
      t.is(refused.body.code, 'SERVICE_UNAVAILABLE');
      await until(() => following.isUnready(replica), 'unreadiness');
      t.is(await unreadyMetric(following, replica), '1');
    }
    // Finished while nothing can be written.
    opened.resolve();
    await until(() => cutOut === 2, 'the cut-outs');

    pair.promoteSecond();
    const promotedAtMs = await following.stores.rateQuotas.nowMs();
    for (const answer of await Promise.all(waiting)) {
      t.is(answer.status, 200, JSON.stringify(answer.body));
    }
    const second = storesOn(pair.second.database);
    for (const replica of REPLICAS) {
      const done = await following.post(caller, pictureBody(), { replica });
      t.is(done.status, 200, JSON.stringify(done.body));
      await until(async () => !(await following.isUnready(replica)), 'readiness');
      t.is(await unreadyMetric(following, replica), '0');
    }
    const heartbeat = async () => (await second.nodes.find(node.nodeId))?.heartbeatAtMs ?? 0;
    await until(async () => (await heartbeat()) > promotedAtMs, 'a heartbeat on the new primary');
    const credits = await creditsOf(second, caller.accountId);
    t.deepEqual(
      [credits?.available, credits?.reserved, credits?.sums.reserve, credits?.sums.charge],
      [0, 0, 4, 4],
    );
    await assertBalanced(second);
    // The test's own handle, idle since.
    await following.stores.check();
    await until(
      async () => (await pair.first.connections()) === 0,
      'that no connection is left at the old primary',
    );
  },
);
