import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { ActingPerson } from '@matting/accounts/audit-log.ts';
import {
  assertBalanced,
  fundedAccount,
  IMAGE_FAULT,
  movements,
  newJob,
  running,
  SERVICE_FAULT,
  submitted,
  successOf,
} from '@matting/core/test/fixtures.ts';
import { at } from '@matting/test-support/at.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import ava from 'ava';
import { onStores, onStoresInCi } from '../test/fixtures.ts';
import {
  aged,
  newOrder,
  OPERATOR,
  PROVIDER,
  paid,
  passedRefund,
  paymentOf,
  placed,
  refundOf,
} from '../test/orders.ts';
import {
  grantReferenceOf,
  ODD_PAYMENTS_MAX,
  ORDERS_A_DAY_MAX,
  ORDERS_PENDING_MAX,
  orderReferenceOf,
  REFUNDS_MAX,
  releaseReferenceOf,
} from './order-rules.ts';

const test = ava.serial;

onStores(test, 'orders', (test, { database, stores, replica }) => {
  const others = replica();

  test('grant their credits once, whoever tells of the payment and however often', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await placed(stores, account);
    const paid = paymentOf(order);
    const outcomes = await Promise.all(
      [stores, others, stores, others].map(by => by.orders.pay(order.id, paid, PROVIDER)),
    );
    const kinds = outcomes.map(({ kind }) => kind).sort();
    t.deepEqual(kinds, ['already-paid', 'already-paid', 'already-paid', 'paid']);
    t.deepEqual(await movements(database, account), [`grant order:${order.id} 2500`]);
    t.deepEqual(await stores.ledger.balances(account), { available: 2500, reserved: 0 });
    await assertBalanced(stores, account);
  });

  test('are paid by money that came late: expired or cancelled', async t => {
    const account = await fundedAccount(stores, 0);
    const expired = await placed(stores, account);
    await aged(database, expired.id, 8);
    t.is((await stores.orders.find(expired.id))?.state, 'expired');
    const cancelled = await placed(stores, account);
    await stores.orders.cancel(account, cancelled.id, OPERATOR);
    for (const order of [expired, cancelled]) {
      const outcome = await stores.orders.pay(order.id, paymentOf(order), PROVIDER);
      t.deepEqual([outcome.kind, 'late' in outcome && outcome.late], ['paid', true]);
    }
    t.is((await stores.ledger.balances(account))?.available, 5000);
    const timely = await placed(stores, account);
    const outcome = await stores.orders.pay(timely.id, paymentOf(timely), PROVIDER);
    t.deepEqual([outcome.kind, 'late' in outcome && outcome.late], ['paid', false]);
  });

  test('are paid or cancelled where both come at once, and money wins', async t => {
    const account = await fundedAccount(stores, 0);
    for (let round = 0; round < 5; round += 1) {
      const order = await placed(stores, account);
      const [outcome] = await Promise.all([
        stores.orders.pay(order.id, paymentOf(order), PROVIDER),
        others.orders.cancel(account, order.id, OPERATOR),
      ]);
      t.is(outcome.kind, 'paid');
      t.is((await stores.orders.find(order.id))?.state, 'paid');
    }
    t.is((await stores.ledger.balances(account))?.available, 5 * 2500);
  });

  test('grant nothing for another sum or currency, and keep each once', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await placed(stores, account);
    const wrong = [
      { amount: order.price - 1, field: 'amount' },
      { amount: order.price + 1, field: 'amount' },
      { currency: 'JPY', field: 'currency' },
    ];
    for (const { field, ...overrides } of [...wrong, ...wrong]) {
      const paid = paymentOf(order, { payment: `${field}`, ...overrides });
      const outcome = await stores.orders.pay(order.id, paid, PROVIDER);
      t.deepEqual([outcome.kind, 'field' in outcome && outcome.field], ['differs', field]);
    }
    const { payments } = await stores.orders.details(order.id);
    t.deepEqual(payments.map(({ payment, outcome }) => `${payment} ${outcome}`).sort(), [
      'amount differs',
      'currency differs',
    ]);
    t.deepEqual(await movements(database, account), []);
    // The same payment comes again, corrected.
    const paid = paymentOf(order, { payment: 'amount' });
    t.is((await stores.orders.pay(order.id, paid, PROVIDER)).kind, 'paid');
  });

  test('keep a second payment for the operator, and no more of them than their bound', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await paid(stores, account);
    for (let index = 0; index < ODD_PAYMENTS_MAX + 3; index += 1) {
      const paid = paymentOf(order, { payment: `again-${index}` });
      t.is((await stores.orders.pay(order.id, paid, PROVIDER)).kind, 'paid-again');
    }
    const { payments } = await stores.orders.details(order.id);
    t.is(payments.length, 1 + ODD_PAYMENTS_MAX);
    t.is(payments.filter(({ outcome }) => outcome === 'accepted').length, 1);
    t.is((await stores.ledger.balances(account))?.available, 2500);
  });

  test('are bounded in number, pending and a day, however many come at once', async t => {
    const account = await fundedAccount(stores, 0);
    for (let index = 1; index < ORDERS_PENDING_MAX; index += 1) await placed(stores, account);
    // Only one more fits. The first waits half a second for a second one to get as far, which only
    // a cluster that certifies allows. There it is counted again.
    const mayMeet = database.engine.conflicts === 'certification';
    let authorized = 0;
    const second = new AbortController();
    const person: ActingPerson = {
      kind: 'person',
      userId: randomUUID(),
      mail: 'owner@example.org',
      address: '192.0.2.7',
      async refusal() {
        authorized += 1;
        if (authorized > 1) second.abort();
        else await delay(500, undefined, second).catch(() => mayMeet || t.fail('two at once'));
        return undefined;
      },
    };
    const tries = Array.from({ length: 5 }, (_, index) =>
      (index % 2 === 0 ? stores : others).orders.place(newOrder(account), person),
    );
    const kinds = (await Promise.all(tries)).map(({ kind }) => kind);
    t.is(kinds.filter(kind => kind === 'placed').length, 1);
    t.is(kinds.filter(kind => kind === 'too-many-pending').length, 4);
    // An expired order is not pending, and stops counting after a day.
    for (const { id } of await stores.orders.list({ accountId: account, limit: 50 })) {
      await aged(database, id, 8);
    }
    for (let index = 0; index < ORDERS_A_DAY_MAX; index += 1) {
      const { id } = await placed(stores, account);
      await stores.orders.cancel(account, id, OPERATOR);
    }
    const refused = await stores.orders.place(newOrder(account), OPERATOR);
    t.is(refused.kind, 'too-many-today');
    const unknown = await stores.orders.place(newOrder('nobody'), OPERATOR);
    t.is(unknown.kind, 'unknown-account');
  });

  test('are cancelled by their own account alone, while they are pending', async t => {
    const [account, stranger] = [await fundedAccount(stores, 0), await fundedAccount(stores, 0)];
    const { id } = await placed(stores, account);
    t.is((await stores.orders.cancel(stranger, id, OPERATOR)).kind, 'unknown');
    t.is((await stores.orders.find(id, stranger))?.id, undefined);
    await aged(database, id, 8);
    t.is((await stores.orders.cancel(account, id, OPERATOR)).kind, 'not-pending');
    for (const odd of ['', 'é', "' or 1=1"]) {
      t.is((await stores.orders.cancel(account, odd, OPERATOR)).kind, 'unknown');
      t.is((await stores.orders.pay(odd, paymentOf(newOrder('a')), PROVIDER)).kind, 'unknown');
      t.is((await stores.orders.refund(odd, refundOf(1), PROVIDER)).kind, 'unknown');
    }
  });

  test('take back what is available, never what jobs hold, and say the rest', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await paid(stores, account);
    await stores.ledger.revoke(account, 2490, 'spent elsewhere');
    await submitted(stores, newJob(account));
    await submitted(stores, newJob(account));
    const outcome = await stores.orders.refund(order.id, refundOf(undefined), PROVIDER);
    assert.ok(outcome.kind === 'refunded');
    const { revoked, unrevoked, state } = outcome.order;
    t.deepEqual([revoked, unrevoked, state], [8, 2492, 'refunded']);
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 2 });
    await assertBalanced(stores, account);
  });

  test('take what a refund left with open jobs as they fail, and nothing of later jobs', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await paid(stores, account);
    await stores.ledger.revoke(account, 2495, 'spent elsewhere');
    const open = [];
    for (let index = 0; index < 4; index += 1) open.push(await running(stores, newJob(account)));
    const [failing, doomed, charged, last] = open.map(({ claim }) => claim);
    assert.ok(failing && doomed && charged && last);
    const outcome = await stores.orders.refund(order.id, refundOf(undefined), PROVIDER);
    assert.ok(outcome.kind === 'refunded');
    t.deepEqual([outcome.order.revoked, outcome.order.unrevoked], [1, 2499]);
    await stores.ledger.grant(account, 2, 'bought anew');
    await passedRefund(database, order.id);
    const later = await running(stores, newJob(account));
    // Two replicas do this at once, and each call comes twice.
    const ends = await Promise.all([
      stores.queue.fail(failing, IMAGE_FAULT),
      others.queue.fail(failing, IMAGE_FAULT),
      others.queue.fail(doomed, SERVICE_FAULT),
      stores.queue.fail(doomed, SERVICE_FAULT),
      stores.queue.succeed(charged, successOf(charged)),
      others.queue.fail(later.claim, IMAGE_FAULT),
    ]);
    t.deepEqual(new Set(ends), new Set([true]));
    // If others overtook a job's end twice, the sweep settles it.
    await stores.unsettled.repair(100);
    t.deepEqual(await stores.ledger.balances(account), { available: 2, reserved: 1 });
    const found = await stores.orders.find(order.id);
    t.deepEqual([found?.revoked, found?.unrevoked], [3, 2497]);
    const { refunds } = await stores.orders.details(order.id);
    t.deepEqual(
      refunds.map(({ revoked }) => revoked),
      [1],
      'what was taken at the refund',
    );
    const taken = (await movements(database, account)).filter(one => one.includes('released:'));
    t.deepEqual(
      taken,
      [failing, doomed]
        .map(({ jobId }) => `revoke ${releaseReferenceOf(order.id, jobId)} 1`)
        .sort(),
    );
    await assertBalanced(stores, account);
    t.truthy(await stores.queue.fail(last, IMAGE_FAULT));
    t.deepEqual(await stores.ledger.balances(account), { available: 2, reserved: 0 });
    await assertBalanced(stores, account);
  });

  test('take no more of a release than one refund left, the earliest first', async t => {
    const account = await fundedAccount(stores, 0);
    const [first, second] = [await paid(stores, account), await paid(stores, account)];
    await stores.ledger.revoke(account, 4998, 'spent elsewhere');
    const one = await running(stores, newJob(account));
    const two = await running(stores, newJob(account));
    // Two fen are one credit: each order lacks one.
    for (const order of [first, second]) {
      await stores.orders.refund(order.id, refundOf(2), PROVIDER);
      await passedRefund(database, order.id);
    }
    await stores.ledger.grant(account, 1, 'a gift');
    for (const { claim } of [one, two]) t.truthy(await stores.queue.fail(claim, IMAGE_FAULT));
    t.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
    for (const order of [first, second]) {
      const found = await stores.orders.find(order.id);
      t.deepEqual([found?.revoked, found?.unrevoked], [1, 0]);
    }
    const next = await running(stores, newJob(account));
    t.truthy(await stores.queue.fail(next.claim, IMAGE_FAULT));
    t.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
    await assertBalanced(stores, account);
  });

  test('refund each refund once, and no more than their price', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await paid(stores, account);
    const refund = (amount: number, name: string, by = stores) =>
      by.orders.refund(order.id, refundOf(amount, name), PROVIDER);
    const twice = await Promise.all([refund(2000, 'a'), refund(2000, 'a', others)]);
    t.deepEqual(twice.map(({ kind }) => kind).sort(), ['already-refunded', 'refunded']);
    t.is((await refund(1000, 'a')).kind, 'refund-conflict');
    const more = await Promise.all([refund(2000, 'b'), refund(2000, 'c', others)]);
    t.deepEqual(more.map(({ kind }) => kind).sort(), ['refunded', 'too-much']);
    const yen = { ...refundOf(1000, 'd'), currency: 'JPY' };
    const outcome = await stores.orders.refund(order.id, yen, PROVIDER);
    t.is(outcome.kind, 'currency-differs');
    t.is((await refund(1000, 'e')).kind, 'refunded');
    t.is((await refund(1, 'f')).kind, 'too-much');
    t.is((await stores.ledger.balances(account))?.available, 0);
    await assertBalanced(stores, account);
  });

  test('have no more refunds than their bound', async t => {
    const order = await paid(stores, await fundedAccount(stores, 0));
    for (let index = 0; index < REFUNDS_MAX; index += 1) {
      const outcome = await stores.orders.refund(order.id, refundOf(1, `r${index}`), PROVIDER);
      t.is(outcome.kind, 'refunded');
    }
    const refused = await stores.orders.refund(order.id, refundOf(1), PROVIDER);
    t.is(refused.kind, 'too-many');
  });

  test('wait with a refund for its payment, or refuse it where it may not wait', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await placed(stores, account);
    const reported = { ...refundOf(2500), mayWait: false };
    t.is((await stores.orders.refund(order.id, reported, OPERATOR)).kind, 'not-paid');
    t.is((await stores.orders.refund(order.id, refundOf(2500), PROVIDER)).kind, 'waiting');
    t.is((await stores.orders.refund(order.id, refundOf(2500), PROVIDER)).kind, 'waiting');
    const more = await stores.orders.refund(order.id, refundOf(2501, 'more'), PROVIDER);
    t.is(more.kind, 'too-much');
    const outcome = await stores.orders.pay(order.id, paymentOf(order), PROVIDER);
    assert.ok(outcome.kind === 'paid');
    t.is(outcome.order.state, 'partly-refunded');
    t.is((await stores.ledger.balances(account))?.available, 1250);
  });

  test('have a reference that payers write, by which they are found, paid and refunded', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await placed(stores, account);
    const { reference } = order;
    assert.ok(reference);
    const typed = ` ${reference.toLowerCase().replaceAll('-', ' ')} `;
    t.is((await stores.orders.find(typed))?.id, order.id);
    t.is((await stores.orders.find(reference, account))?.id, order.id);
    t.is(await stores.orders.find(reference, 'another'), undefined);
    t.is((await stores.orders.pay(reference, paymentOf(order), PROVIDER)).kind, 'paid');
    t.is((await stores.orders.pay(order.id, paymentOf(order), PROVIDER)).kind, 'already-paid');
    t.is((await stores.orders.refund(typed, refundOf(2), PROVIDER)).kind, 'refunded');
    t.deepEqual(await stores.ledger.balances(account), { available: 2499, reserved: 0 });
    const found = await stores.orders.references(account, [order.id, randomUUID()]);
    t.deepEqual([...found], [[order.id, reference]]);
    t.is((await stores.orders.references('another', [order.id])).size, 0);
  });

  test('have a reference of their own, also where another order drew the same', async t => {
    const account = await fundedAccount(stores, 0);
    const id = randomUUID();
    const taken = await placed(stores, account);
    await database.kysely
      .updateTable('orders')
      .set({ reference: orderReferenceOf(id, 1) })
      .where('id', '=', taken.id)
      .execute();
    const order = await placed(stores, account, { id });
    t.is(order.reference, orderReferenceOf(id, 2));
    t.is((await stores.orders.find(orderReferenceOf(id, 1)))?.id, taken.id);
    // Orders that are older than references have none.
    const none = database.kysely.updateTable('orders').set({ reference: null });
    await none.where('account_id', '=', account).execute();
    t.is((await stores.orders.find(id))?.reference, null);
  });

  test('have references in the ledger that nobody else enters', async t => {
    const account = await fundedAccount(stores, 0);
    const order = await placed(stores, account);
    const reference = grantReferenceOf(order.id);
    const released = releaseReferenceOf(order.id, randomUUID());
    for (const own of [reference, released, `lost:${order.id}`]) {
      await t.throwsAsync(stores.ledger.grant(account, 5, own), { message: /lost results alone/ });
    }
    t.is((await stores.orders.pay(order.id, paymentOf(order), PROVIDER)).kind, 'paid');
  });
});

