/** The tables of orders and of lost results, as Kysely sees them (migrations/0011-orders.ts and later ones). */
import type { PaymentOutcome, StoredOrderState } from '../../domain/account/orders.ts';

/** A purchase of one package, at the price of its day: domain/account/orders.ts. Never removed. */
export interface OrdersTable {
  id: string;
  account_id: string;
  price_list: 'credit' | 'image';
  credits: number;
  /** In the currency's smallest unit, as every sum of money here. */
  price: number;
  currency: string;
  /** 'pending' past expires_at is expired. */
  state: StoredOrderState;
  /** Of the price, paid back. */
  refunded: number;
  /** Credits that refunds took back, and those that they could not: spent, or held by jobs. */
  revoked: number;
  unrevoked: number;
  /**
   * The last refund that left something. null: `unrevoked` is 0, or was left by a control plane
   * from before the column.
   */
  unrevoked_at: number | null;
  created_at: number;
  expires_at: number;
  paid_at: number | null;
  /** Who told of the payment. */
  paid_by: string | null;
  /** The payment that was accepted. */
  payment: string | null;
  cancelled_at: number | null;
}

/** Payments that were told of, each once; of an order whatever its state. */
export interface OrderPaymentsTable {
  order_id: string;
  payment: string;
  amount: number;
  currency: string;
  outcome: PaymentOutcome;
  told_by: string;
  received_at: number;
}

/** Refunds, each once. */
export interface OrderRefundsTable {
  order_id: string;
  refund: string;
  amount: number;
  /** Credits that the amount stands for, and how many of them could be taken back. */
  credits: number;
  revoked: number;
  told_by: string;
  created_at: number;
  /** null: it was told of before the payment, and waits for it. */
  applied_at: number | null;
}

/** A row a result whose file was gone while its link was good (store/jobs/lost-results.ts). */
export interface LostResultsTable {
  job_id: string;
  account_id: string;
  /** Of whoever found it. */
  finding_id: string;
  found_by: 'download' | 'replay' | 'look' | 'operator';
  found_at: number;
  settlement: 'paid' | 'returned' | 'unpaid' | null;
  settled_at: number | null;
}

export interface SalesSchema {
  lost_results: LostResultsTable;
  orders: OrdersTable;
  order_payments: OrderPaymentsTable;
  order_refunds: OrderRefundsTable;
}
