/**
 * Orders, the payments and refunds that were told of, and what they move in the ledger. Every
 * change commits with its ledger entry and its line in the audit log, and every method that changes
 * something may be called again: domain/account/orders.ts says what then holds.
 */

import { type RawBuilder, type Selectable, sql } from 'kysely';
import type { Actor, ServiceActor } from '../../domain/account/actor.ts';
import {
  type Order,
  type OrderState,
  orderStateOf,
  type Payment,
  type PaymentOutcome,
  type StoredOrderState,
} from '../../domain/account/orders.ts';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Db, OrderPaymentsTable, OrderRefundsTable, OrdersTable } from '../database/schema.ts';
import { throughIndex } from '../database/through-index.ts';
import { query } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import type { PagePlace } from '../ledger/ledger-pages.ts';

export type NewOrder = Pick<Order, 'id' | 'accountId' | 'list' | 'credits' | 'price' | 'currency'>;

export type PlaceOutcome =
  | { readonly kind: 'placed' | 'already-placed'; readonly order: Order }
  | { readonly kind: 'too-many-pending' | 'too-many-today' | 'unknown-account' };

export type CancelOutcome =
  | { readonly kind: 'cancelled'; readonly order: Order }
  /** It is neither pending nor cancelled. */
  | { readonly kind: 'not-pending'; readonly order: Order }
  | { readonly kind: 'unknown' };

/** A payment as it was told of. */
export interface ToldPayment extends Payment {
  /** Who told: `operator`, or a provider's name. */
  readonly toldBy: string;
}

export type PayOutcome =
  /** `late`: the order had expired or was cancelled. */
  | { readonly kind: 'paid'; readonly order: Order; readonly late: boolean }
  /** It was paid with this payment before. */
  | { readonly kind: 'already-paid'; readonly order: Order }
  /** It was paid with another: this one is owed back. */
  | { readonly kind: 'paid-again'; readonly order: Order }
  | { readonly kind: 'differs'; readonly order: Order; readonly field: 'amount' | 'currency' }
  | { readonly kind: 'unknown' };

/** A refund as it was told of. */
export interface ToldRefund {
  /** Where the money is: isMoneyReference. */
  readonly refund: string;
  /** Undefined: all that is left of the price. */
  readonly amount: number | undefined;
  /** Undefined: the order's. */
  readonly currency: string | undefined;
  readonly toldBy: string;
  /** Whether it may come before the payment; otherwise it is refused then. */
  readonly mayWait: boolean;
}

export type RefundOutcome =
  | { readonly kind: 'refunded'; readonly order: Order; readonly refund: OrderRefund }
  /** It was told of before. */
  | { readonly kind: 'already-refunded'; readonly order: Order; readonly refund: OrderRefund }
  /** The order is not paid yet: it is done when it is. */
  | { readonly kind: 'waiting'; readonly order: Order; readonly refund: OrderRefund }
  | { readonly kind: 'not-paid'; readonly order: Order }
  /** `left`: of the price, that no refund has taken. */
  | { readonly kind: 'too-much'; readonly order: Order; readonly left: number }
  | { readonly kind: 'currency-differs' | 'too-many'; readonly order: Order }
  /** The refund was told of before, with another amount. */
  | { readonly kind: 'refund-conflict'; readonly order: Order; readonly refund: OrderRefund }
  | { readonly kind: 'unknown' };

export interface OrderPayment extends ToldPayment {
  readonly outcome: PaymentOutcome;
  readonly receivedAtMs: number;
}

export interface OrderRefund {
  readonly refund: string;
  readonly amount: number;
  /** What the amount stands for; 0 while it waits. */
  readonly credits: number;
  /** Of them, those that were available and were taken back. */
  readonly revoked: number;
  readonly toldBy: string;
  readonly createdAtMs: number;
  /** null: it waits for the payment. */
  readonly appliedAtMs: number | null;
}

export interface OrderDetails {
  readonly payments: readonly OrderPayment[];
  readonly refunds: readonly OrderRefund[];
}

/** The states an operator may list by: those of refunds are `paid`. */
export type ListedOrderState = Exclude<OrderState, 'partly-refunded' | 'refunded'>;

export interface OrderFilter {
  readonly accountId?: string | undefined;
  readonly state?: ListedOrderState | undefined;
  /** Behind which order the page begins: its expiresAtMs and id. */
  readonly after?: PagePlace | undefined;
  readonly limit: number;
}

export interface OrderStore {
  /** Idempotent by the order's id. Bounds: ORDERS_PENDING_MAX, ORDERS_A_DAY_MAX. */
  place(order: NewOrder, actor: Actor): Promise<PlaceOutcome>;
  /** Of this account alone; while it is pending. */
  cancel(accountId: string, orderId: string, actor: Actor): Promise<CancelOutcome>;
  /** Grants the order's credits once, where the payment is its price. */
  pay(orderId: string, payment: ToldPayment, actor: ServiceActor): Promise<PayOutcome>;
  /** Takes back what the amount stands for, as far as it is available. Idempotent by `refund`. */
  refund(orderId: string, refund: ToldRefund, actor: ServiceActor): Promise<RefundOutcome>;
  /** @param accountId only of this account */
  find(orderId: string, accountId?: string): Promise<Order | undefined>;
  /** ODD_PAYMENTS_MAX and REFUNDS_MAX bound them. */
  details(orderId: string): Promise<OrderDetails>;
  /** The latest first. */
  list(filter: OrderFilter): Promise<Order[]>;
}

/** `db` is the database or a transaction of it. */
export async function readOrder(
  database: Database,
  db: Db,
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

export async function requireOrder(database: Database, tx: Db, orderId: string): Promise<Order> {
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
export async function readRefunds(db: Db, orderId: string): Promise<OrderRefund[]> {
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
export async function readPayments(db: Db, orderId: string): Promise<OrderPayment[]> {
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

function selectPage(database: Database, db: Db, filter: OrderFilter) {
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
