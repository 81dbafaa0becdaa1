/** The methods of orders, for statements.test.ts. */
import assert from 'node:assert/strict';
import { orderOf } from '../../../test/support/large-people-and-orders.ts';
import { accountOf } from '../../../test/support/large-tables.ts';
import { ORDERS_A_DAY_MAX } from '../../src/domain/account/orders.ts';
import { bounded, type Exercise } from './exercise.ts';
import { fundedAccount, IMAGE_FAULT, newJob, running } from './fixtures.ts';
import { newOrder, OPERATOR, PROVIDER, paid, paymentOf, placed, refundOf } from './orders.ts';

const VALID_WHY = 'reads the orders of an account that were placed within the time they are valid';
/** Of seven days, and how servers count. */
const VALID_READS_MAX = 2 * 7 * ORDERS_A_DAY_MAX;

export const ORDERS: Readonly<Record<string, Exercise>> = {
  'orders.place': bounded(VALID_READS_MAX, VALID_WHY, async stores => {
    const order = await placed(stores, accountOf(1));
    const again = await stores.orders.place(order, OPERATOR);
    assert.equal(again.kind, 'already-placed');
    // Of its latest orders more than it may have are pending.
    const refused = await stores.orders.place(newOrder(accountOf(0)), OPERATOR);
    assert.equal(refused.kind, 'too-many-pending');
  }),
  'orders.cancel': async stores => {
    const account = await fundedAccount(stores, 0);
    const { id } = await placed(stores, account);
    assert.equal((await stores.orders.cancel(account, id, OPERATOR)).kind, 'cancelled');
  },
  'orders.pay': async stores => {
    const order = await placed(stores, await fundedAccount(stores, 0));
    const told = paymentOf(order);
    await stores.orders.refund(order.id, refundOf(1), PROVIDER);
    const differs = await stores.orders.pay(order.id, { ...told, amount: 1 }, PROVIDER);
    assert.equal(differs.kind, 'differs');
    assert.equal((await stores.orders.pay(order.id, told, PROVIDER)).kind, 'paid');
    const again = await stores.orders.pay(order.id, { ...told, payment: 'another' }, PROVIDER);
    assert.equal(again.kind, 'paid-again');
  },
  'orders.refund': async stores => {
    const account = await fundedAccount(stores, 0);
    const order = await paid(stores, account);
    const { claim } = await running(stores, newJob(account));
    const outcome = await stores.orders.refund(order.id, refundOf(undefined), PROVIDER);
    assert.equal(outcome.kind, 'refunded');
    // What the job held then goes to the refund.
    assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
    assert.equal((await stores.orders.find(order.id))?.unrevoked, 0);
  },
  'orders.find': async ({ orders }) => {
    assert.ok(await orders.find(orderOf(2), accountOf(0)));
    assert.equal(await orders.find(orderOf(2), accountOf(1)), undefined);
  },
  'orders.details': async stores => {
    const order = await paid(stores, await fundedAccount(stores, 0));
    await stores.orders.refund(order.id, refundOf(1), PROVIDER);
    const { payments, refunds } = await stores.orders.details(order.id);
    assert.deepEqual([payments.length, refunds.length], [1, 1]);
  },
  'orders.list': async ({ orders }) => {
    for (const accountId of [undefined, accountOf(0)]) {
      for (const state of [undefined, 'expired', 'cancelled', 'paid'] as const) {
        const filter = { accountId, state, limit: 50 };
        const page = await orders.list(filter);
        assert.equal(page.length, 50, `${accountId} ${state}`);
        const last = page.at(-1)!;
        const after = { atMs: last.expiresAtMs, id: last.id };
        const next = await orders.list({ ...filter, after });
        assert.equal(next.length, 50);
        assert.ok(next.every(({ expiresAtMs }) => expiresAtMs < last.expiresAtMs));
      }
      await orders.list({ accountId, state: 'pending', limit: 50 });
    }
  },
  'ledger.list': async ({ ledger }) => {
    for (const kind of [undefined, 'reserve', 'charge'] as const) {
      const page = await ledger.list(accountOf(0), { kind, limit: 50 });
      assert.equal(page.length, 50);
      const next = await ledger.list(accountOf(0), { kind, limit: 50, after: page.at(-1) });
      assert.equal(next.length, 50);
      assert.ok(next.every(({ id }) => !page.some(one => one.id === id)));
    }
    // Few, and long ago: behind all the others.
    const { length } = await ledger.list(accountOf(1), {
      kind: 'grant',
      beforeMs: 10,
      limit: 50,
    });
    assert.equal(length, 1);
    assert.equal((await ledger.list(accountOf(0), { fromMs: 1e15, limit: 50 })).length, 0);
  },
};
