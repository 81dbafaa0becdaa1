import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import path from 'node:path';
import { assertBalanced, fundedAccount } from '@matting/core/test/fixtures.ts';
import { imageBody } from '@matting/core/test/support/test-app.ts';
import { signMessage } from '@matting/http/outgoing/webhook-signature.ts';
import { readEnvironment } from '@matting/program/env.ts';
import ava from 'ava';
import { portal } from '../portal.ts';
import { type PortalSettings, readPortalSettings } from '../settings.ts';
import { paid, placed } from '../test/orders.ts';
import { openTestApp, portalOf, useTestApp } from '../test/portal-app.ts';
import { type SignedInBrowser, signIn } from '../test/signed-in-browser.ts';
import type { Order } from './order-rules.ts';
import { recommendedOf, savingOf } from './package-pages.ts';

const NOTIFICATIONS_A_MINUTE_MAX = 600;
const test = ava.serial;

const SECRET = 'a secret of the provider'.replaceAll(' ', '-');

let account: string;
let owner: SignedInBrowser;
let viewer: SignedInBrowser;
const sales = {
  priceList: 'credit',
  paymentSecret: SECRET,
  paymentInstructions: 'Bank <b>of</b> Somewhere\nAccount 7',
} as const;
const app = useTestApp(test, { credits: 1000, settings: { portal: { sales } } }, async () => {
  await app.stores.ledger.revoke(app.accountId, 10, '=cmd()');
  owner = await signIn(app);
  viewer = await signIn(app, { role: 'viewer' });
  account = await fundedAccount(app.stores, 0);
});

const textOf = (html: string) => html.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');

test('the page of credits › shows the balance and the ledger, of a kind and of days', async t => {
  const today = new Date().toISOString().slice(0, 10);
  const page = await viewer.get('/account/credits');
  t.is(page.statusCode, 200);
  t.regex(textOf(page.body), /Available 990 .* Reserved 0/);
  t.regex(textOf(page.body), /Removed =cmd\(\) [^−]*−10 990 .*Added test [^+]*\+1,000 1,000 /);
  const granted = await viewer.get(`/account/credits?kind=grant&from=${today}&to=${today}`);
  t.regex(textOf(granted.body), /Added test .*\+1,000/);
  t.notRegex(granted.body, /=cmd/);
  const before = await viewer.get('/account/credits?to=2020-01-31');
  t.notRegex(textOf(before.body), /\+1,000/);
});

test('the page of credits › has one line an image, and what was held on demand', async t => {
  const own = await openTestApp({ credits: 10, settings: { portal: { sales } } }, t);
  const person = await signIn(own);
  const submit = async () => (await own.post('/v1/matting/jobs', imageBody())).json().job_id;
  const [done, failed, open] = [await submit(), await submit(), await submit()];
  await own.succeedJob(done);
  await own.failJob(failed, { code: 'PROCESSING_FAILED', detail: 'no', retryable: false });
  const order = await paid(own.stores, own.accountId);
  const lines = async (query: string) =>
    linesOf((await person.get(`/account/credits${query}`)).body);
  const image = (id: string, label: string) => `${label} ${id.slice(0, 8)}`;
  t.deepEqual(await lines(''), [
    `Order ${order.reference} +2,500 2,509`,
    `${image(done, 'Image')} −1 9`,
    'Added test +10 10',
  ]);
  t.deepEqual(
    (await lines('?reservations=1')).sort(),
    [
      'Added test +10 10',
      `${image(done, 'Image')} −1 9`,
      `Order ${order.reference} +2,500 2,509`,
      ...[done, failed, open].map(id => `${image(id, 'Reserved for an image')} −1 10`),
      `${image(failed, 'Returned, the image failed')} +1 9`,
    ].sort(),
  );
  t.deepEqual(await lines('?kind=charge'), [`${image(done, 'Image')} −1`]);
});

