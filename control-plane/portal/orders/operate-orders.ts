import { randomUUID } from 'node:crypto';
import type { ServiceActor } from '@matting/accounts/audit-log.ts';
import type { CoreStores } from '@matting/core/package.ts';
import { isoTime } from '@matting/program/iso-time.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { cursorText, parseCursor } from '../page/paging.ts';
import type { ListedOrderState, OrderPayment, OrderRefund } from './order-rows.ts';
import { formatDecimal, isMoneyReference, type Order } from './order-rules.ts';
import type { OrderStore } from './order-store.ts';
import type { RefundOutcome } from './refund-order.ts';

export const LISTED_ORDER_STATES = [
  'pending',
  'expired',
  'cancelled',
  'paid',
] as const satisfies readonly ListedOrderState[];

/** The operator's name in `paid_by` and in refunds. */
export const OPERATOR = 'operator';
const ACTOR: ServiceActor = { kind: 'operator' };

export interface OrderQuestion {
  readonly state: ListedOrderState | undefined;
  /** The account's name or id. Undefined: all accounts. */
  readonly account: string | undefined;
  readonly limit: number;
  readonly after: string | undefined;
}

interface Refunding {
  /** In the currency's smallest unit. Undefined: the rest of the price. */
  readonly amount: number | undefined;
  /** The id at the payment provider or bank. Undefined: the service makes one up. */
  readonly reference: string | undefined;
}

export type OperatorOrder = ReturnType<typeof viewOrder>;
export type OperatorListedOrder = Awaited<ReturnType<OperateOrders['list']>>[number];
export type OperatorOrderDetails = Awaited<ReturnType<OperateOrders['show']>>;

export class OperateOrders {
  readonly #orders: OrderStore;
  readonly #accounts: CoreStores['accounts'];

  constructor({ orders, accounts }: { orders: OrderStore; accounts: CoreStores['accounts'] }) {
    this.#orders = orders;
    this.#accounts = accounts;
  }

  /**
   * Lists the latest orders first. @throws ContractError NOT_FOUND: the account; INVALID_REQUEST:
   * `after`
   */
  async list({ state, account, limit, after }: OrderQuestion) {
    const cursor = after === undefined ? undefined : parseCursor(after);
    if (after !== undefined && cursor === undefined) {
      throw invalid('after', 'must be the cursor of a listed order');
    }
    const accountId = await this.#accountId(account);
    const orders = await this.#orders.list({ state, accountId, after: cursor, limit });
    return orders.map(order => ({
      ...viewOrder(order),
      cursor: cursorText({ atMs: order.expiresAtMs, id: order.id }),
    }));
  }

  async show(orderId: string) {
    const order = await this.#require(orderId);
    const { payments, refunds } = await this.#orders.details(order.id);
    const atRefunds = refunds.reduce((sum, { revoked }) => sum + revoked, 0);
    return {
      ...viewOrder(order),
      /** The part of `credits_revoked` that jobs gave back after a refund, when they failed. */
      credits_revoked_later: order.revoked - atRefunds,
      payments: payments.map(payment => viewPayment(payment, order.currency)),
      refunds: refunds.map(refund => viewRefund(refund, order.currency)),
    };
  }

  /**
   * Confirms the payment and grants the credits once, also if the order expired or was cancelled
   * (`late`), since the money came. `changed` is false after the first time.
   * @param payment its id at the bank or provider; undefined: `operator`
   * @throws ContractError NOT_FOUND, INVALID_REQUEST; ORDER_CONFLICT: paid with another payment
   */
  async confirm(orderId: string, payment: string = OPERATOR) {
    requireReference(payment);
    const { id, price: amount, currency, stored, payment: paid } = await this.#require(orderId);
    if (stored === 'paid' && paid !== payment) throw paidWithAnother(paid);
    const reported = { payment, amount, currency, reportedBy: OPERATOR };
    const outcome = await this.#orders.pay(id, reported, ACTOR);
    switch (outcome.kind) {
      case 'paid':
        return { changed: true, late: outcome.late, order: viewOrder(outcome.order) };
      case 'already-paid':
        return { changed: false, late: false, order: viewOrder(outcome.order) };
      case 'paid-again':
        throw paidWithAnother(outcome.order.payment);
      default:
        throw new Error(`the price of order ${id} does not pay it: ${outcome.kind}`);
    }
  }

