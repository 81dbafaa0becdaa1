/** A lost answer must not grant or take anything twice. */
import assert from 'node:assert/strict';
import type { ChangingMethod, Fixture } from '@matting/core/test/changing-methods.ts';
import { actionsOf, fundedAccount, movements } from '@matting/core/test/fixtures.ts';
import type { PayOutcome } from '../../orders/pay-order.ts';
import type { RefundOutcome } from '../../orders/refund-order.ts';
import type { Stores } from '../fixtures.ts';
import { newOrder, OPERATOR, PROVIDER, paid, paymentOf, placed, refundOf } from '../orders.ts';

async function paidOrder({ stores }: Fixture<Stores>) {
  const account = await fundedAccount(stores, 0);
  return { account, order: await paid(stores, account) };
}

export const CHANGING_ORDERS: readonly ChangingMethod<Stores>[] = [
  {
    name: 'orders.place',
    arrange: async ({ stores }) => {
      const account = await fundedAccount(stores, 0);
      const order = newOrder(account);
      return {
        act: by => by.orders.place(order, OPERATOR),
        check: async outcome => {
          assert.match((outcome as { kind: string }).kind, /^(already-)?placed$/);
          const orders = await stores.orders.list({ accountId: account, limit: 10 });
          assert.deepEqual(
            [orders.length, orders[0]?.id, orders[0]?.state],
            [1, order.id, 'pending'],
          );
          assert.deepEqual(await actionsOf(stores, account), ['order.placed']);
        },
      };
    },
    again: 'already-placed',
  },
  {
    name: 'orders.cancel',
    arrange: async ({ stores }) => {
      const account = await fundedAccount(stores, 0);
      const { id } = await placed(stores, account);
      return {
        act: by => by.orders.cancel(account, id, OPERATOR),
        check: async outcome => {
          assert.equal((outcome as { kind: string }).kind, 'cancelled');
          assert.equal((await stores.orders.find(id))?.state, 'cancelled');
          assert.deepEqual(await actionsOf(stores, account), ['order.cancelled', 'order.placed']);
        },
      };
    },
    late: async ({ stores }) => {
      const account = await fundedAccount(stores, 0);
      const { id } = await paid(stores, account);
      const act = async (by: Stores) => (await by.orders.cancel(account, id, OPERATOR)).kind;
      return { act, told: 'not-pending' };
    },
  },
  /** A refund waited for the payment, and both commit as one. */
  {
    name: 'orders.pay',
    arrange: async ({ stores, database }) => {
      const account = await fundedAccount(stores, 0);
      const order = await placed(stores, account);
      await stores.orders.refund(order.id, refundOf(1000), PROVIDER);
      return {
        act: by => by.orders.pay(order.id, paymentOf(order), PROVIDER),
        check: async outcome => {
          assert.match((outcome as PayOutcome).kind, /^(already-)?paid$/);
          assert.deepEqual(await movements(database, account), [
            `grant order:${order.id} 2500`,
            `revoke refund:${order.id}:refund-1 500`,
          ]);
          const { payments } = await stores.orders.details(order.id);
          assert.deepEqual(
            payments.map(payment => payment.outcome),
            ['accepted'],
          );
          const actions = ['order.paid', 'order.placed', 'order.refund_waits', 'order.refunded'];
          assert.deepEqual(await actionsOf(stores, account), actions);
        },
      };
    },
    again: 'already-paid',
  },
  {
    name: 'orders.refund',
    arrange: async fixture => {
      const { account, order } = await paidOrder(fixture);
      const { stores, database } = fixture;
      return {
        act: by => by.orders.refund(order.id, refundOf(1001), PROVIDER),
        check: async outcome => {
          assert.match((outcome as RefundOutcome).kind, /^(already-)?refunded$/);
          const { refunded, revoked } = (await stores.orders.find(order.id)) ?? {};
          assert.deepEqual([refunded, revoked], [1001, 501]);
          assert.deepEqual(await movements(database, account), [
            `grant order:${order.id} 2500`,
            `revoke refund:${order.id}:refund-1 501`,
          ]);
          const actions = ['order.paid', 'order.placed', 'order.refunded'];
          assert.deepEqual(await actionsOf(stores, account), actions);
        },
      };
    },
    again: 'already-refunded',
  },
];
