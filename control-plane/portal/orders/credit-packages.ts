/**
 * The packages credits are sold in: two price lists, as published. Pure data; a sale itself is a
 * grant in the ledger, entered by the operator who took the money.
 */

export interface CreditPackage {
  readonly credits: number;
  /** The whole package's, in whole units of the list's currency. */
  readonly price: number;
  /** Decimal, as listed: some are rounded, so it is never computed from the other two. */
  readonly unitPrice: string;
}

export interface PriceList {
  /** What a buyer of the list counts in; one image costs one credit either way. */
  readonly unit: 'credit' | 'image';
  readonly currency: 'CNY';
  readonly packages: readonly CreditPackage[];
}

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

/** What GET /v1/account/packages answers. */
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
