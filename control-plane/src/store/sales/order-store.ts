/**
 * Orders, the payments and refunds that were told of, and what they move in the ledger. Every
 * change commits with its ledger entry and its line in the audit log, and every method that changes
 * something may be called again: domain/account/orders.ts says what then holds.
 */
import type { Actor, ServiceActor } from '../../domain/account/actor.ts';
import type { Order, OrderState, Payment, PaymentOutcome } from '../../domain/account/orders.ts';
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