function linesOf(page: string): string[] {
  const body = /<tbody>(.*?)<\/tbody>/s.exec(page)?.[1] ?? '';
  return [...body.matchAll(/<tr>(.*?)<\/tr>/gs)].map(([, row = '']) =>
    textOf(row.replace(/<time.*?<\/time>/s, '')).trim(),
  );
}

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
  const { body } = await owner.get('/account/orders/packages');
  t.false(body.includes('action="/account/orders"'), 'nothing is ordered without a review');
  const [, review = ''] = /href="(\/account\/orders\/new[^"]*)"/.exec(body) ?? [];
  const { csrf, ...fields } = await formOf(review.replaceAll('&amp;', '&'));
  t.deepEqual([fields.credits, fields.price], ['2500', '5000']);
  t.is((await app.stores.orders.list({ accountId: app.accountId, limit: 1 })).length, 0);
  const first = await owner.post('/account/orders', fields);
  t.is(first.statusCode, 303);
  const twice = await owner.post('/account/orders', fields);
  t.is(twice.headers.location, first.headers.location);
  const url = String(first.headers.location);
  const page = await owner.get(url);
  t.regex(textOf(page.body), /Order placed.*CNY.50\.00.*Waiting for payment.*2,500/);
  t.regex(page.body, /Bank &lt;b>of/);
  const id = /orders\/([^?]+)/.exec(url)?.[1] ?? '';
  const [order] = await app.stores.orders.list({ accountId: app.accountId, limit: 1 });
  t.is(order?.id, id);
  t.truthy(order?.reference && page.body.includes(`data-copy="${order.reference}"`));
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

test('the pages of orders › refuse what was reviewed before the price list changed', async t => {
  const images = { ...sales, priceList: 'image' } as const;
  const changed = await openTestApp({ settings: { portal: { sales: images } } }, t);
  const person = await signIn(changed);
  const reviewed = '/account/orders/new?credits=2500&price=5000';
  t.is((await owner.get(reviewed)).statusCode, 200);
  const late = await person.get(reviewed);
  t.is(late.statusCode, 422);
  t.regex(textOf(late.body), /no longer sold at this price/);
  t.false(late.body.includes('action="/account/orders"'));
  const form = randomUUID();
  const sent = await person.post('/account/orders', { form, credits: '2500', price: '5000' });
  t.is(sent.statusCode, 422);
  t.deepEqual(await changed.stores.orders.list({ accountId: changed.accountId, limit: 1 }), []);
  const bare = await owner.get('/account/orders/new');
  t.is(bare.statusCode, 200);
  t.regex(bare.body, /href="\/account\/orders\/new\?credits=2500&amp;price=5000"/);
  for (const query of ['?credits=2500', '?credits=2500&price=50.00', '?credits=x&price=5000']) {
    t.is((await owner.get(`/account/orders/new${query}`)).statusCode, 400, query);
  }
  t.is((await viewer.get(reviewed)).statusCode, 403);
});

test('the pages of orders › say what a package saves, and recommend one that is used up within a year', t => {
  const packages = [
    { credits: 100, price: 1000 },
    { credits: 500, price: 4500 },
    { credits: 1200, price: 8001 },
  ];
  t.deepEqual(
    packages.map(one => savingOf(one, packages)),
    [0, 10, 33],
  );
  const creditsAt = (pace: number | undefined) => recommendedOf(packages, pace)?.credits;
  // 500 credits last a year at 1.37 a day.
  t.deepEqual([undefined, 0.1, 1.36, 1.37, 3.2, 3.3, 1000].map(creditsAt), [
    ...[100, 100, 100, 500, 500, 1200, 1200],
  ]);
  t.is(recommendedOf([], 1), undefined);
});

test('the pages of orders › say that an order is no longer pending', async t => {
  const order = await paid(app.stores, app.accountId);
  const answer = await owner.post(`/account/orders/${order.id}/cancel`, {});
  t.is(answer.statusCode, 422);
  t.is((await app.stores.orders.find(order.id))?.state, 'paid');
});

test('the pages of orders › sell nothing where nothing is on sale', async t => {
  const none = { ...sales, paymentInstructions: undefined, priceList: 'none' } as const;
  const closed = await openTestApp({ settings: { portal: { sales: none } } }, t);
  const person = await signIn(closed);
  const link = 'href="/account/orders/packages"';
  for (const path of ['/account/orders/packages', '/account/credits', '/account/orders']) {
    const { statusCode, body } = await person.get(path);
    t.deepEqual([statusCode, body.includes(link)], [200, false], path);
    t.false(body.includes('action="/account/orders"'));
  }
  const own = await signIn(app);
  t.true((await own.get('/account/credits')).body.includes(link), 'where something is');
});

const PATH = '/account/payments/notifications';

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
  const answers = outcomes.map(answer => [answer.statusCode, answer.json().outcome]);
  t.deepEqual(answers.map(String).sort(), ['200,already_paid', '200,already_paid', '200,paid']);
  t.deepEqual(outcomes[0]?.json().order_id, order.id);
  t.is((await app.stores.orders.find(order.id))?.paidBy, 'notification');
  await assertBalanced(app.stores, account);
});

