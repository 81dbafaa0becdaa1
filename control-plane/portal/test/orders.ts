import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { ServiceActor } from '@matting/accounts/audit-log.ts';
import type { Database } from '@matting/database/database.ts';
import { rowOf } from '@matting/database/test/rows.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import type { Order } from '../orders/order-rules.ts';
import type { ReportedPayment } from '../orders/pay-order.ts';
import type { ReportedRefund } from '../orders/refund-order.ts';
import type { Stores } from './fixtures.ts';

type NewOrder = Parameters<Stores['orders']['place']>[0];

export const OPERATOR: ServiceActor = { kind: 'operator' };
export const PROVIDER: ServiceActor = { kind: 'payment' };

/** 2500 credits for 50 yuan: half a credit a fen. */
export const PACKAGE = {
  list: 'credit',
  credits: 2500,
  price: 5000,
  currency: 'CNY',
} as const;

export function newOrder(accountId: string, overrides: Partial<NewOrder> = {}): NewOrder {
  return { id: randomUUID(), accountId, ...PACKAGE, ...overrides };
}

export async function placed(
  { orders }: Stores,
  accountId: string,
  overrides: Partial<NewOrder> = {},
): Promise<Order> {
  const outcome = await orders.place(newOrder(accountId, overrides), OPERATOR);
  assert.ok(outcome.kind === 'placed', outcome.kind);
  return outcome.order;
}

export function paymentOf(
  order: Pick<Order, 'price' | 'currency'>,
  overrides: Partial<ReportedPayment> = {},
): ReportedPayment {
  const { price: amount, currency } = order;
  return { payment: 'pay-1', amount, currency, reportedBy: 'notification', ...overrides };
}

export function refundOf(amount: number | undefined, refund = 'refund-1'): ReportedRefund {
  return { refund, amount, currency: 'CNY', reportedBy: 'notification', mayWait: true };
}

export async function paid(stores: Stores, accountId: string): Promise<Order> {
  const order = await placed(stores, accountId);
  const outcome = await stores.orders.pay(order.id, paymentOf(order), PROVIDER);
  assert.ok(outcome.kind === 'paid', outcome.kind);
  return outcome.order;
}

export async function aged({ kysely }: Database, orderId: string, days: number): Promise<void> {
  const { created_at: createdAtMs, expires_at: expiresAtMs } = await rowOf(kysely, 'orders', {
    id: orderId,
  });
  const older = {
    created_at: createdAtMs - days * DAY_MS,
    expires_at: expiresAtMs - days * DAY_MS,
  };
  await kysely.updateTable('orders').set(older).where('id', '=', orderId).execute();
}

/** Waits until the database's clock has passed the order's last refund. */
export async function passedRefund(database: Database, orderId: string): Promise<void> {
  for (;;) {
    const row = await database.kysely
      .selectFrom('orders')
      .select(['unrevoked_at'])
      .select(() => database.nowMs.as('now'))
      .where('id', '=', orderId)
      .executeTakeFirstOrThrow();
    assert.ok(row.unrevoked_at !== null, 'the refund left something');
    if (row.now > row.unrevoked_at) return;
  }
}
