/** Notifications of payments at their bounds, and what the operator's metrics hear of them. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Order } from '../../../src/domain/account/orders.ts';
import {
  NOTIFICATIONS_AT_ONCE_MAX,
  ReceivePayment,
  type ReceivePaymentOptions,
  type ToldOutcome,
} from '../../../src/services/sales/receive-payment.ts';
import type { PaymentNotice } from '../../../src/services/sales/signed-notifications.ts';
import { fundedAccount, useStores } from '../../store/fixtures.ts';
import { placed } from '../../store/orders.ts';

const BODY = Buffer.alloc(0);

describe('notifications of payments', () => {
  const { stores } = useStores();

  /** Every message says this, and is proven. */
  function receiver(notice: PaymentNotice, more: Partial<ReceivePaymentOptions> = {}) {
    const provider = { name: 'provider', read: () => notice };
    return new ReceivePayment({ provider, orders: stores.orders, ...more });
  }

  const paymentOf = ({ id, price, currency }: Order, payment = 'pay-1'): PaymentNotice => ({
    kind: 'payment',
    orderId: id,
    payment: { payment, amount: price, currency },
  });

  const codeOf = (received: Promise<unknown>) =>
    received.then(
      () => 'taken',
      (error: { code: string }) => error.code,
    );

  it('are counted by what became of them', async () => {
    const order = await placed(stores, await fundedAccount(stores, 0));
    const told: ToldOutcome[] = [];
    const onTold = (outcome: ToldOutcome) => void told.push(outcome);
    await receiver(paymentOf(order), { onTold }).receive({}, BODY);
    await receiver(paymentOf(order), { onTold }).receive({}, BODY);
    await receiver(paymentOf(order, 'pay-2'), { onTold }).receive({}, BODY);
    const wrong = paymentOf({ ...order, price: 1 }, 'pay-3');
    await codeOf(receiver(wrong, { onTold }).receive({}, BODY));
    assert.deepEqual(told, ['paid', 'already_paid', 'paid_again', 'refused']);
    assert.equal((await stores.orders.find(order.id))?.paidBy, 'provider');
  });

  it('are few at the database at once', async () => {
    const order = await placed(stores, await fundedAccount(stores, 0));
    const gate = Promise.withResolvers<void>();
    const orders: ReceivePaymentOptions['orders'] = {
      pay: async (...args) => {
        await gate.promise;
        return stores.orders.pay(...args);
      },
      refund: stores.orders.refund,
    };
    const busy = receiver(paymentOf(order), { orders });
    const begun = Array.from({ length: NOTIFICATIONS_AT_ONCE_MAX }, () => busy.receive({}, BODY));
    assert.equal(await codeOf(busy.receive({}, BODY)), 'SERVICE_UNAVAILABLE');
    gate.resolve();
    await Promise.all(begun);
    assert.equal(await codeOf(busy.receive({}, BODY)), 'taken');
  });
});
