/**
 * Orders of a service that has sold for a year, beside the accounts of large-tables.ts: half of
 * them the first account's, nearly all of them paid, cancelled or expired.
 */
import type { Database } from '../../control-plane/src/store/database/connect.ts';
import type { Schema } from '../../control-plane/src/store/database/schema.ts';
import { accountOf } from './large-tables.ts';

const ORDERS = 3000;
const CHUNK_ROWS = 200;
const DAY_MS = 86_400_000;
const VALID_MS = 7 * DAY_MS;
/** Between two orders. */
const STEP_MS = (365 * DAY_MS) / ORDERS;

export const orderOf = (index: number) =>
  `00000000-0000-4000-d000-${index.toString(16).padStart(12, '0')}`;

/** Of tables that hold nothing yet. */
export async function fillLargeOrders({ kysely }: Database): Promise<void> {
  const nowMs = Date.now();
  const rows = Array.from({ length: ORDERS }, (_, index) => orderRow(index, nowMs));
  for (let from = 0; from < rows.length; from += CHUNK_ROWS) {
    await kysely
      .insertInto('orders')
      .values(rows.slice(from, from + CHUNK_ROWS))
      .execute();
  }
}

/** The last is the latest. Of a hundred 60 are paid, 20 cancelled, 20 were left to expire. */
function orderRow(index: number, nowMs: number): Schema['orders'] {
  const createdAtMs = Math.floor(nowMs - (ORDERS - index) * STEP_MS);
  const share = (index * 37) % 100;
  const state = share < 60 ? 'paid' : share < 80 ? 'cancelled' : 'pending';
  const isPaid = state === 'paid';
  return {
    id: orderOf(index),
    account_id: accountOf(index % 2 === 0 ? 0 : 1 + (index % 19)),
    price_list: 'credit',
    credits: 2500,
    price: 5000,
    currency: 'CNY',
    state,
    refunded: 0,
    revoked: 0,
    unrevoked: 0,
    created_at: createdAtMs,
    expires_at: createdAtMs + VALID_MS,
    paid_at: isPaid ? createdAtMs + 1000 : null,
    paid_by: isPaid ? 'operator' : null,
    payment: isPaid ? `payment-${index}` : null,
    cancelled_at: state === 'cancelled' ? createdAtMs + 1000 : null,
  };
}