onStoresInCi(test, "an account's ledger", (test, { database, stores }) => {
  test('is listed from the latest entry on, by kind and time, in pages without a gap', async t => {
    const account = await fundedAccount(stores, 10);
    await fundedAccount(stores, 10);
    for (const reference of ['a', 'b', 'c']) await stores.ledger.grant(account, 1, reference);
    await stores.ledger.revoke(account, 2, 'd');
    // All but the first have one instant, so the page must continue among them.
    await database.kysely
      .updateTable('ledger_entries')
      .set({ created_at: 1000 })
      .where('account_id', '=', account)
      .where('reference', '!=', 'first')
      .execute();
    const all = await stores.ledger.list(account, { limit: 50 });
    t.deepEqual([all.length, all[0]?.reference], [5, 'first']);
    const pages = [];
    for (let after = all[0]; after !== undefined; ) {
      const [next] = await stores.ledger.list(account, { limit: 1, after });
      if (next !== undefined) pages.push(next);
      after = next;
    }
    t.deepEqual(pages, all.slice(1));
    const list = async (page: object) =>
      (await stores.ledger.list(account, { limit: 50, ...page })).map(one => one.reference).sort();
    t.deepEqual(await list({ kind: 'grant' }), ['a', 'b', 'c', 'first']);
    t.deepEqual(await list({ kind: 'revoke' }), ['d']);
    t.deepEqual(await list({ fromMs: 1001 }), ['first']);
    t.deepEqual(await list({ beforeMs: 1001 }), ['a', 'b', 'c', 'd']);
    t.deepEqual(await list({ beforeMs: 1000 }), []);
    t.deepEqual(await list({ beforeMs: 1000, after: all[0] }), []);
    t.deepEqual(await stores.ledger.list('é', { limit: 50 }), []);
  });
});

