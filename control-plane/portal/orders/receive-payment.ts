/**
 * POST /account/payments/notifications: payments and refunds, signed as Standard Webhooks: `{type,
 * timestamp, data: {order_id, payment_id or refund_id, amount, currency}}`. There is no session and
 * no key. The signature over the raw bytes is the proof, and is checked before parsing.
 *
 * | report                   | the order                  | effect                                 |
 * |--------------------------|----------------------------|----------------------------------------|
 * | a payment of its price   | pending, expired, cancelled| paid, credits granted                  |
 * | the same payment         | paid with it               | already_paid                           |
 * | another payment          | paid                       | kept for the operator: paid_again      |
 * | another sum or currency  | any                        | refused, kept for the operator         |
 * | a refund                 | paid                       | refunded, credits revoked pro rata     |
 * | a refund                 | not paid                   | waiting: done when the payment comes   |
 * | the same refund          | any                        | already_refunded or waiting            |
 */

import type { IncomingHttpHeaders } from 'node:http';
import type { ServiceActor } from '@matting/accounts/audit-log.ts';
import { readBody } from '@matting/http/bodies.ts';
import { KeptBytes } from '@matting/http/kept-bytes.ts';
import { wantBody } from '@matting/http/unread-bodies.ts';
import { UNCOUNTED } from '@matting/program/held-bytes.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { ContractError, unavailable } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance } from 'fastify';
import { AttemptWindows } from '../session/attempt-windows.ts';
import type { OrderStore } from './order-store.ts';
import type { PayOutcome } from './pay-order.ts';
import type { RefundOutcome } from './refund-order.ts';
import type { PaymentNotice, SignedNotifications } from './signed-notifications.ts';

/** Valid notifications of a replica: far more than orders are placed. */
const NOTIFICATIONS_A_MINUTE_MAX = 600;
const NOTIFICATIONS_AT_ONCE_MAX = 8;
const RATE = { windowMs: 60_000, max: NOTIFICATIONS_A_MINUTE_MAX, keysMax: 1 };
const RETRY_AFTER_S = 1;

const ACTOR: ServiceActor = { kind: 'payment' };

const RECEIVED_OUTCOMES = [
  'paid',
  'already_paid',
  'paid_again',
  'refunded',
  'already_refunded',
  'waiting',
] as const;

type ReceivedOutcome = (typeof RECEIVED_OUTCOMES)[number];

export const NOTIFICATION_OUTCOMES = [...RECEIVED_OUTCOMES, 'refused'] as const;
type NotificationOutcome = (typeof NOTIFICATION_OUTCOMES)[number];

interface Received {
  readonly order_id: string;
  readonly outcome: ReceivedOutcome;
}

interface ReceivePaymentOptions {
  readonly provider: Pick<SignedNotifications, 'read'> & { readonly name: string };
  readonly orders: Pick<OrderStore, 'pay' | 'refund'>;
  readonly onNotification?: ((outcome: NotificationOutcome) => void) | undefined;
}

export class ReceivePayment {
  readonly #provider: ReceivePaymentOptions['provider'];
  readonly #orders: ReceivePaymentOptions['orders'];
  readonly #onNotification: ((outcome: NotificationOutcome) => void) | undefined;
  readonly #rate = new AttemptWindows(RATE);
  readonly #atOnce = new Semaphore({
    max: NOTIFICATIONS_AT_ONCE_MAX,
    waitingMax: 0,
    refusal: () => unavailable('Too many notifications arrive at once.', RETRY_AFTER_S),
  });

  constructor(options: ReceivePaymentOptions) {
    this.#provider = options.provider;
    this.#orders = options.orders;
    this.#onNotification = options.onNotification;
  }

  /**
   * The sender should repeat it after RATE_LIMITED and SERVICE_UNAVAILABLE.
   * @throws ContractError INVALID_REQUEST, NOT_FOUND: no such order, RATE_LIMITED,
   * SERVICE_UNAVAILABLE
   */
  async receive(headers: IncomingHttpHeaders, body: Uint8Array): Promise<Received> {
    const notice = this.#provider.read(headers, body);
    try {
      const received = await this.#receive(notice);
      this.#onNotification?.(received.outcome);
      return received;
    } catch (error) {
      this.#onNotification?.('refused');
      throw error;
    }
  }

  async #receive(notice: PaymentNotice): Promise<Received> {
    const retryAfterS = this.#rate.waitS('all');
    if (retryAfterS > 0) {
      throw new ContractError('RATE_LIMITED', 'Too many notifications.', { retryAfterS });
    }
    this.#rate.count('all');
    const outcome = await this.#atOnce.run({}, () => this.#enter(notice));
    return { order_id: notice.orderId, outcome };
  }

  async #enter(notice: PaymentNotice): Promise<ReceivedOutcome> {
    const { orderId } = notice;
    const reportedBy = this.#provider.name;
    if (notice.kind === 'payment') {
      const payment = { ...notice.payment, reportedBy };
      return paidOutcome(await this.#orders.pay(orderId, payment, ACTOR), orderId);
    }
    const { refund, amount, currency } = notice;
    const reported = { refund, amount, currency, reportedBy, mayWait: true };
    return refundedOutcome(await this.#orders.refund(orderId, reported, ACTOR), orderId);
  }
}

