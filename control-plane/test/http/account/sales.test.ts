/** The pages of credits and orders: what each role sees, what a form changes, what is refused. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { ORDERS_PENDING_MAX } from '../../../src/domain/account/orders.ts';
import { OPERATOR, PROVIDER, paid, paymentOf, placed, refundOf } from '../../store/orders.ts';
import { type SignedInBrowser, signIn } from '../../support/signed-in-browser.ts';
import { openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
const sales = {
  priceList: 'credit',
  paymentSecret: undefined,
  paymentInstructions: 'Bank <b>of</b> Somewhere\nAccount 7',
} as const;
const app = useTestApp(test, { credits: 1000, sales }, async () => {
  await app.stores.ledger.revoke(app.accountId, 10, '=cmd()');
  owner = await signIn(app);
  viewer = await signIn(app, { role: 'viewer' });
});

const textOf = (html: string) => html.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');

test('the page of credits › shows the balance and the ledger, of a kind and of days', async t => {
  const today = new Date().toISOString().slice(0, 10);
  const page = await viewer.get('/account/credits');
  t.is(page.statusCode, 200);
  t.regex(textOf(page.body), /Available 990 .* Reserved 0/);
  t.regex(textOf(page.body), /Taken back −10 =cmd\(\)/);
  const granted = await viewer.get(`/account/credits?kind=grant&from=${today}&to=${today}`);
  t.regex(textOf(granted.body), /Granted \+1,000 test/);
  t.notRegex(granted.body, /=cmd/);
  const before = await viewer.get('/account/credits?to=2020-01-31');
  t.regex(before.body, /No entries of this kind in these days/);
});

test('the page of credits › names the field of a filter that makes no sense', async t => {
  for (const [query, field] of [
    ['kind=gift', 'kind'],
    ['from=2026-02-30', 'from'],
    ['to=yesterday', 'to'],
    ['from=2026-02-02&to=2026-02-01', 'to'],
  ]) {
    const page = await owner.get(`/account/credits?${query}`);
    t.is(page.statusCode, 422, query);
    t.regex(page.body, new RegExp(`id="${field}-error"`), query);
  }
  for (const query of ['kind=grant&kind=revoke', 'after=1', "after=1-'", 'from=a&from=b']) {
    t.is((await owner.get(`/account/credits?${query}`)).statusCode, 400, query);
  }
});

test('the page of credits › leads through pages without a gap, by the last entry of each', async t => {
  const { stores, accountId } = app;
  for (let index = 0; index < 60; index += 1) await stores.ledger.grant(accountId, 1, `n${index}`);
  const seen = new Set<string>();
  let url: string | undefined = '/account/credits?kind=grant';
  for (let pages = 0; url !== undefined; pages += 1) {
    t.true(pages < 5);
    const { body } = await owner.get(url);
    for (const [, name] of body.matchAll(/>(n\d+)</g)) seen.add(String(name));
    url = /href="([^"]+)" rel="next"/.exec(body)?.[1]?.replaceAll('&amp;', '&');
  }
  t.is(seen.size, 60);
});

test('the page of credits › is exported as CSV that no spreadsheet takes for formulas', async t => {
  const file = await viewer.get('/account/credits/export?kind=revoke');
  t.is(file.statusCode, 200);
  t.regex(String(file.headers['content-type']), /^text\/csv/);
  t.regex(String(file.headers['content-disposition']), /^attachment/);
  const [head, row, end] = file.body.split('\r\n');
  t.is(head, '"time","kind","credits","reference"');
  t.regex(String(row), /^"\d{4}-[^"]+Z","revoke",10,"'=cmd\(\)"$/);
  t.is(end, '');
  const all = await viewer.get('/account/credits/export');
  const { length } = await app.stores.ledger.list(app.accountId, { limit: 1000 });
  t.is(all.body.split('\r\n').length, length + 2);
  t.is((await viewer.get('/account/credits/export?kind=gift')).statusCode, 400);
});

async function formOf(page: string): Promise<Record<string, string>> {
  const { body } = await owner.get(page);
  const form = /<form[^>]*action="\/account\/orders"[^>]*>(.*?)<\/form>/s.exec(body)?.[1] ?? '';
  const fields = [...form.matchAll(/name="(\w+)" value="([^"]*)"/g)];
  return Object.fromEntries(fields.map(([, name, value]) => [String(name), String(value)]));
}

test('the pages of orders › sell the packages of the list on sale, each form once', async t => {
  const { csrf, ...fields } = await formOf('/account/orders/packages');
  t.deepEqual([fields.credits, fields.price], ['2500', '5000']);
  const first = await owner.post('/account/orders', fields);
  t.is(first.statusCode, 303);
  const twice = await owner.post('/account/orders', fields);
  t.is(twice.headers.location, first.headers.location);
  const url = String(first.headers.location);
  const page = await owner.get(url);
  t.regex(textOf(page.body), /The order is placed.*Waiting for payment.*2,500.*¥50/);
  t.regex(page.body, /Bank &lt;b>of/);
  const id = /orders\/([^?]+)/.exec(url)?.[1] ?? '';
  const [order] = await app.stores.orders.list({ accountId: app.accountId, limit: 1 });
  t.is(order?.id, id);
  const cancelled = await owner.post(`/account/orders/${id}/cancel`, {});
  t.regex(String(cancelled.headers.location), /said=cancelled$/);
  const late = await owner.post(`/account/orders/${id}/cancel`, {});
  t.is(late.statusCode, 303, 'cancelled before is cancelled');
});

test('the pages of orders › sell nothing else, and at no other price', async t => {
  const form = randomUUID();
  for (const [credits, price] of [
    ['2500', '1'],
    ['2501', '5000'],
    ['100', '1000'],
  ] as const) {
    const answer = await owner.post('/account/orders', { form, credits, price });
    t.is(answer.statusCode, 422);
    t.regex(answer.body, /not on sale any more at this price/);
  }
  for (const fields of [
    { form: 'x', credits: '2500', price: '5000' },
    { form, credits: '2.5e3', price: '5000' },
    { form, credits: '2500', price: '-5000' },
    { form, credits: '2500' },
  ]) {
    t.is((await owner.post('/account/orders', fields)).statusCode, 400);
  }
});

test('the pages of orders › say when there are too many', async t => {
  const order = () =>
    owner.post('/account/orders', { form: randomUUID(), credits: '2500', price: '5000' });
  for (let index = 0; index < ORDERS_PENDING_MAX; index += 1) {
    t.is((await order()).statusCode, 303);
  }
  const refused = await order();
  t.is(refused.statusCode, 422);
  t.regex(refused.body, /as many unpaid orders as it may have/);
});

test('the pages of orders › tell of money that came twice, of refunds, and of credits that stay', async t => {
  const { stores, accountId } = app;
  const order = await paidOrder();
  await stores.orders.pay(order.id, paymentOf(order, { payment: 'again-1' }), PROVIDER);
  const odd = paymentOf(order, { payment: 'odd-1', currency: 'JPY' });
  await stores.orders.pay(order.id, odd, PROVIDER);
  const { available } = (await stores.ledger.balances(accountId)) ?? { available: 0 };
  await stores.ledger.revoke(accountId, available - 100, 'spent');
  await stores.orders.refund(order.id, refundOf(2500), PROVIDER);
  const page = textOf((await viewer.get(`/account/orders/${order.id}`)).body);
  t.regex(page, /Partly refunded/);
  t.regex(page, /More was paid for this order/);
  t.regex(page, /again-1.*The order was paid already/);
  t.regex(page, /odd-1.*5,000 \(JPY\).*Not the price of the order/);
  t.regex(page, /Refunded ¥25.* Credits taken back 100 Not taken back 1,150/);
});

async function pendingOrder() {
  const { accountId } = app;
  const [pending] = await app.stores.orders.list({ accountId, state: 'pending', limit: 1 });
  assert.ok(pending);
  return pending;
}

async function paidOrder() {
  const pending = await pendingOrder();
  const outcome = await app.stores.orders.pay(pending.id, paymentOf(pending), PROVIDER);
  assert.ok(outcome.kind === 'paid');
  return outcome.order;
}

test('the pages of orders › let viewers look, and offer them no change', async t => {
  t.is((await viewer.get('/account/orders')).statusCode, 200);
  t.notRegex((await viewer.get('/account/orders')).body, /orders\/packages/);
  const { id } = await pendingOrder();
  t.notRegex((await viewer.get(`/account/orders/${id}`)).body, /Cancel the order/);
});

test('the pages of orders › say that an order is no longer pending', async t => {
  const order = await paidOrder();
  const answer = await owner.post(`/account/orders/${order.id}/cancel`, {});
  t.is(answer.statusCode, 422);
  t.regex(answer.body, /not waiting for its payment any more/);
  t.is((await app.stores.orders.find(order.id))?.state, 'paid');
});

test('the pages of orders › sell nothing where nothing is on sale', async t => {
  const none = { ...sales, paymentInstructions: undefined, priceList: 'none' } as const;
  const closed = await openTestApp({ sales: none }, t);
  const person = await signIn(closed);
  const page = await person.get('/account/orders/packages');
  t.regex(page.body, /Nothing is on sale here/);
  const order = await placed(closed.stores, closed.accountId);
  await closed.stores.orders.cancel(closed.accountId, order.id, OPERATOR);
  await paid(closed.stores, closed.accountId);
  const zh = await person.get('/account/orders', { headers: { 'accept-language': 'zh-CN' } });
  t.is(zh.statusCode, 200);
});
