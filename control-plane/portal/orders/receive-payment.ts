/**
 * Notifications of payments and refunds: each is proven, checked against the stored order, and told
 * to the store, where it changes what it says once.
 *
 * | told of                  | the order                  | what becomes of it                     |
 * |--------------------------|----------------------------|----------------------------------------|
 * | a payment of its price   | pending, expired, cancelled| paid, credits granted                  |
 * | the same payment         | paid with it               | nothing: already_paid                  |
 * | another payment          | paid                       | kept for the operator: paid_again      |
 * | another sum or currency  | any                        | refused, kept for the operator         |
 * | a refund                 | paid                       | refunded, credits revoked pro rata     |
 * | a refund                 | not paid                   | waiting: done when the payment comes   |
 * | the same refund          | any                        | nothing: already_refunded or waiting   |
 */
import type { IncomingHttpHeaders } from 'node:http';
import { ContractError } from '#contract/errors.ts';
import { Semaphore } from '#program/semaphore.ts';
import type { ServiceActor } from '../../core/accounts/actor.ts';
import { AttemptWindows } from '../../core/rates/attempt-window.ts';
import type { OrderStore, PayOutcome, RefundOutcome } from './order-store.ts';
import type { PaymentNotice, SignedNotifications } from './signed-notifications.ts';

/** Proven notifications a replica takes in a minute; far more than orders are placed. */
export const NOTIFICATIONS_A_MINUTE_MAX = 600;
/** Of them, those with statements under way at once. */
export const NOTIFICATIONS_AT_ONCE_MAX = 8;
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

/** `refused`: it does not fit its order, or a bound was reached. */
export const TOLD_OUTCOMES = [...RECEIVED_OUTCOMES, 'refused'] as const;
export type ToldOutcome = (typeof TOLD_OUTCOMES)[number];

/** What the sender is answered. */
interface Received {
  readonly order_id: string;
  readonly outcome: ReceivedOutcome;
}

export interface ReceivePaymentOptions {
  readonly provider: Pick<SignedNotifications, 'read'> & { readonly name: string };
  readonly orders: Pick<OrderStore, 'pay' | 'refund'>;
  /** Called once for each that is proven. */
  readonly onTold?: ((outcome: ToldOutcome) => void) | undefined;
}

export class ReceivePayment {
  readonly #provider: ReceivePaymentOptions['provider'];
  readonly #orders: ReceivePaymentOptions['orders'];
  readonly #onTold: ((outcome: ToldOutcome) => void) | undefined;
  readonly #rate = new AttemptWindows(RATE);
  readonly #atOnce = new Semaphore({
    max: NOTIFICATIONS_AT_ONCE_MAX,
    waitingMax: 0,
    refusal: () =>
      new ContractError('SERVICE_UNAVAILABLE', 'too many notifications at once', {
        retryAfterS: RETRY_AFTER_S,
      }),
  });

  constructor(options: ReceivePaymentOptions) {
    this.#provider = options.provider;
    this.#orders = options.orders;
    this.#onTold = options.onTold;
  }

  /**
   * @throws ContractError INVALID_REQUEST naming what is wrong, NOT_FOUND where there is no such
   * order, RATE_LIMITED and SERVICE_UNAVAILABLE at its bounds: the sender tries again.
   */
  async receive(headers: IncomingHttpHeaders, body: Uint8Array): Promise<Received> {
    const notice = this.#provider.read(headers, body);
    try {
      const received = await this.#receive(notice);
      this.#onTold?.(received.outcome);
      return received;
    } catch (error) {
      this.#onTold?.('refused');
      throw error;
    }
  }

  async #receive(notice: PaymentNotice): Promise<Received> {
    const retryAfterS = this.#rate.waitS('all');
    if (retryAfterS > 0) {
      throw new ContractError('RATE_LIMITED', 'too many notifications', { retryAfterS });
    }
    this.#rate.count('all');
    const outcome = await this.#atOnce.run({}, () => this.#told(notice));
    return { order_id: notice.orderId, outcome };
  }

  async #told(notice: PaymentNotice): Promise<ReceivedOutcome> {
    const { orderId } = notice;
    const toldBy = this.#provider.name;
    if (notice.kind === 'payment') {
      const payment = { ...notice.payment, toldBy };
      return paidOutcome(await this.#orders.pay(orderId, payment, ACTOR), orderId);
    }
    const { refund, amount, currency } = notice;
    const told = { refund, amount, currency, toldBy, mayWait: true };
    return refundedOutcome(await this.#orders.refund(orderId, told, ACTOR), orderId);
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
      throw invalid('amount', `at most ${outcome.left}, what is left of the price`);
    case 'currency-differs':
      throw differs('currency', outcome.order);
    case 'refund-conflict':
      throw invalid('refund_id', `was told of before, with the amount ${outcome.refund.amount}`);
    case 'too-many':
      throw invalid('refund_id', 'the order has as many refunds as are kept');
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
  return invalid(field, `the order's is ${field === 'amount' ? price : currency}`);
}

function invalid(field: string, detail: string): ContractError {
  const fieldErrors = [{ field: `data.${field}`, detail }];
  return new ContractError('INVALID_REQUEST', 'the notification does not fit the order', {
    fieldErrors,
  });
}

function unknown(orderId: string): ContractError {
  return new ContractError('NOT_FOUND', `there is no order ${orderId}`);
}
