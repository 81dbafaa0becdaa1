/** The settings of sales: what is sold, and how its payments are told of. */
import type { EnvReader } from '#program/env.ts';
import type { ListOnSale } from '../services/sales/orders.ts';

export interface SalesConfig {
  /** The price list whose packages people of accounts can order; `none`: nothing is sold. */
  readonly priceList: ListOnSale;
  /** Signs notifications of payments; undefined: none are taken. */
  readonly paymentSecret: string | undefined;
  /** Words of the operator on every unpaid order: plain text, `\n` breaks a line. */
  readonly paymentInstructions: string | undefined;
}

const PRICE_LIST_NAMES = ['credit', 'image', 'none'] as const satisfies readonly ListOnSale[];
/** As callback_secret: text, or `whsec_` and Base64. */
const PAYMENT_SECRET = /^[\x21-\x7e]{24,128}$/;
/** Some lines: a bank account, what to write, whom to ask. */
const INSTRUCTIONS_LENGTH_MAX = 2000;

export function readSales(reader: EnvReader): SalesConfig {
  return {
    priceList: reader.oneOf('MATTING_PRICE_LIST', PRICE_LIST_NAMES, { default: 'credit' }),
    paymentSecret: reader.string('MATTING_PAYMENT_SECRET', {
      pattern: PAYMENT_SECRET,
      expected: '24 to 128 printable ASCII characters without blanks, or whsec_ and Base64',
      default: undefined,
    }),
    paymentInstructions: reader.parsed(
      'MATTING_PAYMENT_INSTRUCTIONS',
      `text of at most ${INSTRUCTIONS_LENGTH_MAX} characters`,
      parseInstructions,
      { default: undefined },
    ),
  };
}

/** Environment files have no line breaks of their own. */
function parseInstructions(text: string): string | undefined {
  const lines = text.replaceAll('\\n', '\n');
  const isText = !/[^\P{Cc}\n\t]/u.test(lines) && lines.isWellFormed();
  return isText && [...lines].length <= INSTRUCTIONS_LENGTH_MAX ? lines : undefined;
}