function paidOutcome(outcome: PayOutcome, orderId: string): ReceivedOutcome {
  switch (outcome.kind) {
    case 'paid':
      return 'paid';
    case 'already-paid':
      return 'already_paid';
    case 'paid-again':
      return 'paid_again';
    case 'differs':
      throw differs(outcome.field, outcome.order);
    case 'unknown':
      throw unknown(orderId);
  }
}

function refundedOutcome(outcome: RefundOutcome, orderId: string): ReceivedOutcome {
  switch (outcome.kind) {
    case 'refunded':
      return 'refunded';
    case 'already-refunded':
      return 'already_refunded';
    case 'waiting':
      return 'waiting';
    case 'too-much':
      throw invalid('amount', `must be at most ${outcome.left}, the rest of the price`);
    case 'currency-differs':
      throw differs('currency', outcome.order);
    case 'refund-conflict':
      throw invalid('refund_id', `was used before with the amount ${outcome.refund.amount}`);
    case 'too-many':
      throw invalid('refund_id', 'is one more than the order can have');
    case 'not-paid':
      throw new Error('a refund that may wait was refused');
    case 'unknown':
      throw unknown(orderId);
  }
}

function differs(
  field: 'amount' | 'currency',
  { price, currency }: { readonly price: number; readonly currency: string },
): ContractError {
  return invalid(field, `must be ${field === 'amount' ? price : currency}, as in the order`);
}

function invalid(field: string, detail: string): ContractError {
  const fieldErrors = [{ field: `data.${field}`, detail }];
  return new ContractError('INVALID_REQUEST', 'The notification does not match the order.', {
    fieldErrors,
  });
}

function unknown(orderId: string): ContractError {
  return new ContractError('NOT_FOUND', `There is no order ${orderId}.`);
}

const NOTIFICATIONS_PATH = '/account/payments/notifications';
/** A notification has some 300 bytes. Anybody can send this much before the signature check. */
const NOTIFICATION_BYTES_MAX = 8 * 1024;
const NOTIFICATION_MS_MAX = 5000;

export function registerPaymentRoutes(app: FastifyInstance, receivePayment: ReceivePayment): void {
  app.post(NOTIFICATIONS_PATH, async (request, reply) => {
    if (Number(request.headers['content-length'] ?? 0) > NOTIFICATION_BYTES_MAX) throw tooLarge();
    if (request.headers['content-encoding'] !== undefined) {
      const detail = 'The body has a Content-Encoding. Send the signed bytes without one.';
      throw new ContractError('UNSUPPORTED_MEDIA_TYPE', detail);
    }
    wantBody(request, reply);
    const kept = new KeptBytes(NOTIFICATION_BYTES_MAX, UNCOUNTED);
    // `readBody`'s own limit of bytes is for images, and so is its error.
    const bounds = { bytesMax: Number.POSITIVE_INFINITY, wholeMsMax: NOTIFICATION_MS_MAX };
    await readBody(request.raw, bounds, chunk => {
      if (!kept.append(chunk)) throw tooLarge();
    });
    const received = await receivePayment.receive(request.headers, kept.view());
    const { order_id: orderId, outcome } = received;
    // The operator owes money back, or must look for an error.
    const level = outcome === 'paid_again' || outcome === 'waiting' ? 'warn' : 'info';
    request.log[level]({ orderId, outcome }, 'a payment was told of');
    return reply.header('cache-control', 'no-store').send(received);
  });
}

function tooLarge(): ContractError {
  const detail = `The notification is too large. The limit is ${NOTIFICATION_BYTES_MAX} bytes.`;
  return new ContractError('INVALID_REQUEST', detail);
}
