/** Two replicas are killed in turn; callers retry. Needs: portal. */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ApiKey } from '@matting/accounts/keys/read-api-keys.ts';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  movements,
} from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import { planeEnv } from '@matting/core/test/support/plane-env.ts';
import { pictureBody, submitTo } from '@matting/core/test/support/replicas.ts';
import type { Database } from '@matting/database/database.ts';
import { signMessage } from '@matting/http/outgoing/webhook-signature.ts';
import type { Order } from '@matting/portal/orders/order-rules.ts';
import { placed } from '@matting/portal/test/orders.ts';
import { at } from '@matting/test-support/at.ts';
import {
  createTestDatabase,
  groupIf,
  onDatabases,
  skipReason,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import ava from 'ava';
import { type Stores, series, storesOn } from '../every-store.ts';
import { ReplicaChild } from '../programs.ts';

const test = ava.serial;

const SECRET = 'what-the-provider-signs-with';
const ACCOUNTS = 4;
const ORDERS_AN_ACCOUNT = 4;
/** Part of a price of 5000. */
const REFUNDED = 1001;
/** A restart takes several of these. */
const RETRY_MS = 20;

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

// On SQLite lost-answers.test.ts loses every answer of these methods.
const orders = groupIf(skipReason('mysql') === false, test, 'orders and replicas that are killed');

let directory: string;
let fixture: TestDatabase;
let database: Database;
let stores: Stores;
const replicas: ReplicaChild[] = [];

orders.before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-orders-'));
  fixture = await createTestDatabase('mysql', { series });
  database = await fixture.open();
  stores = storesOn(database);
  replicas.push(...(await Promise.all([start(), start()])));
});
orders.after.always(async () => {
  await Promise.all(replicas.map(replica => replica.kill()));
  await fixture?.close();
  await rm(directory, { recursive: true, force: true });
});

const start = () =>
  ReplicaChild.start({ ...planeEnv(directory, fixture.url), MATTING_PAYMENT_SECRET: SECRET });

orders('grant and take back their credits once', async t => {
  const all: Order[] = [];
  for (let account = 0; account < ACCOUNTS; account += 1) {
    const accountId = await fundedAccount(stores, 0);
    for (let order = 0; order < ORDERS_AN_ACCOUNT; order += 1) {
      all.push(await placed(stores, accountId));
    }
  }
  let answered = 0;
  const tell = async (event: unknown, first: number): Promise<void> => {
    for (let turn = first; ; turn += 1) {
      const status = await send(at(replicas, turn % 2), event);
      if (status === 200) break;
      // 429: the many senders share a rate.
      t.true([undefined, 429, 503].includes(status), `status ${status}`);
      await delay(RETRY_MS);
    }
    answered += 1;
  };
  const told = all.flatMap(({ id, price, currency }, index) => {
    const common = { order_id: id, currency };
    const timestamp = '2026-11-21T09:00:00Z';
    const data = { ...common, amount: price, payment_id: `pay-${id}` };
    const back = { ...common, amount: REFUNDED, refund_id: 're-1' };
    const paid = { type: 'order.paid', timestamp, data };
    const refunded = { type: 'order.refunded', timestamp, data: back };
    // Each twice, by senders that start with different replicas.
    return [paid, refunded, paid, refunded].map(
      (event, sender) => () => tell(event, index + sender),
    );
  });
  const answers = Promise.all(told.map(begin => begin()));
  for (const [index, replica] of replicas.entries()) {
    const reached = Math.min(told.length, answered + 5);
    await until(() => answered >= reached, 'some answers');
    await replica.kill();
    replicas[index] = await start();
  }
  await answers;
  for (const accountId of new Set(all.map(order => order.accountId))) {
    const own = all.filter(order => order.accountId === accountId);
    const expected = own.flatMap(({ id }) => [
      `grant order:${id} 2500`,
      `revoke refund:${id}:re-1 501`,
    ]);
    t.deepEqual(await movements(database, accountId), expected.sort());
    t.deepEqual(await stores.ledger.balances(accountId), {
      available: own.length * 1999,
      reserved: 0,
    });
  }
  await assertBalanced(stores);
});

onDatabases(test, 'a cap and replicas that are killed', (test, dialect) => {
  const CAP = 25;
  const CREDITS = 60;
  const REQUESTS = 60;
  let directory: string;
  let fixture: TestDatabase;
  let stores: Stores;
  let accountId: string;
  let key: ApiKey;
  let token: string;
  const children: ReplicaChild[] = [];

  test.before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'matting-caps-'));
    fixture = await createTestDatabase(dialect, { series });
    stores = storesOn(await fixture.open());
    accountId = await fundedAccount(stores, CREDITS);
    const policy = { cap: { credits: CAP, period: 'total' } } as const;
    ({ key, token } = await stores.apiKeys.create(accountId, 'capped', { policy }));
  });
  test.after.always(async () => {
    await Promise.all(children.map(child => child.kill()));
    await fixture.close();
    await rm(directory, { recursive: true, force: true });
  });

  async function start(index: number): Promise<void> {
    const env = planeEnv(directory, fixture.url);
    children[index] = await ReplicaChild.start(env, { name: `replica-${index}` });
  }

  const kill = (index: number) => children[index]?.kill();

  async function submit(turn: number): Promise<number> {
    const idempotencyKey = randomUUID();
    const body = pictureBody();
    for (let attempt = turn; ; attempt += 1) {
      const { http = 0 } = children[attempt % 2]?.ports ?? {};
      try {
        const answer = await submitTo(`http://127.0.0.1:${http}`, token, body, {
          key: idempotencyKey,
        });
        await answer.arrayBuffer();
        if (answer.status < 500) return answer.status;
      } catch {
        // Killed: try the next one.
      }
      await delay(20);
    }
  }

  test('is used to the credit, and given back what failed', async t => {
    await Promise.all([start(0), start(1)]);
    const first = Array.from({ length: REQUESTS / 2 }, (_, turn) => submit(turn));
    await Promise.race(first);
    await kill(0);
    await start(0);
    await kill(1);
    await start(1);
    const answers = await Promise.all(first);
    t.deepEqual([...new Set(answers)].sort(), [202, 402]);
    const made = () =>
      stores.jobs.list({
        states: ['accepted', 'fetching', 'ready', 'running'],
        accountId,
        endedWithinMs: 0,
        limit: 100,
      });
    const open = await made();
    t.is(open.length, CAP, 'as many jobs as the cap has credits, none more');
    const used = async () => (await stores.apiKeys.find(key.id))?.capUse?.used;
    t.is(await used(), CAP);

    // Jobs fail and release credits during submissions, and a replica dies again.
    const back = open.slice(0, 10);
    const second = Array.from({ length: REQUESTS / 2 }, (_, turn) => submit(turn));
    const failing = back.map(async job => {
      const claim = await claimed(stores, job, { holder: 'test' });
      t.truthy(await stores.queue.fail(claim, IMAGE_FAULT));
    });
    await Promise.race(second);
    await kill(0);
    await start(0);
    await Promise.all([...failing, ...second]);
    const left = (await made()).length;
    t.true(left <= CAP);
    t.is(await used(), left, 'the count is that of the jobs that hold or took a credit');
    const balances = await stores.ledger.balances(accountId);
    t.deepEqual(balances, { available: CREDITS - left, reserved: left });
    await assertBalanced(stores);
    while (await submit(0).then(status => status === 202));
    t.is(await used(), CAP);
    t.is((await made()).length, CAP);
    await assertBalanced(stores);
  });
});
