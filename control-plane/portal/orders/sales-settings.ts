/** Settings of what is sold, and how payments are reported. */

import { isReadableSecret } from '@matting/http/outgoing/webhook-signature.ts';
import type { EnvReader } from '@matting/program/env.ts';
import type { ListOnSale } from './order-rules.ts';

const PRICE_LIST_NAMES = ['credit', 'image', 'none'] as const satisfies readonly ListOnSale[];
/** The secret has the form of callback_secret: text, or `whsec_` and Base64. */
const PAYMENT_SECRET = /^[\x21-\x7e]{24,128}$/;
const PAYMENT_SECRET_FORM =
  '24 to 128 printable ASCII characters without blanks; after whsec_, the Base64 of 24 to 64 bytes';

function parsePaymentSecret(text: string): string | undefined {
  return PAYMENT_SECRET.test(text) && isReadableSecret(text) ? text : undefined;
}
/** The operator writes some lines: a bank account, what to write, whom to ask. */
const INSTRUCTIONS_LENGTH_MAX = 2000;

export function readSales(whole: EnvReader) {
  const reader = whole.section('Orders');
  const priceList = reader.oneOf('MATTING_PRICE_LIST', PRICE_LIST_NAMES, {
    about: `The price list whose packages account owners can [order](money.md#confirm-and-refund-orders). With
      \`none\` they can order nothing, and see no prices.`,
    otherwise:
      '`credit` with `MATTING_PAYMENT_SECRET` or `MATTING_PAYMENT_INSTRUCTIONS`, else `none`',
    default: undefined,
  });
  const payment = {
    /** Signs notifications of payments; undefined: the service takes none. */
    paymentSecret: reader.parsed(
      'MATTING_PAYMENT_SECRET',
      PAYMENT_SECRET_FORM,
      parsePaymentSecret,
      {
        about: `The secret that signs payment notifications to \`POST /account/payments/notifications\`. Set
        the same on all control planes. Without it that path is 404.`,
        default: undefined,
      },
    ),
    /** Every unpaid order shows these words of the operator: plain text, `\n` breaks a line. */
    paymentInstructions: reader.parsed(
      'MATTING_PAYMENT_INSTRUCTIONS',
      `text of at most ${INSTRUCTIONS_LENGTH_MAX} characters`,
      parseInstructions,
      {
        about: `How to pay, in your words, on every unpaid order. It is plain text; \`\\n\` breaks a
          line.`,
        default: undefined,
      },
    ),
  };
  // Without a word of how to pay, an order leads nowhere.
  const canPay = (payment.paymentInstructions ?? payment.paymentSecret) !== undefined;
  return {
    ...payment,
    /** People of accounts can order this list's packages; `none`: nothing is sold. */
    priceList: priceList ?? (canPay ? 'credit' : 'none'),
  };
}

/** Environment files have no line breaks, so `\n` stands for one. */
function parseInstructions(text: string): string | undefined {
  const lines = text.replaceAll('\\n', '\n');
  const isText = !/[^\P{Cc}\n\t]/u.test(lines) && lines.isWellFormed();
  return isText && [...lines].length <= INSTRUCTIONS_LENGTH_MAX ? lines : undefined;
}