const RUNS = 25;

type Report = 'pay' | 'cancel' | 'a' | 'b';

interface Case {
  readonly credits: number;
  readonly price: number;
  /** The refunds a and b are together at most the price. */
  readonly refunds: Readonly<Record<'a' | 'b', number>>;
  /** Reports of an inner list come at once, the lists one after the other. */
  readonly steps: readonly (readonly Report[])[];
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    credits: fc.integer({ min: 1, max: 5000 }),
    price: fc.integer({ min: 2, max: 5000 }),
    first: fc.double({ min: 0, max: 1, noNaN: true }),
    second: fc.double({ min: 0, max: 1, noNaN: true }),
    extra: fc.array(fc.constantFrom<Report>('pay', 'cancel', 'a', 'b'), { maxLength: 4 }),
    sizes: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 8, maxLength: 8 }),
    order: fc.infiniteStream(fc.nat(1000)),
  })
  .map(({ credits, price, first, second, extra, sizes, order }) => {
    const a = 1 + Math.floor(first * (price - 2));
    const b = 1 + Math.floor(second * (price - a - 1));
    const reports: Report[] = ['pay', 'a', 'b', ...extra];
    const shuffled: Report[] = [];
    for (const pick of order) {
      if (reports.length === 0) break;
      shuffled.push(...reports.splice(pick % reports.length, 1));
    }
    const steps = sizes.map(size => shuffled.splice(0, size)).filter(step => step.length > 0);
    return { credits, price, refunds: { a, b }, steps };
  });

