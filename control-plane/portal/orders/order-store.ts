/**
 * Orders, the reported payments and refunds, and what they move in the ledger. Each change commits
 * with its ledger entry and audit entry, and can be repeated (order-rules.ts). A method locks the
 * account's row first, as every movement of credits (ledger-writer.ts), so reports about an order
 * are serial.
 */

import { randomUUID } from 'node:crypto';
import { type Actor, requireAuthority, type ServiceActor } from '@matting/accounts/audit-log.ts';
import { readBalances } from '@matting/accounts/ledger/ledger-writer.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { isAsciiWord, matchesOne, nowPlusMs, ofAccount } from '@matting/database/statements.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import {
  findOrder,
  type OrderFilter,
  orderOf,
  readOrder,
  readPayments,
  readRefunds,
  requireOrder,
  selectPage,
} from './order-rows.ts';
import {
  ORDER_VALID_MS,
  ORDERS_A_DAY_MAX,
  ORDERS_PENDING_MAX,
  type Order,
  orderReferenceOf,
} from './order-rules.ts';
import { pay, type ReportedPayment } from './pay-order.ts';
import { type ReportedRefund, refund } from './refund-order.ts';

type NewOrder = Pick<Order, 'id' | 'accountId' | 'list' | 'credits' | 'price' | 'currency'>;

const REFERENCES_TRIED_MAX = 5;

type PlaceOutcome =
  | { readonly kind: 'placed' | 'already-placed'; readonly order: Order }
  | { readonly kind: 'too-many-pending' | 'too-many-today' | 'unknown-account' };

type CancelOutcome =
  | { readonly kind: 'cancelled'; readonly order: Order }
  | { readonly kind: 'not-pending'; readonly order: Order }
  | { readonly kind: 'unknown' };

export type OrderStore = ReturnType<typeof createOrderStore>;

export function createOrderStore(database: Database) {
  return {
    /** Idempotent by the order's id. Bounds: ORDERS_PENDING_MAX, ORDERS_A_DAY_MAX. */
    place: (order: NewOrder, actor: Actor) => place(database, order, actor),
    cancel: (accountId: string, orderId: string, by: Actor) =>
      cancel(database, { accountId, orderId, by }),
    /** Grants the credits once, if the payment is the price. @param orderId id or reference */
    pay: (orderId: string, payment: ReportedPayment, actor: ServiceActor) =>
      pay(database, { orderId, payment, actor }),
    /** Takes back the amount's credits as far as they are available. Idempotent by `refund`. */
    refund: (orderId: string, reported: ReportedRefund, actor: ServiceActor) =>
      refund(database, orderId, reported, actor),
    /** @param named its id or its reference @param accountId excludes other accounts' orders */
    async find(named: string, accountId?: string): Promise<Order | undefined> {
      const order = await findOrder(database, named);
      return accountId === undefined || order?.accountId === accountId ? order : undefined;
    },
    async details(orderId: string) {
      const payments = await query(database, db => readPayments(db, orderId));
      return { payments, refunds: await query(database, db => readRefunds(db, orderId)) };
    },
    async references(accountId: string, orderIds: readonly string[]) {
      if (orderIds.length === 0) return new Map<string, string>();
      const rows = await query(database, db =>
        db
          .selectFrom('orders')
          .select(['id', 'account_id', 'reference'])
          .where('id', 'in', orderIds)
          .execute(),
      );
      const own = rows.filter(row => row.account_id === accountId);
      return new Map(own.flatMap(({ id, reference }) => (reference ? [[id, reference]] : [])));
    },
    async list(filter: OrderFilter): Promise<Order[]> {
      const rows = await query(database, db => selectPage(database, db, filter).execute());
      return rows.map(orderOf);
    },
  };
}

