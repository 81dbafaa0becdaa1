/**
 * Orders of a service that has sold for a year, beside the accounts of large-tables.ts: half of
 * them the first account's, nearly all of them paid, cancelled or expired; their payments, and of
 * one in fifty a refund.
 */
import { type Insertable, sql } from 'kysely';
import type { Database } from '../../control-plane/src/store/database/connect.ts';
import type { Schema } from '../../control-plane/src/store/database/schema.ts';
import { accountOf } from './large-tables.ts';

const ORDERS = 3000;
const CHUNK_ROWS = 200;
const DAY_MS = 86_400_000;
const VALID_MS = 7 * DAY_MS;
/** Between two orders. */
const STEP_MS = (365 * DAY_MS) / ORDERS;
const REFUNDED_OF = 50;
const REFUND = { amount: 100, credits: 50, revoked: 50 };

export const orderOf = (index: number) =>
  `00000000-0000-4000-d000-${index.toString(16).padStart(12, '0')}`;

type Table = 'orders' | 'order_payments' | 'order_refunds';

/** Of tables that hold nothing yet. */
export async function fillLargeOrders(database: Database): Promise<void> {
  const nowMs = Date.now();
  const orders = Array.from({ length: ORDERS }, (_, index) => orderRow(index, nowMs));
  await fill(database, 'orders', orders);
  const paid = orders.filter(({ state }) => state === 'paid');
  await fill(database, 'order_payments', paid.map(paymentRow));
  await fill(
    database,
    'order_refunds',
    orders.filter(({ refunded }) => refunded > 0).map(refundRow),
  );
}

async function fill<T extends Table>(
  { kysely, dialect }: Database,
  table: T,
  rows: readonly Insertable<Schema[T]>[],
): Promise<void> {
  for (let from = 0; from < rows.length; from += CHUNK_ROWS) {
    await kysely
      .insertInto(table)
      .values(rows.slice(from, from + CHUNK_ROWS))
      .execute();
  }
  const analyze = dialect === 'sqlite' ? 'analyze' : 'analyze table';
  await sql`${sql.raw(analyze)} ${sql.table(table)}`.execute(kysely);
}

/** The last is the latest. Of a hundred 60 are paid, 20 cancelled, 20 were left to expire. */
function orderRow(index: number, nowMs: number): Schema['orders'] {
  const createdAtMs = Math.floor(nowMs - (ORDERS - index) * STEP_MS);
  const share = (index * 37) % 100;
  const state = share < 60 ? 'paid' : share < 80 ? 'cancelled' : 'pending';
  const isPaid = state === 'paid';
  const isRefunded = isPaid && index % REFUNDED_OF === 0;
  return {
    id: orderOf(index),
    account_id: accountOf(index % 2 === 0 ? 0 : 1 + (index % 19)),
    price_list: 'credit',
    credits: 2500,
    price: 5000,
    currency: 'CNY',
    state,
    refunded: isRefunded ? REFUND.amount : 0,
    revoked: isRefunded ? REFUND.revoked : 0,
    unrevoked: 0,
    unrevoked_at: null,
    created_at: createdAtMs,
    expires_at: createdAtMs + VALID_MS,
    paid_at: isPaid ? createdAtMs + 1000 : null,
    paid_by: isPaid ? 'operator' : null,
    payment: isPaid ? `payment-${index}` : null,
    cancelled_at: state === 'cancelled' ? createdAtMs + 1000 : null,
  };
}

function paymentRow(order: Schema['orders']): Schema['order_payments'] {
  return {
    order_id: order.id,
    payment: order.payment ?? '',
    amount: order.price,
    currency: order.currency,
    outcome: 'accepted',
    told_by: 'operator',
    received_at: order.created_at + 1000,
  };
}

function refundRow(order: Schema['orders']): Schema['order_refunds'] {
  return {
    order_id: order.id,
    refund: 'refund',
    ...REFUND,
    told_by: 'operator',
    created_at: order.created_at + DAY_MS,
    applied_at: order.created_at + DAY_MS,
  };
}
