/**
 * The rules of orders, without effects. Sums of money are whole numbers of the currency's smallest
 * unit.
 *
 * | stored    | reads                      | entered by               | left by               |
 * |-----------|----------------------------|--------------------------|-----------------------|
 * | pending   | pending; expired in time   | the order                | cancelling, a payment |
 * | cancelled | cancelled                  | the owner, while pending | a payment             |
 * | paid      | paid, partly-refunded,     | a payment of the price   | nothing               |
 * |           | refunded                   |                          |                       |
 *
 * A payment of an expired or cancelled order still pays it at its stored price, since the money
 * came. A refund that is reported before its payment waits for it. So notifications may come in any
 * order and repeatedly.
 */
import { createHash } from 'node:crypto';
import { DAY_MS } from '@matting/program/durations.ts';

export type StoredOrderState = 'pending' | 'cancelled' | 'paid';
export type OrderState = StoredOrderState | 'expired' | 'partly-refunded' | 'refunded';

export const ORDERS_PENDING_MAX = 5;
/** Orders of one account in DAY_MS, including cancelled ones, whose rows stay. */
export const ORDERS_A_DAY_MAX = 20;
/** How long the price holds: a bank takes days. At least DAY_MS. */
export const ORDER_VALID_MS = 7 * DAY_MS;
/** Payments of one order that the service keeps in addition to the accepted one. */
export const ODD_PAYMENTS_MAX = 20;
export const REFUNDS_MAX = 50;

const PRICE_MAX = 1_000_000_000_000;

export interface Order {
  readonly id: string;
  /** The payer writes it into a transfer: `M-7F3K-22`. Null: the order is older than references. */
  readonly reference: string | null;
  readonly accountId: string;
  readonly list: 'credit' | 'image';
  readonly credits: number;
  readonly price: number;
  readonly currency: string;
  readonly stored: StoredOrderState;
  readonly state: OrderState;
  readonly refunded: number;
  /**
   * `revoked`: credits that refunds took back. `unrevoked`: credits that refunds could not take
   * back, since they were spent or reserved.
   */
  readonly revoked: number;
  readonly unrevoked: number;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
  readonly paidAtMs: number | null;
  readonly paidBy: string | null;
  readonly payment: string | null;
  readonly cancelledAtMs: number | null;
}

export function orderStateOf(
  order: { readonly stored: StoredOrderState } & Pick<Order, 'price' | 'refunded' | 'expiresAtMs'>,
  nowMs: number,
): OrderState {
  if (order.stored === 'pending') return order.expiresAtMs <= nowMs ? 'expired' : 'pending';
  if (order.stored === 'cancelled' || order.refunded === 0) return order.stored;
  return order.refunded === order.price ? 'refunded' : 'partly-refunded';
}

/**
 * - accepted: it paid the order. An order has at most one.
 * - again: another payment had paid the order, so the operator owes this one back.
 * - differs: not the order's price or currency, so it granted nothing.
 */
export type PaymentOutcome = 'accepted' | 'again' | 'differs';

export interface Payment {
  readonly payment: string;
  readonly amount: number;
  readonly currency: string;
}

export function judgePayment(
  order: Pick<Order, 'price' | 'currency' | 'stored'>,
  { amount, currency }: Pick<Payment, 'amount' | 'currency'>,
): PaymentOutcome {
  if (amount !== order.price || currency !== order.currency) return 'differs';
  return order.stored === 'paid' ? 'again' : 'accepted';
}

/**
 * Credits that a refund takes back, rounded against the payer. They follow from the sum of all
 * refunds, so that parts take as many as one refund of their sum, and a full refund takes all.
 * @param order `refunded` excludes this refund
 * @param amount at least 1, at most the rest of the price
 */
export function creditsOfRefund(
  { credits, price, refunded }: Pick<Order, 'credits' | 'price' | 'refunded'>,
  amount: number,
): number {
  if (!isMoneyAmount(amount) || refunded + amount > price) {
    throw new RangeError(`${amount} is no part of what is left of the price`);
  }
  return keptCredits(credits, price, refunded) - keptCredits(credits, price, refunded + amount);
}

function keptCredits(credits: number, price: number, refunded: number): number {
  return Number((BigInt(price - refunded) * BigInt(credits)) / BigInt(price));
}

export function isMoneyAmount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 1 && (value as number) <= PRICE_MAX;
}

/** A provider's id of a payment or refund. */
export function isMoneyReference(value: unknown): value is string {
  return typeof value === 'string' && /^[\x21-\x7e]{1,64}$/.test(value);
}

/** Without letters that people confuse: 0 and O, 1, I and L, U and V. */
const LETTERS = '23456789ABCDEFGHJKMNPQRSTWXYZ';
const REFERENCE_LENGTH = 6;
const REFERENCE = new RegExp(`^M([${LETTERS}]{4})([${LETTERS}]{2})$`);

