/** Orders of an account's own people: what is on sale, placing, reading and cancelling. */
import { createHash } from 'node:crypto';
import type { Actor } from '../../core/accounts/audit.ts';
import type { PagePlace } from '../../core/ledger/ledger-pages.ts';
import { PRICE_LISTS, type PriceList } from './credit-packages.ts';
import { placeText } from './ledger-history.ts';
import { smallestUnits } from './order-rules.ts';
import type { OrderStore } from './order-store.ts';

/** The list whose packages are sold; `none`: nothing is. */
export type ListOnSale = PriceList['unit'] | 'none';

/** Orders of one page. */
export const ORDERS_PAGE_ROWS = 50;

export type PackageOnSale = ReturnType<typeof packagesOf>[number];

export interface OrderedPackage {
  /** A random UUID of the form that was filled in: sent twice, it is one order. */
  readonly form: string;
  readonly credits: number;
  /** What the buyer was shown: an order is made at no other price. */
  readonly price: number;
}

export class Orders {
  readonly #orders: OrderStore;
  /** How to pay, in the operator's words; undefined: none. */
  readonly instructions: string | undefined;
  readonly packages: readonly PackageOnSale[];

  constructor(orders: OrderStore, onSale: ListOnSale, instructions: string | undefined) {
    this.#orders = orders;
    this.instructions = instructions;
    this.packages = PRICE_LISTS.filter(({ unit }) => unit === onSale).flatMap(packagesOf);
  }

  /** `not-on-sale`: there is no such package, or no longer at this price. */
  async place(accountId: string, { form, credits, price }: OrderedPackage, actor: Actor) {
    const sold = this.packages.find(one => one.credits === credits && one.price === price);
    if (sold === undefined) return { kind: 'not-on-sale' } as const;
    const { list, currency } = sold;
    const order = { accountId, list, credits, price, currency };
    const id = orderIdOf([accountId, form, list, String(credits), String(price)]);
    return this.#orders.place({ ...order, id }, actor);
  }

  /** The latest first; `next` is where the next page begins, if there is one. */
  async list(accountId: string, after: PagePlace | undefined) {
    const page = await this.#orders.list({ accountId, after, limit: ORDERS_PAGE_ROWS + 1 });
    const orders = page.slice(0, ORDERS_PAGE_ROWS);
    const last = page.length > ORDERS_PAGE_ROWS ? orders.at(-1) : undefined;
    const next = last && placeText({ atMs: last.expiresAtMs, id: last.id });
    return { orders, next };
  }

  /** Undefined: this account has no such order. */
  async show(accountId: string, orderId: string) {
    const order = await this.#orders.find(orderId, accountId);
    return order && { order, ...(await this.#orders.details(orderId)) };
  }

  cancel(accountId: string, orderId: string, actor: Actor) {
    return this.#orders.cancel(accountId, orderId, actor);
  }
}

function packagesOf({ unit, currency, packages }: PriceList) {
  return packages.map(({ credits, price, unitPrice }) => ({
    list: unit,
    credits,
    price: smallestUnits(price, currency),
    currency,
    /** Decimal, as listed, in whole units. */
    unitPrice,
  }));
}

/** A UUID (version 8) that nobody else can have chosen: it follows from the account and the form. */
function orderIdOf(parts: readonly string[]): string {
  const hex = createHash('sha256').update(parts.join('\n')).digest('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `8${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-');
}