async function place(database: Database, order: NewOrder, by: Actor): Promise<PlaceOutcome> {
  const entryId = randomUUID();
  for (let attempt = 1; ; attempt += 1) {
    const referred = { ...order, reference: orderReferenceOf(order.id, attempt) };
    try {
      return await placeReferred(database, referred, by, entryId);
    } catch (error) {
      const isTaken = databaseErrorKind(error) === 'duplicate';
      if (!isTaken || attempt === REFERENCES_TRIED_MAX) throw error;
    }
  }
}

type ReferredOrder = NewOrder & { readonly reference: string };

function placeReferred(
  database: Database,
  order: ReferredOrder,
  by: Actor,
  entryId: string,
): Promise<PlaceOutcome> {
  const { accountId, id } = order;
  return transact(database, async tx => {
    // Locks the account's row. Otherwise two transactions at once would each miss the other's
    // order.
    const { log } = await requireAuthority(database, tx, { accountId, actor: by, entryId });
    if ((await readBalances(tx, accountId)) === undefined) return { kind: 'unknown-account' };
    const existing = await readOrder(database, tx, id);
    if (existing !== undefined) return { kind: 'already-placed', order: existing };
    const bound = await boundReached(database, tx, accountId);
    if (bound !== undefined) return { kind: bound };
    await insertOrder(database, tx, order);
    const { list, credits, price, currency } = order;
    await log({
      action: 'order.placed',
      subject: id,
      after: { list, credits, price, currency },
    });
    return { kind: 'placed', order: await requireOrder(database, tx, id) };
  });
}

async function boundReached(
  database: Database,
  tx: Db,
  accountId: string,
): Promise<'too-many-pending' | 'too-many-today' | undefined> {
  // Orders of the last day are still valid, so the account's latest orders include them.
  const latest = await tx
    .selectFrom('orders')
    .select(['state', 'created_at'])
    .select(() => database.nowMs.as('read_at'))
    .where(ofAccount(database.dialect, accountId))
    .where('expires_at', '>', database.nowMs)
    .execute();
  const pending = latest.filter(({ state }) => state === 'pending').length;
  if (pending >= ORDERS_PENDING_MAX) return 'too-many-pending';
  const today = latest.filter(row => row.created_at > row.read_at - DAY_MS).length;
  return today >= ORDERS_A_DAY_MAX ? 'too-many-today' : undefined;
}

async function insertOrder(database: Database, tx: Db, order: ReferredOrder) {
  await tx
    .insertInto('orders')
    .values({
      id: order.id,
      reference: order.reference,
      account_id: order.accountId,
      price_list: order.list,
      credits: order.credits,
      price: order.price,
      currency: order.currency,
      state: 'pending',
      refunded: 0,
      revoked: 0,
      unrevoked: 0,
      created_at: database.nowMs,
      expires_at: nowPlusMs(database.nowMs, ORDER_VALID_MS),
    })
    .execute();
}

async function cancel(
  database: Database,
  { accountId, orderId, by }: { accountId: string; orderId: string; by: Actor },
): Promise<CancelOutcome> {
  if (!isAsciiWord(orderId)) return { kind: 'unknown' };
  const entryId = randomUUID();
  return transact(database, async tx => {
    const { log } = await requireAuthority(database, tx, { accountId, actor: by, entryId });
    const update = tx
      .updateTable('orders')
      .set({ state: 'cancelled', cancelled_at: database.nowMs })
      .where('id', '=', orderId)
      .where('account_id', '=', accountId)
      .where('state', '=', 'pending')
      .where('expires_at', '>', database.nowMs);
    const changed = await matchesOne(update);
    const order = await readOrder(database, tx, orderId);
    if (order === undefined || order.accountId !== accountId) return { kind: 'unknown' };
    if (!changed)
      return { kind: order.stored === 'cancelled' ? 'cancelled' : 'not-pending', order };
    await log({
      action: 'order.cancelled',
      subject: orderId,
      before: { state: 'pending' },
      after: { state: 'cancelled' },
    });
    return { kind: 'cancelled', order };
  });
}
