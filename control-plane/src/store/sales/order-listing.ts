/** Orders as owners and operators read them: one, what was told of it, pages of them. */
import { type Kysely, type RawBuilder, sql } from 'kysely';
import type { StoredOrderState } from '../../domain/account/orders.ts';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Schema } from '../database/schema.ts';
import { throughIndex } from '../database/through-index.ts';
import { query } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import { orderFromRow, readOrder, readPayments, readRefunds } from './order-rows.ts';
import type { ListedOrderState, OrderFilter, OrderStore } from './order-store.ts';

export function orderListing(database: Database): Pick<OrderStore, 'find' | 'details' | 'list'> {
  return {
    async find(orderId, accountId) {
      if (!isAsciiWord(orderId)) return undefined;
      const order = await query(database, db => readOrder(database, db, orderId));
      return accountId === undefined || order?.accountId === accountId ? order : undefined;
    },
    async details(orderId) {
      const payments = await query(database, db => readPayments(db, orderId));
      return { payments, refunds: await query(database, db => readRefunds(db, orderId)) };
    },
    async list(filter) {
      const rows = await query(database, db => selectPage(database, db, filter).execute());
      return rows.map(orderFromRow);
    },
  };
}

type Dialect = Database['dialect'];

function indexOf({ accountId, state }: OrderFilter): string {
  if (accountId !== undefined) return state ? 'orders_account_state' : 'orders_account';
  return state ? 'orders_state' : 'orders_time';
}

function selectPage(database: Database, db: Kysely<Schema>, filter: OrderFilter) {
  const { dialect, nowMs } = database;
  const { accountId, state, after, limit } = filter;
  let page = db
    .selectFrom(throughIndex('orders', indexOf(filter))[dialect])
    .selectAll()
    .select(() => nowMs.as('read_at'));
  if (accountId !== undefined) {
    page = page.where(ofAccount(dialect, accountId)).orderBy('account_id', 'desc');
  }
  if (state !== undefined) {
    page = page.where(inState(dialect, storedAs(state))).orderBy('state', 'desc');
    if (state === 'pending') page = page.where('expires_at', '>', nowMs);
    if (state === 'expired') page = page.where('expires_at', '<=', nowMs);
  }
  if (after !== undefined) {
    const { atMs, id } = after;
    page = page
      .where('expires_at', '<=', atMs)
      .where(eb => eb.or([eb('expires_at', '<', atMs), eb('id', '<', id)]));
  }
  return page.orderBy('expires_at', 'desc').orderBy('id', 'desc').limit(limit);
}

/** For the reason of `ofAccount`. */
function inState(dialect: Dialect, state: StoredOrderState): RawBuilder<boolean> {
  const column = sql.ref('state');
  return dialect === 'sqlite'
    ? sql<boolean>`${column} = ${state}`
    : sql<boolean>`(${column} >= ${state} and ${column} <= ${state})`;
}

function storedAs(state: ListedOrderState): StoredOrderState {
  return state === 'expired' ? 'pending' : state;
}
