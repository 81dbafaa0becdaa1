/** A database that is gone for ten seconds under a running service: 503, then all is as it was. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { skipReason } from '../../../test/support/database.ts';
import { until } from '../services/dispatch/harness.ts';
import { DatabaseProxy } from '../store/database/database-proxy.ts';
import { assertBalanced } from '../store/fixtures.ts';
import { pictureBody, Replicas, type RestAnswer } from '../support/replicas.ts';

const OUTAGE_MS = 10_000;
const JOBS = '/v1/matting/jobs';

function assertUnavailable(answer: RestAnswer): void {
  assert.equal(answer.status, 503, JSON.stringify(answer.body));
  assert.equal(answer.body.code, 'SERVICE_UNAVAILABLE');
  assert.equal(answer.body.retryable, true);
  assert.match(answer.headers.get('content-type') ?? '', /^application\/problem\+json/);
  assert.ok(Number(answer.headers.get('retry-after')) > 0);
}

describe('a database gone for ten seconds', { skip: skipReason('mysql') }, () => {
  let proxy: DatabaseProxy;
  let replicas: Replicas;

  before(async () => {
    replicas = await Replicas.open('mysql', {
      databaseUrl: async url => {
        proxy = new DatabaseProxy(url);
        await proxy.open();
        return proxy.url;
      },
    });
  });
  after(async () => {
    await replicas?.close();
    await proxy?.close();
  });

  it('is answered with 503, and what was accepted before is done once it is back', async () => {
    const opened = Promise.withResolvers<void>();
    const node = await replicas.addNode({
      script: async exchange => {
        await opened.promise;
        await exchange.cutOut();
      },
    });
    const caller = await replicas.createCaller(3);
    const waiting = [0, 1].map(replica => replicas.post(caller, pictureBody(), { replica }));
    await until(() => node.headers.length > 0, 'the attempts');
    const reserved = async () =>
      (await replicas.stores.ledger.balances(caller.accountId))?.reserved === 2;
    await until(reserved, 'both jobs');

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
      assert.equal((await fetch(replicas.url(replica, '/readyz'))).status, 503);
      assert.equal((await fetch(replicas.url(replica, '/livez'))).status, 200);
    }
    // The node finishes while the database takes no writes.
    opened.resolve();
    await delay(OUTAGE_MS - (performance.now() - goneAtMs));
    await proxy.open();

    for (const answer of await Promise.all(waiting)) {
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
    }
    const again = await replicas.post(caller, body, { key, replica: 1 });
    assert.equal(again.status, 200, 'the refused request was not remembered');
    const credits = await replicas.stores.ledger.credits(caller.accountId);
    assert.deepEqual(
      [credits?.available, credits?.reserved, credits?.sums.reserve, credits?.sums.charge],
      [0, 0, 3, 3],
    );
    await assertBalanced(replicas.stores);
    for (const replica of [0, 1]) {
      assert.equal((await fetch(replicas.url(replica, '/readyz'))).status, 200);
    }
  });
});
