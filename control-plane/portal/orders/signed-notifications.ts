/** Verifies and parses the notifications of receive-payment.ts. */

import type { IncomingHttpHeaders } from 'node:http';
import { wrongWithSignature } from '@matting/http/outgoing/webhook-signature.ts';
import { ContractError, type FieldError } from '@matting/proto/contract/errors.ts';
import {
  isMoneyAmount,
  isMoneyReference,
  type Payment,
  parseOrderReference,
} from './order-rules.ts';

const REFERENCE_FIELDS = { 'order.paid': 'payment_id', 'order.refunded': 'refund_id' } as const;
type NoticeType = keyof typeof REFERENCE_FIELDS;

const ORDER_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const CURRENCY = /^[A-Z]{3}$/;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/;

type Fields = Readonly<Record<string, unknown>>;

export class SignedNotifications {
  /** Its name in `paid_by`, distinct from `operator`. */
  readonly name = 'notification';
  readonly #key: Uint8Array;
  readonly #nowMs: () => number;

  constructor(key: Uint8Array, nowMs: () => number = Date.now) {
    this.#key = key;
    this.#nowMs = nowMs;
  }

  /**
   * @param body its bytes as they came
   * @throws ContractError INVALID_REQUEST: the signature or a field is wrong
   */
  read(headers: IncomingHttpHeaders, body: Uint8Array): PaymentNotice {
    const wrong = wrongWithSignature(this.#key, headers, body, Math.floor(this.#nowMs() / 1000));
    if (wrong !== undefined) {
      const fieldErrors = [{ field: 'webhook-signature', detail: wrong }];
      throw new ContractError('INVALID_REQUEST', 'The signature is not valid.', { fieldErrors });
    }
    return noticeOf(parse(body));
  }
}

function parse(body: Uint8Array): Fields {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
    if (isFields(value)) return value;
  } catch (cause) {
    throw new ContractError('INVALID_REQUEST', 'The body is not JSON.', { cause });
  }
  throw new ContractError('INVALID_REQUEST', 'The body is not a JSON object.');
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function noticeOf(body: Fields): PaymentNotice {
  const check = new FieldCheck();
  const type = Object.keys(REFERENCE_FIELDS).find(known => known === body.type);
  const data = isFields(body.data) ? body.data : {};
  check.that(type !== undefined, 'type', `must be ${Object.keys(REFERENCE_FIELDS).join(' or ')}`);
  const { timestamp } = body;
  const isInstant = typeof timestamp === 'string' && INSTANT.test(timestamp);
  check.that(isInstant, 'timestamp', 'must be a time such as 2026-01-31T09:00:00Z');
  check.that(isFields(body.data), 'data', 'must be an object');
  const referenceField = REFERENCE_FIELDS[(type ?? 'order.paid') as NoticeType];
  const { order_id: orderId, amount, currency, [referenceField]: reference } = data;
  const isOrder =
    typeof orderId === 'string' &&
    (ORDER_ID.test(orderId) || parseOrderReference(orderId) !== undefined);
  check.that(isOrder, 'data.order_id', 'must be the id or the payment reference of an order');
  check.that(
    isMoneyReference(reference),
    `data.${referenceField}`,
    'must be 1 to 64 printable ASCII characters',
  );
  check.that(
    isMoneyAmount(amount),
    'data.amount',
    "must be a whole number of the currency's smallest unit",
  );
  const isCurrency = typeof currency === 'string' && CURRENCY.test(currency);
  check.that(isCurrency, 'data.currency', 'must be a code such as CNY');
  check.noOthers(body, ['type', 'timestamp', 'data'], '');
  check.noOthers(data, ['order_id', referenceField, 'amount', 'currency'], 'data.');
  check.requireValid();
  const sum = { amount: amount as number, currency: currency as string };
  const [id, name] = [orderId as string, reference as string];
  if (type === 'order.paid') {
    return { kind: 'payment', orderId: id, payment: { payment: name, ...sum } };
  }
  return { kind: 'refund', orderId: id, refund: name, ...sum };
}

class FieldCheck {
  readonly #errors: FieldError[] = [];

  that(holds: boolean, field: string, expected: string): void {
    if (!holds) this.#errors.push({ field, detail: expected });
  }

  noOthers(fields: Fields, known: readonly string[], prefix: string): void {
    for (const field of Object.keys(fields)) {
      if (known.includes(field)) continue;
      // Cuts the name, so that the answer stays small.
      const named = `${prefix}${field}`.slice(0, 64);
      this.#errors.push({ field: named, detail: 'is unknown' });
    }
  }

  requireValid(): void {
    if (this.#errors.length === 0) return;
    const options = { fieldErrors: this.#errors.slice(0, 10) };
    throw new ContractError('INVALID_REQUEST', 'The notification is not valid.', options);
  }
}

export type PaymentNotice =
  | { readonly kind: 'payment'; readonly orderId: string; readonly payment: Payment }
  | {
      readonly kind: 'refund';
      readonly orderId: string;
      readonly refund: string;
      readonly amount: number;
      readonly currency: string;
    };
