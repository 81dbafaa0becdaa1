/**
 * A reported refund takes back the credits of the money as far as they are available, in one
 * transaction with the audit entry.
 */

import { randomUUID } from 'node:crypto';
import { insertAuditEntry, type ServiceActor } from '@matting/accounts/audit-log.ts';
import { CREDITS_PER_JOB } from '@matting/accounts/ledger/ledger.ts';
import { enterOperatorEntry, holdAccount } from '@matting/accounts/ledger/ledger-writer.ts';
import { type Database, type Db, OvertakenError, transact } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import { findOrder, type OrderRefund, readRefunds, requireOrder } from './order-rows.ts';
import {
  creditsOfRefund,
  type Order,
  REFUNDS_MAX,
  refundReferenceOf,
  releaseReferenceOf,
} from './order-rules.ts';

export interface ReportedRefund {
  /** Its id at the provider or bank: isMoneyReference. */
  readonly refund: string;
  /** Undefined: the rest of the price. */
  readonly amount: number | undefined;
  readonly currency: string | undefined;
  readonly reportedBy: string;
  /** Whether a refund may come before the payment. */
  readonly mayWait: boolean;
}

export type RefundOutcome =
  | { readonly kind: 'refunded'; readonly order: Order; readonly refund: OrderRefund }
  | { readonly kind: 'already-refunded'; readonly order: Order; readonly refund: OrderRefund }
  /** The order is not paid yet. Its payment completes the refund. */
  | { readonly kind: 'waiting'; readonly order: Order; readonly refund: OrderRefund }
  | { readonly kind: 'not-paid'; readonly order: Order }
  | { readonly kind: 'too-much'; readonly order: Order; readonly left: number }
  | { readonly kind: 'currency-differs' | 'too-many'; readonly order: Order }
  | { readonly kind: 'refund-conflict'; readonly order: Order; readonly refund: OrderRefund }
  | { readonly kind: 'unknown' };

interface By {
  readonly actor: ServiceActor;
  readonly auditId: string;
}

/**
 * Never takes what open jobs hold, and never goes below zero. The order notes the rest. Credits
 * that its open jobs give back later are taken by `takeReleased`.
 */
export async function refund(
  database: Database,
  orderId: string,
  reported: ReportedRefund,
  actor: ServiceActor,
): Promise<RefundOutcome> {
  const known = await findOrder(database, orderId);
  if (known === undefined) return { kind: 'unknown' };
  const by = { actor, auditId: randomUUID() };
  return transact(database, async tx => {
    await holdAccount(database, tx, known.accountId);
    return judgedRefund(database, tx, await requireOrder(database, tx, known.id), reported, by);
  });
}

async function judgedRefund(
  database: Database,
  tx: Db,
  order: Order,
  reported: ReportedRefund,
  by: By,
): Promise<RefundOutcome> {
  if (reported.currency !== undefined && reported.currency !== order.currency) {
    return { kind: 'currency-differs', order };
  }
  const refunds = await readRefunds(tx, order.id);
  const same = refunds.find(({ refund }) => refund === reported.refund);
  if (same !== undefined) return repeatedRefund(order, same, reported.amount);
  // Waiting refunds count, too.
  const left = order.price - refunds.reduce((sum, { amount }) => sum + amount, 0);
  const amount = reported.amount ?? left;
  const isPaid = order.stored === 'paid';
  if (!isPaid && !reported.mayWait) return { kind: 'not-paid', order };
  if (amount > left || left === 0) return { kind: 'too-much', order, left };
  if (refunds.length >= REFUNDS_MAX) return { kind: 'too-many', order };
  await insertRefund(database, tx, order, { ...reported, amount });
  if (isPaid) await applyRefund(database, tx, order, reported.refund, amount, by);
  else await auditRefund(database, tx, order, by, 'order.refund_waits', { amount });
  const changed = await requireOrder(database, tx, order.id);
  const refund = (await readRefunds(tx, order.id)).find(one => one.refund === reported.refund);
  if (refund === undefined) throw new Error(`a refund of order ${order.id} has gone`);
  return { kind: isPaid ? 'refunded' : 'waiting', order: changed, refund };
}

function repeatedRefund(
  order: Order,
  refund: OrderRefund,
  amount: number | undefined,
): RefundOutcome {
  const differs = amount !== undefined && amount !== refund.amount;
  if (differs) return { kind: 'refund-conflict', order, refund };
  return { kind: refund.appliedAtMs === null ? 'waiting' : 'already-refunded', order, refund };
}