test('a notification of a payment › names its order by the reference that the payer wrote', async t => {
  const order = await placed(app.stores, account);
  const answer = await send(paidEvent(order, { order_id: order.reference }));
  t.deepEqual([answer.statusCode, answer.json().outcome], [200, 'paid']);
  t.is((await app.stores.orders.find(order.id))?.state, 'paid');
  const unknown = await send(paidEvent(order, { order_id: 'M-2222-22' }));
  t.is(unknown.statusCode, 404);
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
  const body = Buffer.from(JSON.stringify(event));
  const signed = signMessage(Buffer.from(SECRET), { id: 'evt', timestampS: nowS, body });
  const spaced = await send(JSON.stringify(event, null, 1), { headers: { ...signed } });
  t.is(spaced.statusCode, 400);
  t.is((await app.stores.orders.find(order.id))?.state, 'pending');
});

test('a notification of a payment › names every field that makes no sense', async t => {
  const order = await placed(app.stores, account);
  const good = paidEvent(order);
  const bad: [unknown, string[]][] = [
    [{ ...good, type: 'order.shipped' }, ['type']],
    [{ ...good, more: 1 }, ['more']],
    [
      { ...good, data: [] },
      ['data', 'data.order_id', 'data.payment_id', 'data.amount', 'data.currency'],
    ],
    [paidEvent(order, { order_id: '../1' }), ['data.order_id']],
    [paidEvent(order, { payment_id: 'x'.repeat(65) }), ['data.payment_id']],
    [paidEvent(order, { amount: 50.5 }), ['data.amount']],
    [paidEvent(order, { amount: '5000' }), ['data.amount']],
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

const example = path.resolve(import.meta.dirname, '../../../docs/examples/tell-payment.ts');

test('the example of the docs › tells of a payment', async t => {
  const own = await openTestApp({ settings: { portal: { sales } } }, t);
  const url = await own.app.listen({ port: 0, host: '127.0.0.1' });
  const { id } = await placed(own.stores, own.accountId);
  const tell = async (...args: string[]) => {
    const env = { PATH: process.env.PATH, PAYMENT_SECRET: SECRET };
    const child = spawn(process.execPath, [example, url, ...args], { env });
    const output: Buffer[] = [];
    child.stdout.on('data', chunk => output.push(chunk));
    const [code] = await once(child, 'close');
    return `${code} ${Buffer.concat(output)}`;
  };
  t.regex(await tell('paid', id, 'pay-1', '5000', 'CNY'), /^0 200 .*"outcome":"paid"/);
  t.is((await own.stores.orders.find(id))?.state, 'paid');
});

test('notifications of payments › are nowhere where no provider is configured', async t => {
  const without = await openTestApp({}, t);
  const answer = await without.app.inject({ method: 'POST', url: PATH, payload: '{}' });
  t.deepEqual([answer.statusCode, answer.json().code], [404, 'NOT_FOUND']);
});

test('notifications of payments › are told to come later beyond their rate; forged ones do not spend it', async t => {
  const own = await openTestApp({ settings: { portal: { sales } } }, t);
  const { receivePayment } = portalOf(own);
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

test('credits are on sale where the operator says how to pay, and an error of the API says so', t => {
  const sells = (changes: object) =>
    portal.sells?.({ sales: { ...sales, ...changes } } as PortalSettings);
  t.true(sells({}));
  t.true(sells({ paymentInstructions: undefined, paymentSecret: 'a secret of 24 letters...' }));
  t.false(sells({ paymentInstructions: undefined, paymentSecret: undefined }));
  t.false(sells({ priceList: 'none' }));
});

test('prices show where the operator says how to pay, or names a list', t => {
  const listOf = (env: Record<string, string>) =>
    readEnvironment(env, reader => readPortalSettings(reader, 'https://matting.example').sales)
      .priceList;
  t.is(listOf({}), 'none');
  t.is(listOf({ MATTING_PAYMENT_INSTRUCTIONS: 'Bank 1' }), 'credit');
  t.is(listOf({ MATTING_PAYMENT_SECRET: 'a-secret-of-24-letters-or-more' }), 'credit');
  t.is(listOf({ MATTING_PAYMENT_INSTRUCTIONS: 'Bank 1', MATTING_PRICE_LIST: 'none' }), 'none');
  t.is(listOf({ MATTING_PRICE_LIST: 'image' }), 'image');
});
