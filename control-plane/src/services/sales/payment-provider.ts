/**
 * What takes money for orders, as the service sees it: something that tells of payments and of
 * refunds, in messages that are proven to be its own. There is one today (signed-notifications.ts);
 * the library of a provider is another.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Payment } from '../../domain/account/orders.ts';

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

export interface PaymentProvider {
  /** In `paid_by` of orders, at most 16 ASCII characters; not `operator`. */
  readonly name: string;
  /**
   * What a message says. Nothing of it is believed before it is proven.
   * @param body its bytes as they came
   * @throws ContractError INVALID_REQUEST where it is not the provider's own, or makes no sense
   */
  read(headers: IncomingHttpHeaders, body: Uint8Array): PaymentNotice;
}
