/** The owner's side of orders: placing one, within the bounds of an account, and cancelling it. */
import { randomUUID } from 'node:crypto';
import type { Actor } from '../../domain/account/actor.ts';
import {
  DAY_MS,
  ORDER_VALID_MS,
  ORDERS_A_DAY_MAX,
  ORDERS_PENDING_MAX,
} from '../../domain/account/orders.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Db } from '../database/schema.ts';
import { transact } from '../database/transact.ts';
import { isAsciiWord, matchesOne } from '../database/values.ts';
import { readBalances } from '../ledger/ledger-writer.ts';
import { insertAuditEntry } from '../people/audit.ts';
import { requireAuthority } from '../people/authority.ts';
import type { CancelOutcome, NewOrder, OrderStore, PlaceOutcome } from './order-store.ts';
import { readOrder, requireOrder } from './order-store.ts';

export function orderPlacing(database: Database): Pick<OrderStore, 'place' | 'cancel'> {
  return {
    place: (order, actor) => place(database, order, actor),
    cancel: (accountId, orderId, by) => cancel(database, { accountId, orderId, by }),
  };
}

async function place(database: Database, order: NewOrder, by: Actor): Promise<PlaceOutcome> {
  const { accountId, id } = order;
  const auditId = randomUUID();
  return transact(database, async tx => {
    // It takes the account's row: two at once would both count one order fewer.
    const actor = await requireAuthority(database, tx, { accountId, actor: by, entryId: auditId });
    if ((await readBalances(tx, accountId)) === undefined) return { kind: 'unknown-account' };
    const there = await readOrder(database, tx, id);
    if (there !== undefined) return { kind: 'already-placed', order: there };
    const bound = await boundReached(database, tx, accountId);
    if (bound !== undefined) return { kind: bound };
    await insertOrder(database, tx, order);
    const { list, credits, price, currency } = order;
    await insertAuditEntry(database, tx, {
      id: auditId,
      accountId,
      actor,
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
  // Whatever was placed within a day is still valid: a walk of the account's latest orders.
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

async function insertOrder(database: Database, tx: Db, order: NewOrder) {
  await tx
    .insertInto('orders')
    .values({
      id: order.id,
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
  const auditId = randomUUID();
  return transact(database, async tx => {
    const actor = await requireAuthority(database, tx, { accountId, actor: by, entryId: auditId });
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
    await insertAuditEntry(database, tx, {
      id: auditId,
      accountId,
      actor,
      action: 'order.cancelled',
      subject: orderId,
      before: { state: 'pending' },
      after: { state: 'cancelled' },
    });
    return { kind: 'cancelled', order };
  });
}
