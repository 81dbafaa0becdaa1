/**
 * The rules of orders: one package at the price of its day, paid in whole, refunded in whole or in
 * part. Pure. Sums of money are whole numbers of the currency's smallest unit, never fractions.
 *
 * | stored    | reads                      | entered by               | left by               |
 * |-----------|----------------------------|--------------------------|-----------------------|
 * | pending   | pending; expired in time   | the order                | cancelling, a payment |
 * | cancelled | cancelled                  | the owner, while pending | a payment             |
 * | paid      | paid, partly-refunded,     | a payment of the price   | nothing               |
 * |           | refunded                   |                          |                       |
 *
 * Money that came is honoured: a payment of an order that has expired or was cancelled still makes
 * it paid, at its stored price. A refund that is reported before its payment waits for it. So
 * notifications may come in any order and any number of times, and end the same.
 */
import { createHash } from 'node:crypto';
import { DAY_MS } from '@matting/program/durations.ts';

export type StoredOrderState = 'pending' | 'cancelled' | 'paid';
export type OrderState = StoredOrderState | 'expired' | 'partly-refunded' | 'refunded';

export const ORDERS_PENDING_MAX = 5;
/**
 * An account may place so many orders in DAY_MS, also if they were cancelled: their rows are kept.
 */
export const ORDERS_A_DAY_MAX = 20;
/** How long an order can be paid at its price: a bank takes days. At least DAY_MS. */
export const ORDER_VALID_MS = 7 * DAY_MS;
/** The service keeps so many payments of one order beside the accepted one. */
export const ODD_PAYMENTS_MAX = 20;
export const REFUNDS_MAX = 50;

/** The largest price, in the smallest unit, keeps sums exact as JavaScript numbers. */
const PRICE_MAX = 1_000_000_000_000;

export interface Order {
  readonly id: string;
  /** A payer writes it into a transfer: `M-7F3K-22`. Null: the order is older than references. */
  readonly reference: string | null;
  readonly accountId: string;
  readonly list: 'credit' | 'image';
  readonly credits: number;
  /** The price is in the currency's smallest unit, as every sum of money here. */
  readonly price: number;
  /** The currency is a code of ISO 4217. */
  readonly currency: string;
  readonly stored: StoredOrderState;
  readonly state: OrderState;
  /** So much of the price was paid back. */
  readonly refunded: number;
  /** Counts credits that refunds took back, and credits, spent or reserved, that they could not. */
  readonly revoked: number;
  readonly unrevoked: number;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
  readonly paidAtMs: number | null;
  /** Names who reported the payment. */
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
 * - accepted: the order is paid with it. At most one of an order.
 * - again: the order was paid with another: this money is owed back.
 * - differs: not the order's price or currency: nothing was granted for it.
 */
export type PaymentOutcome = 'accepted' | 'again' | 'differs';

export interface Payment {
  /** The payment has this id where the money is: isMoneyReference. */
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
 * Credits that go back with a refund: what keeps as many as the rest of the price pays for, rounded
 * against the one who is refunded. It follows from the sum of all refunds, so that parts take what
 * one refund of their sum would, and all parts of the price take all credits.
 * @param order `refunded`: before this refund
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

/** True for an amount that can change hands: a whole number of the smallest unit, at least 1. */
export function isMoneyAmount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 1 && (value as number) <= PRICE_MAX;
}

/**
 * True for the name that a provider gives a payment or refund: 1 to 64 printable ASCII characters.
 */
export function isMoneyReference(value: unknown): value is string {
  return typeof value === 'string' && /^[\x21-\x7e]{1,64}$/.test(value);
}

/** The alphabet leaves out letters that people confuse: 0 and O, 1, I and L, U and V. */
const LETTERS = '23456789ABCDEFGHJKMNPQRSTWXYZ';
const REFERENCE_LENGTH = 6;
const REFERENCE = new RegExp(`^M([${LETTERS}]{4})([${LETTERS}]{2})$`);

/**
 * A reference for the order: 29^6 are 595 million, so that a slip of the pen is hardly another
 * order's, and two orders that draw the same are rare.
 * @param attempt another one where it is taken
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

/** Reads it as people type it, without dashes or in small letters too. Undefined: no reference. */
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

/**
 * The ledger revokes under this reference what an open job held at a refund and gave back later.
 */
export function releaseReferenceOf(orderId: string, jobId: string): string {
  return `released:${orderId}:${jobId}`;
}

/** ISO 4217 gives each currency so many digits behind the point. */
const MINOR_DIGITS: Readonly<Record<string, number>> = { CNY: 2 };

function minorDigitsOf(currency: string): number {
  const digits = MINOR_DIGITS[currency];
  if (digits === undefined) throw new RangeError(`${currency} is no currency of a price list`);
  return digits;
}

export function smallestUnits(wholeUnits: number, currency: string): number {
  return wholeUnits * 10 ** minorDigitsOf(currency);
}

/** "12.50" for 1250 fen: what people type and machines read, without a sign or separators. */
export function formatDecimal(amount: number, currency: string): string {
  const digits = minorDigitsOf(currency);
  const text = String(amount).padStart(digits + 1, '0');
  return digits === 0 ? text : `${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

/** Parses 12, 12.5 or 12.50. Undefined: the text is no sum, or is finer than the currency. */
export function parseDecimal(text: string, currency: string): number | undefined {
  const digits = minorDigitsOf(currency);
  const parts = /^(\d{1,10})(?:\.(\d{1,4}))?$/.exec(text);
  if (parts === null) return undefined;
  const [, whole = '', fraction = ''] = parts;
  if (fraction.length > digits) return undefined;
  const amount = Number(`${whole}${fraction.padEnd(digits, '0')}`);
  return isMoneyAmount(amount) ? amount : undefined;
}

/** Credits are sold in these packages: two price lists, as published. */

interface CreditPackage {
  readonly credits: number;
  /** The price is the whole package's, in whole units of the list's currency. */
  readonly price: number;
  /** Decimal, as listed: some are rounded, so it is never computed from the other two. */
  readonly unitPrice: string;
}

export interface PriceList {
  /** The list counts in this unit; one image costs one credit either way. */
  readonly unit: 'credit' | 'image';
  readonly currency: 'CNY';
  readonly packages: readonly CreditPackage[];
}

/** Names the list whose packages are sold; `none`: nothing is sold. */
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

/** GET /v1/account/packages answers this. */
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
