/** Makes the use cases of sales. Opens nothing. */
import type { Config } from './config.ts';
import { signingKeyOf } from './secrets/callback-secret.ts';
import { LedgerHistory } from './services/sales/ledger-history.ts';
import { Orders } from './services/sales/orders.ts';
import { ReceivePayment, type ToldOutcome } from './services/sales/receive-payment.ts';
import { SignedNotifications } from './services/sales/signed-notifications.ts';
import type { Stores } from './store/stores.ts';

export interface SalesServices {
  readonly orders: Orders;
  readonly ledgerHistory: LedgerHistory;
  /** Undefined: no provider is configured. */
  readonly receivePayment: ReceivePayment | undefined;
}

export interface SalesParts {
  readonly config: Config;
  readonly stores: Stores;
  readonly onPaymentTold?: ((outcome: ToldOutcome) => void) | undefined;
}

export function composeSales({
  config: { sales },
  stores,
  onPaymentTold: onTold,
}: SalesParts): SalesServices {
  const { orders, ledger } = stores;
  const { priceList: onSale, paymentInstructions: instructions, paymentSecret } = sales;
  const provider =
    paymentSecret === undefined ? undefined : new SignedNotifications(signingKeyOf(paymentSecret));
  return {
    orders: new Orders({ orders, onSale, instructions }),
    ledgerHistory: new LedgerHistory({ ledger }),
    receivePayment: provider && new ReceivePayment({ provider, orders, onTold }),
  };
}
