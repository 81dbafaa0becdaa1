/**
 * Notifications of payments signed as Standard Webhooks, by whatever the operator has between a
 * provider and this service: `{type, timestamp, data: {order_id, payment_id or refund_id, amount,
 * currency}}`. The signature is over the bytes as they came, and is checked before they are read.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { ContractError, type FieldError } from '#contract/errors.ts';
import { wrongWithSignature } from '../../core/webhooks/signature.ts';
import { isMoneyAmount, isMoneyReference, type Payment } from './order-rules.ts';

/** Where what a type of notification tells of is named. */
const REFERENCE_FIELDS = { 'order.paid': 'payment_id', 'order.refunded': 'refund_id' } as const;
type NoticeType = keyof typeof REFERENCE_FIELDS;

const ORDER_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const CURRENCY = /^[A-Z]{3}$/;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/;

type Fields = Readonly<Record<string, unknown>>;

export class SignedNotifications {
  /** In `paid_by` of orders; not `operator`. */
  readonly name = 'notification';
  readonly #key: Uint8Array;
  readonly #nowMs: () => number;

  /** @param key what MATTING_PAYMENT_SECRET stands for */
  constructor(key: Uint8Array, nowMs: () => number = Date.now) {
    this.#key = key;
    this.#nowMs = nowMs;
  }

  /**
   * What a message says. Nothing of it is believed before it is proven.
   * @param body its bytes as they came
   * @throws ContractError INVALID_REQUEST where it is not the operator's own, or makes no sense
   */
  read(headers: IncomingHttpHeaders, body: Uint8Array): PaymentNotice {
    const wrong = wrongWithSignature(this.#key, headers, body, Math.floor(this.#nowMs() / 1000));
    if (wrong !== undefined) {
      const fieldErrors = [{ field: 'webhook-signature', detail: wrong }];
      throw new ContractError('INVALID_REQUEST', 'the signature does not hold', { fieldErrors });
    }
    return noticeOf(parse(body));
  }
}

function parse(body: Uint8Array): Fields {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
    if (isFields(value)) return value;
  } catch (cause) {
    throw new ContractError('INVALID_REQUEST', 'the body is no JSON', { cause });
  }
  throw new ContractError('INVALID_REQUEST', 'the body is no JSON object');
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function noticeOf(body: Fields): PaymentNotice {
  const check = new FieldCheck();
  const type = Object.keys(REFERENCE_FIELDS).find(known => known === body.type);
  const data = isFields(body.data) ? body.data : {};
  check.that(type !== undefined, 'type', Object.keys(REFERENCE_FIELDS).join(' or '));
  const { timestamp } = body;
  const isInstant = typeof timestamp === 'string' && INSTANT.test(timestamp);
  check.that(isInstant, 'timestamp', 'an instant such as 2026-01-31T09:00:00Z');
  check.that(isFields(body.data), 'data', 'an object');
  const referenceField = REFERENCE_FIELDS[(type ?? 'order.paid') as NoticeType];
  const { order_id: orderId, amount, currency, [referenceField]: reference } = data;
  const isOrder = typeof orderId === 'string' && ORDER_ID.test(orderId);
  check.that(isOrder, 'data.order_id', 'the id of an order');
  check.that(isMoneyReference(reference), `data.${referenceField}`, 'printable ASCII, 1 to 64');
  check.that(
    isMoneyAmount(amount),
    'data.amount',
    "a whole number of the currency's smallest unit",
  );
  const isCurrency = typeof currency === 'string' && CURRENCY.test(currency);
  check.that(isCurrency, 'data.currency', 'a code such as CNY');
  check.noOthers(body, ['type', 'timestamp', 'data'], '');
  check.noOthers(data, ['order_id', referenceField, 'amount', 'currency'], 'data.');
  check.requireValid();
  const told = { amount: amount as number, currency: currency as string };
  const [id, name] = [orderId as string, reference as string];
  if (type === 'order.paid') {
    return { kind: 'payment', orderId: id, payment: { payment: name, ...told } };
  }
  return { kind: 'refund', orderId: id, refund: name, ...told };
}

/** Gathers what is wrong, so that all of it is said at once. */
class FieldCheck {
  readonly #errors: FieldError[] = [];

  that(holds: boolean, field: string, expected: string): void {
    if (!holds) this.#errors.push({ field, detail: expected });
  }

  noOthers(fields: Fields, known: readonly string[], prefix: string): void {
    for (const field of Object.keys(fields)) {
      if (known.includes(field)) continue;
      // A name of the body's own is cut: the answer stays small.
      const named = `${prefix}${field}`.slice(0, 64);
      this.#errors.push({ field: named, detail: 'there is no such field' });
    }
  }

  requireValid(): void {
    if (this.#errors.length === 0) return;
    const options = { fieldErrors: this.#errors.slice(0, 10) };
    throw new ContractError('INVALID_REQUEST', 'the notification is not valid', options);
  }
}

export type PaymentNotice =
  | { readonly kind: 'payment'; readonly orderId: string; readonly payment: Payment }
  | {
      readonly kind: 'refund';
      readonly orderId: string;
      readonly refund: string;
      /** In the currency's smallest unit. */
      readonly amount: number;
      readonly currency: string;
    };
