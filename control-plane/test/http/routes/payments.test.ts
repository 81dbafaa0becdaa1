/** Notifications of payments over HTTP: believed by their signature alone, each counted once. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import path from 'node:path';
import ava from 'ava';
import { SILENT_LOG } from '../../../../test/support/database.ts';
import type { Order } from '../../../src/domain/account/orders.ts';
import { signMessage } from '../../../src/services/notification/signature.ts';
import { NOTIFICATIONS_A_MINUTE_MAX } from '../../../src/services/sales/receive-payment.ts';
import { openDatabase } from '../../../src/store/database/connect.ts';
import { assertBalanced, fundedAccount } from '../../store/fixtures.ts';
import { aged, placed } from '../../store/orders.ts';
import { openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const SECRET = 'a secret of the provider'.replaceAll(' ', '-');
const PATH = '/account/payments/notifications';

const config = {
  priceList: 'credit',
  paymentSecret: SECRET,
  paymentInstructions: undefined,
} as const;

const app = useTestApp(test, { sales: config }, async () => {
  account = await fundedAccount(app.stores, 0);
});
let account: string;

interface Sent {
  readonly secret?: string;
  readonly timestampS?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

function send(body: unknown, { secret = SECRET, timestampS, headers }: Sent = {}) {
  const payload = typeof body === 'string' ? body : JSON.stringify(body);
  const signed = signMessage(Buffer.from(secret), {
    id: `evt_${randomUUID()}`,
    timestampS: timestampS ?? Math.floor(Date.now() / 1000),
    body: Buffer.from(payload),
  });
  const url = PATH;
  const type = { 'content-type': 'application/json' };
  return app.app.inject({
    method: 'POST',
    url,
    payload,
    headers: { ...type, ...signed, ...headers },
  });
}

const TIMESTAMP = '2026-11-21T09:00:00Z';

function paidEvent(order: Order, overrides: Record<string, unknown> = {}) {
  const { id: order_id, price: amount, currency } = order;
  const data = { order_id, payment_id: 'pay-1', amount, currency, ...overrides };
  return { type: 'order.paid', timestamp: TIMESTAMP, data };
}

function refundedEvent(order: Order, amount: number, refund_id = 're-1') {
  const data = { order_id: order.id, refund_id, amount, currency: order.currency };
  return { type: 'order.refunded', timestamp: TIMESTAMP, data };
}

const fieldsOf = (answer: { json(): { errors?: { field: string }[] } }) =>
  (answer.json().errors ?? []).map(({ field }) => field);

test('a notification of a payment › pays its order once, however often it comes', async t => {
  const order = await placed(app.stores, account);
  const outcomes = await Promise.all([1, 2, 3].map(() => send(paidEvent(order))));
  const told = outcomes.map(answer => [answer.statusCode, answer.json().outcome]);
  t.deepEqual(told.map(String).sort(), ['200,already_paid', '200,already_paid', '200,paid']);
  t.deepEqual(outcomes[0]?.json().order_id, order.id);
  t.is((await app.stores.orders.find(order.id))?.paidBy, 'notification');
  await assertBalanced(app.stores, account);
});

test('a notification of a payment › in any order: a refund first, a payment after expiry, another payment', async t => {
  const order = await placed(app.stores, account);
  t.is((await send(refundedEvent(order, 1000))).json().outcome, 'waiting');
  const file = path.join(path.dirname(app.storageDir), 'matting.sqlite');
  const database = await openDatabase(`sqlite:${file}`, { log: SILENT_LOG });
  await aged(database, order.id, 30).finally(() => database.close());
  t.is((await send(paidEvent(order))).json().outcome, 'paid');
  t.is((await send(refundedEvent(order, 1000))).json().outcome, 'already_refunded');
  const again = await send(paidEvent(order, { payment_id: 'pay-2' }));
  t.deepEqual([again.statusCode, again.json().outcome], [200, 'paid_again']);
  t.is((await send(refundedEvent(order, 4000, 're-2'))).json().outcome, 'refunded');
  t.is((await app.stores.orders.find(order.id))?.state, 'refunded');
  await assertBalanced(app.stores, account);
});

test('a notification of a payment › of another sum or currency, or of too much, names the field and changes nothing', async t => {
  const order = await placed(app.stores, account);
  for (const [overrides, field] of [
    [{ amount: order.price - 1 }, 'data.amount'],
    [{ currency: 'USD' }, 'data.currency'],
  ] as const) {
    const answer = await send(paidEvent(order, overrides));
    t.deepEqual([answer.statusCode, fieldsOf(answer)], [400, [field]]);
  }
  t.is((await app.stores.orders.find(order.id))?.state, 'pending');
  await send(paidEvent(order));
  const answer = await send(refundedEvent(order, order.price + 1));
  t.deepEqual([answer.statusCode, fieldsOf(answer)], [400, ['data.amount']]);
  t.is((await send(refundedEvent(order, 10))).json().outcome, 'refunded');
  t.deepEqual(fieldsOf(await send(refundedEvent(order, 11))), ['data.refund_id']);
  const unknown = await send(paidEvent({ ...order, id: randomUUID() }));
  t.deepEqual([unknown.statusCode, unknown.json().code], [404, 'NOT_FOUND']);
});

test('a notification of a payment › is not believed without a good signature over its very bytes, of now', async t => {
  const order = await placed(app.stores, account);
  const event = paidEvent(order);
  const nowS = Math.floor(Date.now() / 1000);
  const tries = [
    send(event, { secret: 'another secret of somebody' }),
    send(event, { timestampS: nowS - 400 }),
    send(event, { timestampS: nowS + 400 }),
    send(event, { headers: { 'webhook-id': 'another' } }),
    send(event, { headers: { 'webhook-signature': '' } }),
    send(event, { headers: { 'webhook-timestamp': 'soon' } }),
    app.app.inject({ method: 'POST', url: PATH, payload: JSON.stringify(event) }),
  ];
  for (const answer of await Promise.all(tries)) {
    t.deepEqual([answer.statusCode, fieldsOf(answer)], [400, ['webhook-signature']]);
  }
  const spaced = JSON.stringify(event, null, 1);
  const signed = signMessage(Buffer.from(SECRET), {
    id: 'evt',
    timestampS: nowS,
    body: Buffer.from(JSON.stringify(event)),
  });
  const other = await app.app.inject({
    method: 'POST',
    url: PATH,
    payload: spaced,
    headers: { ...signed },
  });
  t.is(other.statusCode, 400);
  t.is((await app.stores.orders.find(order.id))?.state, 'pending');
});

test('a notification of a payment › names every field that makes no sense', async t => {
  const order = await placed(app.stores, account);
  const good = paidEvent(order);
  const bad: [unknown, string[]][] = [
    [{ ...good, type: 'order.shipped' }, ['type']],
    [{ ...good, timestamp: 'now' }, ['timestamp']],
    [{ ...good, more: 1 }, ['more']],
    [
      { ...good, data: [] },
      ['data', 'data.order_id', 'data.payment_id', 'data.amount', 'data.currency'],
    ],
    [paidEvent(order, { order_id: '../1' }), ['data.order_id']],
    [paidEvent(order, { payment_id: 'a b' }), ['data.payment_id']],
    [paidEvent(order, { payment_id: 'x'.repeat(65) }), ['data.payment_id']],
    [paidEvent(order, { amount: 50.5 }), ['data.amount']],
    [paidEvent(order, { amount: '5000' }), ['data.amount']],
    [paidEvent(order, { amount: 0 }), ['data.amount']],
    [paidEvent(order, { currency: 'cny' }), ['data.currency']],
    [paidEvent(order, { refund_id: 'r' }), ['data.refund_id']],
  ];
  for (const [body, fields] of bad) {
    const answer = await send(body);
    t.deepEqual([answer.statusCode, fieldsOf(answer)], [400, fields], JSON.stringify(body));
  }
  for (const body of ['', '[]', '{', 'null', '"x"', '\ufeff{}']) {
    t.is((await send(body)).json().code, 'INVALID_REQUEST', body);
  }
  t.is((await send(`{"a":"${'x'.repeat(8192)}"}`)).statusCode, 400);
  const zipped = await send(good, { headers: { 'content-encoding': 'gzip' } });
  t.is(zipped.statusCode, 415);
  t.is((await app.app.inject({ method: 'GET', url: PATH })).statusCode, 405);
});

const example = path.resolve(import.meta.dirname, '../../../../docs/examples/tell-payment.ts');

test('the example of the docs › tells of a payment and a refund, and of what does not fit', async t => {
  const own = await openTestApp({ sales: config }, t);
  const url = await own.app.listen({ port: 0, host: '127.0.0.1' });
  const { id } = await placed(own.stores, own.accountId);
  const tell = async (...args: string[]) => {
    const env = { PATH: process.env.PATH, PAYMENT_SECRET: SECRET };
    const child = spawn(process.execPath, [example, url, ...args], { env });
    const said: Buffer[] = [];
    child.stdout.on('data', chunk => said.push(chunk));
    const [code] = await once(child, 'close');
    return `${code} ${Buffer.concat(said)}`;
  };
  t.regex(await tell('paid', id, 'pay-1', '4999', 'CNY'), /^1 400 .*data\.amount/);
  t.regex(await tell('paid', id, 'pay-1', '5000', 'CNY'), /^0 200 .*"outcome":"paid"/);
  t.regex(await tell('refunded', id, 're-1', '5000', 'CNY'), /^0 200 .*"refunded"/);
  t.is((await own.stores.orders.find(id))?.state, 'refunded');
});

test('notifications of payments › are nowhere where no provider is configured', async t => {
  const without = await openTestApp({}, t);
  const answer = await without.app.inject({ method: 'POST', url: PATH, payload: '{}' });
  t.deepEqual([answer.statusCode, answer.json().code], [404, 'NOT_FOUND']);
});

test('notifications of payments › are told to come later beyond their rate; forged ones do not spend it', async t => {
  const own = await openTestApp({ sales: config }, t);
  const { receivePayment } = own.services;
  assert.ok(receivePayment);
  const event = paidEvent({ ...(await placed(own.stores, own.accountId)), id: randomUUID() });
  const body = Buffer.from(JSON.stringify(event));
  const headers = (secret: string) => ({
    ...signMessage(Buffer.from(secret), {
      id: 'evt',
      timestampS: Math.floor(Date.now() / 1000),
      body,
    }),
  });
  const codeOf = (secret: string) =>
    receivePayment.receive(headers(secret), body).then(
      () => 'taken',
      (error: { code: string }) => error.code,
    );
  for (let index = 0; index < NOTIFICATIONS_A_MINUTE_MAX; index += 1) {
    t.is(await codeOf('somebody else, who knows nothing'), 'INVALID_REQUEST');
  }
  for (let index = 0; index < NOTIFICATIONS_A_MINUTE_MAX; index += 1) {
    t.is(await codeOf(SECRET), 'NOT_FOUND');
  }
  t.is(await codeOf(SECRET), 'RATE_LIMITED');
});
