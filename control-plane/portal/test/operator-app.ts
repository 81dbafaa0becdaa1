import { appOn } from '@matting/core/test/operator-port.ts';
import { operatorPages } from '../operator-pages/operator-pages.ts';
import type { Brand } from '../page/brand.ts';
import type { Stores } from './fixtures.ts';

export function operatorAppOn(
  stores: Stores,
  changes: Parameters<typeof appOn>[1] = {},
  brand?: Brand,
) {
  return appOn(stores, {
    ...changes,
    pages: (services, options) =>
      operatorPages(services, stores, { ...options, ...(brand && { brand }) }),
  });
}
