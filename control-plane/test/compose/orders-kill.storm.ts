/**
 * Two replicas that are told of payments and refunds while one after the other is killed and comes
 * back. Whoever tells repeats until it is answered, to either: each order's credits are granted
 * once, and taken back once.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { at } from '../../../test/support/at.ts';
import {
  createTestDatabase,
  skipReason,
  type TestDatabase,
} from '../../../test/support/database.ts';
import type { Order } from '../../src/domain/account/orders.ts';
import { signMessage } from '../../src/services/notification/signature.ts';
import type { Database } from '../../src/store/database/connect.ts';
import type { Stores } from '../../src/store/stores.ts';
import { until } from '../services/dispatch/harness.ts';
import { assertBalanced, fundedAccount, storesOn } from '../store/fixtures.ts';
import { movements, placed } from '../store/orders.ts';
import { planeEnv, ReplicaChild } from '../support/child.ts';

const SECRET = 'what-the-provider-signs-with';
const ACCOUNTS = 4;
const ORDERS_AN_ACCOUNT = 4;
/** Of a price of 5000. */
const REFUNDED = 1001;
/** Between two tries: the time a restart takes is some of them. */
const RETRY_MS = 20;

/** The status that one answers; undefined: it died, or is not there. */
async function send(replica: ReplicaChild, event: unknown): Promise<number | undefined> {
  const body = JSON.stringify(event);
  const timestampS = Math.floor(Date.now() / 1000);
  const signed = signMessage(Buffer.from(SECRET), {
    id: randomUUID(),
    timestampS,
    body: Buffer.from(body),
  });
  const url = `http://127.0.0.1:${replica.ports.http}/account/payments/notifications`;
  try {
    const answer = await fetch(url, { method: 'POST', body, headers: { ...signed } });
    await answer.arrayBuffer();
    return answer.status;
  } catch {
    return undefined;
  }
}

// On SQLite the store's own tests lose every answer of these methods (lost-answers.test.ts).
describe('orders while replicas are killed', { skip: skipReason('mysql') }, () => {
  let directory: string;
  let test: TestDatabase;
  let database: Database;
  let stores: Stores;
  const replicas: ReplicaChild[] = [];

  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'matting-orders-'));
    test = await createTestDatabase('mysql');
    database = await test.open();
    stores = storesOn(database);
    replicas.push(...(await Promise.all([start(), start()])));
  });
  after(async () => {
    await Promise.all(replicas.map(replica => replica.end()));
    await test?.close();
    await rm(directory, { recursive: true, force: true });
  });

  const start = () =>
    ReplicaChild.start({ ...planeEnv(directory, test.url), MATTING_PAYMENT_SECRET: SECRET });

  it('grant and take back their credits once', async () => {
    const orders: Order[] = [];
    for (let account = 0; account < ACCOUNTS; account += 1) {
      const accountId = await fundedAccount(stores, 0);
      for (let order = 0; order < ORDERS_AN_ACCOUNT; order += 1) {
        orders.push(await placed(stores, accountId));
      }
    }
    let answered = 0;
    const tell = async (event: unknown, first: number): Promise<void> => {
      for (let turn = first; ; turn += 1) {
        const status = await send(at(replicas, turn % 2), event);
        if (status === 200) break;
        assert.ok(status === undefined || status === 503, `status ${status}`);
        await delay(RETRY_MS);
      }
      answered += 1;
    };
    const told = orders.flatMap(({ id, price, currency }, index) => {
      const common = { order_id: id, currency };
      const timestamp = '2026-11-21T09:00:00Z';
      const data = { ...common, amount: price, payment_id: `pay-${id}` };
      const back = { ...common, amount: REFUNDED, refund_id: 're-1' };
      const paid = { type: 'order.paid', timestamp, data };
      const refunded = { type: 'order.refunded', timestamp, data: back };
      // Each twice, by two senders that begin with different replicas.
      return [paid, refunded, paid, refunded].map(
        (event, sender) => () => tell(event, index + sender),
      );
    });
    const all = Promise.all(told.map(begin => begin()));
    for (const [index, replica] of replicas.entries()) {
      const reached = Math.min(told.length, answered + 5);
      await until(() => answered >= reached, 'some answers');
      await replica.end();
      replicas[index] = await start();
    }
    await all;
    for (const accountId of new Set(orders.map(order => order.accountId))) {
      const own = orders.filter(order => order.accountId === accountId);
      const expected = own.flatMap(({ id }) => [
        `grant order:${id} 2500`,
        `revoke refund:${id}:re-1 501`,
      ]);
      assert.deepEqual(await movements(database, accountId), expected.sort());
      assert.deepEqual(await stores.ledger.balances(accountId), {
        available: own.length * 1999,
        reserved: 0,
      });
    }
    await assertBalanced(stores);
  });
});