/**
 * One of 29^6 = 595 million, so a typing error hardly hits another order, and collisions are rare.
 * @param attempt gives another reference after a collision
 */
export function orderReferenceOf(orderId: string, attempt: number): string {
  const bytes = createHash('sha256').update(`${orderId}\n${attempt}`).digest();
  let left = bytes.readUIntBE(0, 6);
  let letters = '';
  while (letters.length < REFERENCE_LENGTH) {
    letters += LETTERS[left % LETTERS.length];
    left = Math.floor(left / LETTERS.length);
  }
  return `M-${letters.slice(0, 4)}-${letters.slice(4)}`;
}

/** Accepts lower case, and any spaces or dashes. Undefined: not a reference. */
export function parseOrderReference(text: string): string | undefined {
  const [, first, second] = REFERENCE.exec(text.replaceAll(/[\s-]/g, '').toUpperCase()) ?? [];
  return first === undefined ? undefined : `M-${first}-${second}`;
}

export function grantReferenceOf(orderId: string): string {
  return `order:${orderId}`;
}

export function refundReferenceOf(orderId: string, refund: string): string {
  return `refund:${orderId}:${refund}`;
}

/** The ledger's reference for credits that a job gave back after its order's refund. */
export function releaseReferenceOf(orderId: string, jobId: string): string {
  return `released:${orderId}:${jobId}`;
}

/** Digits after the decimal point (ISO 4217). */
const MINOR_DIGITS: Readonly<Record<string, number>> = { CNY: 2 };

function minorDigitsOf(currency: string): number {
  const digits = MINOR_DIGITS[currency];
  if (digits === undefined) throw new RangeError(`${currency} is no currency of a price list`);
  return digits;
}

export function smallestUnits(wholeUnits: number, currency: string): number {
  return wholeUnits * 10 ** minorDigitsOf(currency);
}

/** "12.50" for 1250 fen, without a sign or separators. */
export function formatDecimal(amount: number, currency: string): string {
  const digits = minorDigitsOf(currency);
  const text = String(amount).padStart(digits + 1, '0');
  return digits === 0 ? text : `${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

/** Parses 12, 12.5 or 12.50. Undefined: not a sum, or more digits than the currency has. */
export function parseDecimal(text: string, currency: string): number | undefined {
  const digits = minorDigitsOf(currency);
  const parts = /^(\d{1,10})(?:\.(\d{1,4}))?$/.exec(text);
  if (parts === null) return undefined;
  const [, whole = '', fraction = ''] = parts;
  if (fraction.length > digits) return undefined;
  const amount = Number(`${whole}${fraction.padEnd(digits, '0')}`);
  return isMoneyAmount(amount) ? amount : undefined;
}

interface CreditPackage {
  readonly credits: number;
  /** Of the whole package, in whole units of the list's currency. */
  readonly price: number;
  /** Decimal, as listed. Some are rounded, so it is never computed. */
  readonly unitPrice: string;
}

export interface PriceList {
  /** The price list's word for a credit. An image costs one credit in any case. */
  readonly unit: 'credit' | 'image';
  readonly currency: 'CNY';
  readonly packages: readonly CreditPackage[];
}

/** `none`: nothing is sold. */
export type ListOnSale = PriceList['unit'] | 'none';

export const PRICE_LISTS: readonly PriceList[] = [
  {
    unit: 'credit',
    currency: 'CNY',
    packages: [
      { credits: 2500, price: 50, unitPrice: '0.02' },
      { credits: 80_000, price: 1200, unitPrice: '0.015' },
      { credits: 107_200, price: 1500, unitPrice: '0.014' },
      { credits: 640_000, price: 8000, unitPrice: '0.0125' },
      { credits: 1_000_000, price: 11_500, unitPrice: '0.0115' },
      { credits: 1_300_000, price: 13_000, unitPrice: '0.01' },
    ],
  },
  {
    unit: 'image',
    currency: 'CNY',
    packages: [
      { credits: 100, price: 10, unitPrice: '0.1' },
      { credits: 500, price: 45, unitPrice: '0.09' },
      { credits: 1000, price: 80, unitPrice: '0.08' },
      { credits: 5000, price: 350, unitPrice: '0.07' },
      { credits: 10_000, price: 650, unitPrice: '0.065' },
      { credits: 20_000, price: 1200, unitPrice: '0.06' },
    ],
  },
];

export const PACKAGES_VIEW = {
  lists: PRICE_LISTS.map(({ unit, currency, packages }) => ({
    unit,
    currency,
    packages: packages.map(({ credits, price, unitPrice }) => ({
      credits,
      price,
      unit_price: unitPrice,
    })),
  })),
};
