/**
 * A reported payment makes the order paid and grants its credits once, in one transaction with the
 * audit entry. Other payments are kept for the operator.
 */

import { randomUUID } from 'node:crypto';
import { insertAuditEntry, type ServiceActor } from '@matting/accounts/audit-log.ts';
import { enterOperatorEntry, holdAccount } from '@matting/accounts/ledger/ledger-writer.ts';
import { type Database, type Db, OvertakenError, transact } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import { findOrder, readPayments, requireOrder } from './order-rows.ts';
import {
  grantReferenceOf,
  judgePayment,
  ODD_PAYMENTS_MAX,
  type Order,
  type Payment,
  type PaymentOutcome,
} from './order-rules.ts';
import { applyWaitingRefunds } from './refund-order.ts';

export interface ReportedPayment extends Payment {
  readonly reportedBy: string;
}

export type PayOutcome =
  | { readonly kind: 'paid'; readonly order: Order; readonly late: boolean }
  | { readonly kind: 'already-paid'; readonly order: Order }
  | { readonly kind: 'paid-again'; readonly order: Order }
  | { readonly kind: 'differs'; readonly order: Order; readonly field: 'amount' | 'currency' }
  | { readonly kind: 'unknown' };

interface Paying {
  readonly orderId: string;
  readonly payment: ReportedPayment;
  readonly actor: ServiceActor;
}

type RepeatablePaying = Paying & { readonly auditId: string };

export async function pay(database: Database, paying: Paying): Promise<PayOutcome> {
  const known = await findOrder(database, paying.orderId);
  if (known === undefined) return { kind: 'unknown' };
  const repeated = { ...paying, auditId: randomUUID() };
  return transact(database, async tx => {
    await holdAccount(database, tx, known.accountId);
    return judgedPayment(database, tx, await requireOrder(database, tx, known.id), repeated);
  });
}

async function judgedPayment(
  database: Database,
  tx: Db,
  order: Order,
  paying: RepeatablePaying,
): Promise<PayOutcome> {
  const { payment } = paying;
  const outcome = judgePayment(order, payment);
  if (outcome === 'differs') {
    const field = payment.currency === order.currency ? 'amount' : 'currency';
    await noteOddPayment(database, tx, order, paying, 'differs');
    return { kind: 'differs', order, field };
  }
  if (outcome === 'again') {
    if (order.payment === payment.payment) return { kind: 'already-paid', order };
    await noteOddPayment(database, tx, order, paying, 'again');
    return { kind: 'paid-again', order };
  }
  await accept(database, tx, order, paying);
  const paid = await requireOrder(database, tx, order.id);
  return { kind: 'paid', order: paid, late: order.state !== 'pending' };
}

async function accept(database: Database, tx: Db, order: Order, paying: RepeatablePaying) {
  const { payment, reportedBy } = paying.payment;
  const update = tx
    .updateTable('orders')
    .set({ state: 'paid', paid_at: database.nowMs, paid_by: reportedBy, payment })
    .where('id', '=', order.id)
    .where('state', '=', order.stored);
  // A cancellation, which does not lock the account's row, came between.
  if (!(await matchesOne(update))) throw new OvertakenError('the order has changed');
  const { kind } = await enterOperatorEntry(database, tx, {
    kind: 'grant',
    accountId: order.accountId,
    amount: order.credits,
    reference: grantReferenceOf(order.id),
  });
  if (kind !== 'entered')
    throw new Error(`the grant of order ${order.id} was not entered: ${kind}`);
  await writePayment(database, tx, order, paying, 'accepted');
  await auditPayment(database, tx, order, paying, 'order.paid');
  await applyWaitingRefunds(database, tx, order.id, paying.actor);
}

async function noteOddPayment(
  database: Database,
  tx: Db,
  order: Order,
  paying: RepeatablePaying,
  outcome: 'again' | 'differs',
): Promise<void> {
  const reported = await readPayments(tx, order.id);
  const same = reported.find(({ payment }) => payment === paying.payment.payment);
  // An accepted payment stays accepted, whatever later notifications report.
  if (same?.outcome === outcome || same?.outcome === 'accepted') return;
  if (same === undefined && reported.length > ODD_PAYMENTS_MAX) return;
  await writePayment(database, tx, order, paying, outcome);
  const action = outcome === 'again' ? 'order.paid_again' : 'order.payment_differs';
  await auditPayment(database, tx, order, paying, action);
}

/** Replaces the row of an earlier report, since a payment that differed may be corrected. */
async function writePayment(
  database: Database,
  tx: Db,
  order: Order,
  { payment: { payment, amount, currency, reportedBy } }: RepeatablePaying,
  outcome: PaymentOutcome,
): Promise<void> {
  const row = { amount, currency, outcome, told_by: reportedBy, received_at: database.nowMs };
  const update = tx
    .updateTable('order_payments')
    .set(row)
    .where('order_id', '=', order.id)
    .where('payment', '=', payment);
  if (await matchesOne(update)) return;
  await tx
    .insertInto('order_payments')
    .values({ ...row, order_id: order.id, payment })
    .execute();
}

async function auditPayment(
  database: Database,
  tx: Db,
  order: Order,
  { auditId, actor, payment: { payment, amount, currency } }: RepeatablePaying,
  action: string,
): Promise<void> {
  const isPaid = action === 'order.paid';
  await insertAuditEntry(database, tx, {
    id: auditId,
    accountId: order.accountId,
    actor,
    action,
    subject: order.id,
    before: { state: order.state },
    after: {
      state: isPaid ? 'paid' : order.state,
      payment,
      amount,
      currency,
      credits: isPaid ? order.credits : 0,
    },
  });
}
