/** The operator lists orders, reads one, confirms its payment, and refunds it. */

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

/** Orders have this name in `paid_by`, and refunds as who reported them. */
export const OPERATOR = 'operator';
const ACTOR: ServiceActor = { kind: 'operator' };

export interface OrderQuestion {
  /** If undefined, all states are listed. */
  readonly state: ListedOrderState | undefined;
  /** The account's name or id; undefined: all accounts. */
  readonly account: string | undefined;
  readonly limit: number;
  /** The `cursor` of the previous page's last order; undefined: the first page. */
  readonly after: string | undefined;
}

interface Refunding {
  /** The amount is in the currency's smallest unit; undefined: all that is left of the price. */
  readonly amount: number | undefined;
  /** The payment provider or bank calls the refund so; undefined: the service makes one up. */
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
   * Lists the latest first. @throws ContractError NOT_FOUND: the account; INVALID_REQUEST: `after`
   */
  async list({ state, account, limit, after }: OrderQuestion) {
    const place = after === undefined ? undefined : parseCursor(after);
    if (after !== undefined && place === undefined) {
      throw invalid('after', 'must be the cursor of a listed order');
    }
    const accountId = await this.#accountId(account);
    const orders = await this.#orders.list({ state, accountId, after: place, limit });
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
      /** Jobs that were open at a refund and failed gave back so many of `credits_revoked`. */
      credits_revoked_later: order.revoked - atRefunds,
      payments: payments.map(payment => viewPayment(payment, order.currency)),
      refunds: refunds.map(refund => viewRefund(refund, order.currency)),
    };
  }

  /**
   * Says that the price was paid: grants the order's credits, once. Also of an order that has
   * expired or was cancelled (`late`): the money is there. `changed` is false where it was confirmed
   * before.
   * @param payment what the payment is called where the money is; undefined: `operator`
   * @throws ContractError NOT_FOUND, INVALID_REQUEST; ORDER_CONFLICT: paid with another payment
   */
  async confirm(orderId: string, payment: string = OPERATOR) {
    requireReference(payment);
    const { id, price: amount, currency, stored, payment: paid } = await this.#require(orderId);
    if (stored === 'paid' && paid !== payment) throw paidWithAnother(paid);
    const told = { payment, amount, currency, toldBy: OPERATOR };
    const outcome = await this.#orders.pay(id, told, ACTOR);
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
   * Says that money was paid back: takes the credits back that it stands for, as far as they are
   * available. The money itself is the operator's to send. `changed` is false where this refund was
   * entered before.
   * @throws ContractError NOT_FOUND, INVALID_REQUEST, ORDER_CONFLICT
   */
  async refund(orderId: string, { amount, reference }: Refunding) {
    const refund = reference ?? `${OPERATOR}-${randomUUID()}`;
    requireReference(refund);
    const { id } = await this.#require(orderId);
    const told = { refund, amount, currency: undefined, toldBy: OPERATOR, mayWait: false };
    const outcome = await this.#orders.refund(id, told, ACTOR);
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

/** Shows sums twice: as the integers they are, and as people write them. */
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

function viewPayment({ payment, amount, outcome, toldBy, ...rest }: OrderPayment, own: string) {
  const { currency, receivedAtMs } = rest;
  return {
    payment,
    outcome,
    amount,
    currency,
    // Only the smallest unit of the service's own currency is known.
    sum: currency === own ? formatDecimal(amount, own) : null,
    told_by: toldBy,
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
    told_by: refund.toldBy,
    created_at: isoTime(refund.createdAtMs),
    /** null: the refund waits for the payment. */
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
