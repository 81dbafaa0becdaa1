/** Rows of orders, payments and refunds, and the statements that read them. */
import type { Kysely, Selectable } from 'kysely';
import { type Order, orderStateOf } from '../../domain/account/orders.ts';
import type { Database } from '../database/connect.ts';
import type {
  OrderPaymentsTable,
  OrderRefundsTable,
  OrdersTable,
  Schema,
} from '../database/schema.ts';
import type { OrderPayment, OrderRefund } from './order-store.ts';

/** `db` is the database or a transaction of it. */
export async function readOrder(
  database: Database,
  db: Kysely<Schema>,
  orderId: string,
): Promise<Order | undefined> {
  const row = await db
    .selectFrom('orders')
    .selectAll()
    .select(() => database.nowMs.as('read_at'))
    .where('id', '=', orderId)
    .executeTakeFirst();
  return row && orderFromRow(row);
}

export async function requireOrder(
  database: Database,
  tx: Kysely<Schema>,
  orderId: string,
): Promise<Order> {
  const order = await readOrder(database, tx, orderId);
  // Orders are never removed.
  if (order === undefined) throw new Error(`order ${orderId} has gone`);
  return order;
}

/** @param row with the database's clock, which says whether a pending one has expired */
export function orderFromRow(row: Selectable<OrdersTable> & { readonly read_at: number }): Order {
  const kept = {
    stored: row.state,
    price: row.price,
    refunded: row.refunded,
    expiresAtMs: row.expires_at,
  };
  return {
    ...kept,
    id: row.id,
    accountId: row.account_id,
    list: row.price_list,
    credits: row.credits,
    currency: row.currency,
    state: orderStateOf(kept, row.read_at),
    revoked: row.revoked,
    unrevoked: row.unrevoked,
    createdAtMs: row.created_at,
    paidAtMs: row.paid_at,
    paidBy: row.paid_by,
    payment: row.payment,
    cancelledAtMs: row.cancelled_at,
  };
}

/** All of an order: REFUNDS_MAX bounds them. In the order they were told of. */
export async function readRefunds(db: Kysely<Schema>, orderId: string): Promise<OrderRefund[]> {
  const rows = await db
    .selectFrom('order_refunds')
    .selectAll()
    .where('order_id', '=', orderId)
    .execute();
  return rows
    .map(refundFromRow)
    .sort((a, b) => a.createdAtMs - b.createdAtMs || (a.refund < b.refund ? -1 : 1));
}

function refundFromRow(row: Selectable<OrderRefundsTable>): OrderRefund {
  return {
    refund: row.refund,
    amount: row.amount,
    credits: row.credits,
    revoked: row.revoked,
    toldBy: row.told_by,
    createdAtMs: row.created_at,
    appliedAtMs: row.applied_at,
  };
}

/** All of an order: ODD_PAYMENTS_MAX bounds them. In the order they were told of. */
export async function readPayments(db: Kysely<Schema>, orderId: string): Promise<OrderPayment[]> {
  const rows = await db
    .selectFrom('order_payments')
    .selectAll()
    .where('order_id', '=', orderId)
    .execute();
  return rows
    .map(paymentFromRow)
    .sort((a, b) => a.receivedAtMs - b.receivedAtMs || (a.payment < b.payment ? -1 : 1));
}

function paymentFromRow(row: Selectable<OrderPaymentsTable>): OrderPayment {
  return {
    payment: row.payment,
    amount: row.amount,
    currency: row.currency,
    outcome: row.outcome,
    toldBy: row.told_by,
    receivedAtMs: row.received_at,
  };
}