onStores(test, 'notifications', (test, { stores, replica }) => {
  const replicas = [stores, replica()];

  test('end the same in any order', async t => {
    // A failing property throws, so that the report has the shortest case and not the first.
    const property = fc.asyncProperty(cases, async ({ credits, price, refunds, steps }) => {
      const account = await fundedAccount(stores, 0);
      const order = await placed(stores, account, { credits, price });
      const send = (report: Report, index: number): Promise<unknown> => {
        const { orders } = at(replicas, index % 2);
        if (report === 'pay') return orders.pay(order.id, paymentOf(order), PROVIDER);
        if (report === 'cancel') return orders.cancel(account, order.id, PROVIDER);
        return orders.refund(order.id, refundOf(refunds[report], report), PROVIDER);
      };
      for (const step of steps) await Promise.all(step.map(send));
      const ended = await stores.orders.find(order.id);
      const paidBack = refunds.a + refunds.b;
      const kept = Math.floor(((price - paidBack) * credits) / price);
      assert.equal(ended?.stored, 'paid');
      assert.equal(ended.refunded, paidBack);
      assert.deepEqual([ended.revoked, ended.unrevoked], [credits - kept, 0]);
      const balances = await stores.ledger.balances(account);
      assert.deepEqual(balances, { available: kept, reserved: 0 });
      await assertBalanced(stores, account);
    });
    await t.notThrowsAsync(fc.assert(property, { numRuns: RUNS }));
  });
});
