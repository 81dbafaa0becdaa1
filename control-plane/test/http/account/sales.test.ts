/** The pages of credits and orders: what each role sees, what a form changes, what is refused. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { ORDERS_PENDING_MAX } from '../../../src/domain/account/orders.ts';
import { OPERATOR, PROVIDER, paid, paymentOf, placed, refundOf } from '../../store/orders.ts';
import { type SignedInBrowser, signIn } from '../../support/signed-in-browser.ts';
import { openTestApp, useTestApp } from '../../support/test-app.ts';

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
const sales = {
  priceList: 'credit',
  paymentSecret: undefined,
  paymentInstructions: 'Bank <b>of</b> Somewhere\nAccount 7',
} as const;
const app = useTestApp({ credits: 1000, sales }, async () => {
  await app.stores.ledger.revoke(app.accountId, 10, '=cmd()');
  owner = await signIn(app);
  viewer = await signIn(app, { role: 'viewer' });
});

const textOf = (html: string) => html.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');

describe('the page of credits', () => {
  it('shows the balance and the ledger, of a kind and of days', async () => {
    const today = new Date().toISOString().slice(0, 10);
    const page = await viewer.get('/account/credits');
    assert.equal(page.statusCode, 200);
    assert.match(textOf(page.body), /Available 990 .* Reserved 0/);
    assert.match(textOf(page.body), /Taken back −10 =cmd\(\)/);
    const granted = await viewer.get(`/account/credits?kind=grant&from=${today}&to=${today}`);
    assert.match(textOf(granted.body), /Granted \+1,000 test/);
    assert.doesNotMatch(granted.body, /=cmd/);
    const before = await viewer.get('/account/credits?to=2020-01-31');
    assert.match(before.body, /No entries of this kind in these days/);
  });

  it('names the field of a filter that makes no sense', async () => {
    for (const [query, field] of [
      ['kind=gift', 'kind'],
      ['from=2026-02-30', 'from'],
      ['to=yesterday', 'to'],
      ['from=2026-02-02&to=2026-02-01', 'to'],
    ]) {
      const page = await owner.get(`/account/credits?${query}`);
      assert.equal(page.statusCode, 422, query);
      assert.match(page.body, new RegExp(`id="${field}-error"`), query);
    }
    for (const query of ['kind=grant&kind=revoke', 'after=1', "after=1-'", 'from=a&from=b']) {
      assert.equal((await owner.get(`/account/credits?${query}`)).statusCode, 400, query);
    }
  });

  it('leads through pages without a gap, by the last entry of each', async () => {
    const { stores, accountId } = app;
    for (let index = 0; index < 60; index += 1)
      await stores.ledger.grant(accountId, 1, `n${index}`);
    const seen = new Set<string>();
    let url: string | undefined = '/account/credits?kind=grant';
    for (let pages = 0; url !== undefined; pages += 1) {
      assert.ok(pages < 5);
      const { body } = await owner.get(url);
      for (const [, name] of body.matchAll(/>(n\d+)</g)) seen.add(String(name));
      url = /href="([^"]+)" rel="next"/.exec(body)?.[1]?.replaceAll('&amp;', '&');
    }
    assert.equal(seen.size, 60);
  });

  it('is exported as CSV that no spreadsheet takes for formulas', async () => {
    const file = await viewer.get('/account/credits/export?kind=revoke');
    assert.equal(file.statusCode, 200);
    assert.match(String(file.headers['content-type']), /^text\/csv/);
    assert.match(String(file.headers['content-disposition']), /^attachment/);
    const [head, row, end] = file.body.split('\r\n');
    assert.equal(head, '"time","kind","credits","reference"');
    assert.match(String(row), /^"\d{4}-[^"]+Z","revoke",10,"'=cmd\(\)"$/);
    assert.equal(end, '');
    const all = await viewer.get('/account/credits/export');
    const { length } = await app.stores.ledger.list(app.accountId, { limit: 1000 });
    assert.equal(all.body.split('\r\n').length, length + 2);
    assert.equal((await viewer.get('/account/credits/export?kind=gift')).statusCode, 400);
  });
});

describe('the pages of orders', () => {
  async function formOf(page: string): Promise<Record<string, string>> {
    const { body } = await owner.get(page);
    const form = /<form[^>]*action="\/account\/orders"[^>]*>(.*?)<\/form>/s.exec(body)?.[1] ?? '';
    const fields = [...form.matchAll(/name="(\w+)" value="([^"]*)"/g)];
    return Object.fromEntries(fields.map(([, name, value]) => [String(name), String(value)]));
  }

  it('sell the packages of the list on sale, each form once', async () => {
    const { csrf, ...fields } = await formOf('/account/orders/packages');
    assert.deepEqual([fields.credits, fields.price], ['2500', '5000']);
    const first = await owner.post('/account/orders', fields);
    assert.equal(first.statusCode, 303);
    const twice = await owner.post('/account/orders', fields);
    assert.equal(twice.headers.location, first.headers.location);
    const url = String(first.headers.location);
    const page = await owner.get(url);
    assert.match(textOf(page.body), /The order is placed.*Waiting for payment.*2,500.*¥50/);
    assert.match(page.body, /Bank &lt;b>of/);
    const id = /orders\/([^?]+)/.exec(url)?.[1] ?? '';
    const [order] = await app.stores.orders.list({ accountId: app.accountId, limit: 1 });
    assert.equal(order?.id, id);
    const cancelled = await owner.post(`/account/orders/${id}/cancel`, {});
    assert.match(String(cancelled.headers.location), /said=cancelled$/);
    const late = await owner.post(`/account/orders/${id}/cancel`, {});
    assert.equal(late.statusCode, 303, 'cancelled before is cancelled');
  });

  it('sell nothing else, and at no other price', async () => {
    const form = randomUUID();
    for (const [credits, price] of [
      ['2500', '1'],
      ['2501', '5000'],
      ['100', '1000'],
    ] as const) {
      const answer = await owner.post('/account/orders', { form, credits, price });
      assert.equal(answer.statusCode, 422);
      assert.match(answer.body, /not on sale any more at this price/);
    }
    for (const fields of [
      { form: 'x', credits: '2500', price: '5000' },
      { form, credits: '2.5e3', price: '5000' },
      { form, credits: '2500', price: '-5000' },
      { form, credits: '2500' },
    ]) {
      assert.equal((await owner.post('/account/orders', fields)).statusCode, 400);
    }
  });

  it('say when there are too many', async () => {
    const order = () =>
      owner.post('/account/orders', { form: randomUUID(), credits: '2500', price: '5000' });
    for (let index = 0; index < ORDERS_PENDING_MAX; index += 1) {
      assert.equal((await order()).statusCode, 303);
    }
    const refused = await order();
    assert.equal(refused.statusCode, 422);
    assert.match(refused.body, /as many unpaid orders as it may have/);
  });

  it('tell of money that came twice, of refunds, and of credits that stay', async () => {
    const { stores, accountId } = app;
    const order = await paidOrder();
    await stores.orders.pay(order.id, paymentOf(order, { payment: 'again-1' }), PROVIDER);
    const odd = paymentOf(order, { payment: 'odd-1', currency: 'JPY' });
    await stores.orders.pay(order.id, odd, PROVIDER);
    const { available } = (await stores.ledger.balances(accountId)) ?? { available: 0 };
    await stores.ledger.revoke(accountId, available - 100, 'spent');
    await stores.orders.refund(order.id, refundOf(2500), PROVIDER);
    const page = textOf((await viewer.get(`/account/orders/${order.id}`)).body);
    assert.match(page, /Partly refunded/);
    assert.match(page, /More was paid for this order/);
    assert.match(page, /again-1.*The order was paid already/);
    assert.match(page, /odd-1.*5,000 \(JPY\).*Not the price of the order/);
    assert.match(page, /Refunded ¥25.* Credits taken back 100 Not taken back 1,150/);
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

  it('let viewers look, and offer them no change', async () => {
    assert.equal((await viewer.get('/account/orders')).statusCode, 200);
    assert.doesNotMatch((await viewer.get('/account/orders')).body, /orders\/packages/);
    const { id } = await pendingOrder();
    assert.doesNotMatch((await viewer.get(`/account/orders/${id}`)).body, /Cancel the order/);
  });

  it('say that an order is no longer pending', async () => {
    const order = await paidOrder();
    const answer = await owner.post(`/account/orders/${order.id}/cancel`, {});
    assert.equal(answer.statusCode, 422);
    assert.match(answer.body, /not waiting for its payment any more/);
    assert.equal((await app.stores.orders.find(order.id))?.state, 'paid');
  });

  it('sell nothing where nothing is on sale', async t => {
    const none = { ...sales, paymentInstructions: undefined, priceList: 'none' } as const;
    const closed = await openTestApp({ sales: none }, t);
    const person = await signIn(closed);
    const page = await person.get('/account/orders/packages');
    assert.match(page.body, /Nothing is on sale here/);
    const order = await placed(closed.stores, closed.accountId);
    await closed.stores.orders.cancel(closed.accountId, order.id, OPERATOR);
    await paid(closed.stores, closed.accountId);
    const zh = await person.get('/account/orders', { headers: { 'accept-language': 'zh-CN' } });
    assert.equal(zh.statusCode, 200);
  });
});