  /**
   * Takes back the credits of a refund, as far as they are available. The operator sends the money.
   * `changed` is false after the first time.
   * @throws ContractError NOT_FOUND, INVALID_REQUEST, ORDER_CONFLICT
   */
  async refund(orderId: string, { amount, reference }: Refunding) {
    const refund = reference ?? `${OPERATOR}-${randomUUID()}`;
    requireReference(refund);
    const { id } = await this.#require(orderId);
    const reported = { refund, amount, currency: undefined, reportedBy: OPERATOR, mayWait: false };
    const outcome = await this.#orders.refund(id, reported, ACTOR);
    if (outcome.kind === 'refunded' || outcome.kind === 'already-refunded') {
      const { order } = outcome;
      return {
        changed: outcome.kind === 'refunded',
        refund: viewRefund(outcome.refund, order.currency),
        order: viewOrder(order),
      };
    }
    throw refundErrorOf(outcome, orderId);
  }

  async #require(orderId: string): Promise<Order> {
    const order = await this.#orders.find(orderId);
    if (order === undefined) throw notFound(orderId);
    return order;
  }

  async #accountId(nameOrId: string | undefined): Promise<string | undefined> {
    if (nameOrId === undefined) return undefined;
    const account = await this.#accounts.findByNameOrId(nameOrId);
    if (account === undefined) {
      throw new ContractError('NOT_FOUND', `There is no account "${nameOrId}".`);
    }
    return account.id;
  }
}

function viewOrder(order: Order) {
  const { price, refunded, currency } = order;
  return {
    order_id: order.id,
    reference: order.reference,
    account_id: order.accountId,
    state: order.state,
    list: order.list,
    credits: order.credits,
    currency,
    amount: price,
    price: formatDecimal(price, currency),
    refunded_amount: refunded,
    refunded: formatDecimal(refunded, currency),
    credits_revoked: order.revoked,
    credits_not_revoked: order.unrevoked,
    created_at: isoTime(order.createdAtMs),
    expires_at: isoTime(order.expiresAtMs),
    paid_at: isoTime(order.paidAtMs),
    paid_by: order.paidBy,
    payment: order.payment,
    cancelled_at: isoTime(order.cancelledAtMs),
  };
}

function viewPayment({ payment, amount, outcome, reportedBy, ...rest }: OrderPayment, own: string) {
  const { currency, receivedAtMs } = rest;
  return {
    payment,
    outcome,
    amount,
    currency,
    // The service knows the smallest unit of its own currency only.
    sum: currency === own ? formatDecimal(amount, own) : null,
    told_by: reportedBy,
    received_at: isoTime(receivedAtMs),
  };
}

function viewRefund(refund: OrderRefund, currency: string) {
  const { amount, credits, revoked } = refund;
  return {
    refund: refund.refund,
    amount,
    sum: formatDecimal(amount, currency),
    credits,
    credits_revoked: revoked,
    credits_not_revoked: credits - revoked,
    told_by: refund.reportedBy,
    created_at: isoTime(refund.createdAtMs),
    applied_at: isoTime(refund.appliedAtMs),
  };
}

function requireReference(reference: string): void {
  if (isMoneyReference(reference)) return;
  throw invalid('reference', 'must be 1 to 64 printable ASCII characters without spaces');
}

type RefusedRefund = Exclude<RefundOutcome, { readonly kind: 'refunded' | 'already-refunded' }>;

function refundErrorOf(outcome: RefusedRefund, orderId: string): ContractError {
  switch (outcome.kind) {
    case 'unknown':
      return notFound(orderId);
    case 'not-paid':
      return conflict(`The order is ${outcome.order.state}. There is no payment to refund.`);
    case 'too-much': {
      const { left, order } = outcome;
      if (left === 0) return conflict('The order is already refunded in full.');
      const most = `${formatDecimal(left, order.currency)} ${order.currency}`;
      return invalid('amount', `must be at most ${most}, the rest of the price`);
    }
    case 'too-many':
      return conflict('The order already has as many refunds as it can.');
    case 'refund-conflict': {
      const { refund, order } = outcome;
      const sum = `${formatDecimal(refund.amount, order.currency)} ${order.currency}`;
      return conflict(`The refund "${refund.refund}" exists with another amount, ${sum}.`);
    }
    default:
      throw new Error(`an operator's refund ended ${outcome.kind}`);
  }
}

function paidWithAnother(payment: string | null): ContractError {
  return conflict(`The payment "${payment}" already paid this order. Nothing changed.`);
}

function conflict(detail: string): ContractError {
  return new ContractError('ORDER_CONFLICT', detail);
}

function invalid(field: string, detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', `${field} ${detail}.`, {
    fieldErrors: [{ field, detail }],
  });
}

function notFound(orderId: string): ContractError {
  return new ContractError('NOT_FOUND', `There is no order "${orderId}".`);
}