export async function applyWaitingRefunds(
  database: Database,
  tx: Db,
  orderId: string,
  actor: ServiceActor,
): Promise<void> {
  const refunds = await readRefunds(tx, orderId);
  for (const { refund, amount, appliedAtMs } of refunds) {
    if (appliedAtMs !== null) continue;
    const order = await requireOrder(database, tx, orderId);
    // A new id in each run of the transaction is safe: a repeat means that the earlier entry was
    // rolled back.
    const by = { actor, auditId: randomUUID() };
    await applyRefund(database, tx, order, refund, amount, by);
  }
}

async function applyRefund(
  database: Database,
  tx: Db,
  order: Order,
  refund: string,
  amount: number,
  by: By,
): Promise<void> {
  const balances = await holdAccount(database, tx, order.accountId);
  const credits = creditsOfRefund(order, amount);
  const revoked = Math.min(credits, balances?.available ?? 0);
  const left = revoked < credits ? { unrevoked_at: database.nowMs } : {};
  const update = tx
    .updateTable('orders')
    .set(eb => ({
      refunded: eb('refunded', '+', amount),
      revoked: eb('revoked', '+', revoked),
      unrevoked: eb('unrevoked', '+', credits - revoked),
      ...left,
    }))
    .where('id', '=', order.id)
    .where('refunded', '=', order.refunded);
  if (!(await matchesOne(update))) throw new OvertakenError('the order has changed');
  await tx
    .updateTable('order_refunds')
    .set({ credits, revoked, applied_at: database.nowMs })
    .where('order_id', '=', order.id)
    .where('refund', '=', refund)
    .execute();
  // 0 if the refund is less than a credit, or all are spent. The ledger has no entries of 0.
  if (revoked > 0) {
    const { kind } = await enterOperatorEntry(database, tx, {
      kind: 'revoke',
      accountId: order.accountId,
      amount: revoked,
      reference: refundReferenceOf(order.id, refund),
    });
    if (kind !== 'entered') throw new OvertakenError(`the revocation was not entered: ${kind}`);
  }
  await auditRefund(database, tx, order, by, 'order.refunded', {
    refund,
    amount,
    credits,
    revoked,
  });
}

/**
 * If a refund lacked credits, takes those that a job from before the refund gives back. It runs in
 * the transaction that releases the credit, after its entry, or later (settled-steps.ts). Credits
 * spent by then are not taken, and the refund keeps lacking them.
 */
export async function takeReleased(
  database: Database,
  tx: Db,
  { accountId, jobId, createdAtMs }: { accountId: string; jobId: string; createdAtMs: number },
): Promise<void> {
  const order = await tx
    .selectFrom('orders')
    .select(['id', 'unrevoked'])
    .where('account_id', '=', accountId)
    .where('unrevoked_at', '>=', createdAtMs)
    .orderBy('unrevoked_at')
    .orderBy('id')
    .limit(1)
    .executeTakeFirst();
  if (order === undefined) return;
  const { kind } = await enterOperatorEntry(database, tx, {
    kind: 'revoke',
    accountId,
    amount: CREDITS_PER_JOB,
    reference: releaseReferenceOf(order.id, jobId),
  });
  if (kind === 'insufficient-credits') return;
  if (kind !== 'entered') throw new Error(`what job ${jobId} gave back was not taken: ${kind}`);
  const unrevoked = order.unrevoked - CREDITS_PER_JOB;
  const update = tx
    .updateTable('orders')
    .set(eb => ({
      revoked: eb('revoked', '+', CREDITS_PER_JOB),
      unrevoked,
      ...(unrevoked === 0 ? { unrevoked_at: null } : {}),
    }))
    .where('id', '=', order.id)
    .where('unrevoked', '=', order.unrevoked);
  if (!(await matchesOne(update))) throw new OvertakenError('the order has changed');
}

async function insertRefund(
  database: Database,
  tx: Db,
  order: Order,
  {
    refund,
    amount,
    reportedBy,
  }: Pick<ReportedRefund, 'refund' | 'reportedBy'> & { amount: number },
): Promise<void> {
  await tx
    .insertInto('order_refunds')
    .values({
      order_id: order.id,
      refund,
      amount,
      credits: 0,
      revoked: 0,
      told_by: reportedBy,
      created_at: database.nowMs,
    })
    .execute();
}

async function auditRefund(
  database: Database,
  tx: Db,
  order: Order,
  { actor, auditId }: By,
  action: string,
  after: Readonly<Record<string, string | number>>,
): Promise<void> {
  const { id, accountId, state, refunded } = order;
  await insertAuditEntry(database, tx, {
    id: auditId,
    accountId,
    actor,
    action,
    subject: id,
    before: { state, refunded },
    after,
  });
}
