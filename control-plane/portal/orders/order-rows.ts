import { type Database, type Db, query } from '@matting/database/database.ts';
import { isAsciiWord, ofAccount, throughIndex } from '@matting/database/statements.ts';
import { type RawBuilder, sql } from 'kysely';
import type { PageCursor } from '../page/paging.ts';
import {
  type Order,
  type OrderState,
  orderStateOf,
  parseOrderReference,
  type StoredOrderState,
} from './order-rules.ts';

export type OrderPayment = Awaited<ReturnType<typeof readPayments>>[number];
export type OrderRefund = Awaited<ReturnType<typeof readRefunds>>[number];

/** Excludes the states of refunds, which the database stores as `paid`. */
export type ListedOrderState = Exclude<OrderState, 'partly-refunded' | 'refunded'>;

export interface OrderFilter {
  readonly accountId?: string | undefined;
  readonly state?: ListedOrderState | undefined;
  readonly after?: PageCursor | undefined;
  readonly limit: number;
}

const ORDER_COLUMNS = [
  'id',
  'reference',
  'account_id as accountId',
  'price_list as list',
  'credits',
  'price',
  'currency',
  'state as stored',
  'refunded',
  'revoked',
  'unrevoked',
  'created_at as createdAtMs',
  'expires_at as expiresAtMs',
  'paid_at as paidAtMs',
  'paid_by as paidBy',
  'payment',
  'cancelled_at as cancelledAtMs',
] as const;

export async function readOrder(
  database: Database,
  db: Db,
  orderId: string,
): Promise<Order | undefined> {
  const row = await db
    .selectFrom('orders')
    .select(ORDER_COLUMNS)
    .select(() => database.nowMs.as('readAtMs'))
    .where('id', '=', orderId)
    .executeTakeFirst();
  return row && orderOf(row);
}

export async function findOrder(database: Database, named: string): Promise<Order | undefined> {
  const reference = parseOrderReference(named);
  if (reference === undefined) {
    if (!isAsciiWord(named)) return undefined;
    return query(database, db => readOrder(database, db, named.toLowerCase()));
  }
  const row = await query(database, db =>
    db
      .selectFrom('orders')
      .select(ORDER_COLUMNS)
      .select(() => database.nowMs.as('readAtMs'))
      .where('reference', '=', reference)
      .executeTakeFirst(),
  );
  return row && orderOf(row);
}

export async function requireOrder(database: Database, tx: Db, orderId: string): Promise<Order> {
  const order = await readOrder(database, tx, orderId);
  if (order === undefined) throw new Error(`order ${orderId} has gone`);
  return order;
}

/** @param readAtMs the database's clock, which decides whether a pending order has expired */
export function orderOf({
  readAtMs,
  ...row
}: Omit<Order, 'state'> & { readonly readAtMs: number }) {
  return { ...row, state: orderStateOf(row, readAtMs) };
}

/** In the order in which they were reported. REFUNDS_MAX bounds them. */
export async function readRefunds(db: Db, orderId: string) {
  const rows = await db
    .selectFrom('order_refunds')
    .select(['refund', 'amount', 'credits', 'revoked', 'told_by as reportedBy'])
    .select(['created_at as createdAtMs', 'applied_at as appliedAtMs'])
    .where('order_id', '=', orderId)
    .execute();
  return rows.sort((a, b) => a.createdAtMs - b.createdAtMs || (a.refund < b.refund ? -1 : 1));
}

export async function readPayments(db: Db, orderId: string) {
  const rows = await db
    .selectFrom('order_payments')
    .select(['payment', 'amount', 'currency', 'outcome'])
    .select(['told_by as reportedBy', 'received_at as receivedAtMs'])
    .where('order_id', '=', orderId)
    .execute();
  return rows.sort((a, b) => a.receivedAtMs - b.receivedAtMs || (a.payment < b.payment ? -1 : 1));
}

function indexOf({ accountId, state }: OrderFilter): string {
  if (accountId !== undefined) return state ? 'orders_account_state' : 'orders_account';
  return state ? 'orders_state' : 'orders_time';
}

export function selectPage(database: Database, db: Db, filter: OrderFilter) {
  const { dialect, nowMs } = database;
  const { accountId, state, after, limit } = filter;
  let page = db
    .selectFrom(throughIndex('orders', indexOf(filter))[dialect])
    .select(ORDER_COLUMNS)
    .select(() => nowMs.as('readAtMs'));
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

/** A server gets a range, for the reason that `ofAccount` gives. */
function inState(dialect: Database['dialect'], state: StoredOrderState): RawBuilder<boolean> {
  const column = sql.ref('state');
  return dialect === 'sqlite'
    ? sql<boolean>`${column} = ${state}`
    : sql<boolean>`(${column} >= ${state} and ${column} <= ${state})`;
}

function storedAs(state: ListedOrderState): StoredOrderState {
  return state === 'expired' ? 'pending' : state;
}
