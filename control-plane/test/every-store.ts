/** Of all packages. Needs: portal. */

import { storeFixtures } from '@matting/core/test/fixtures.ts';
import type { Stores as CoreStores } from '@matting/core/test/internals.ts';
import type { Database } from '@matting/database/database.ts';
import { createPortalStores } from '@matting/portal/portal-stores.ts';
import { PACKAGES } from '../packages.ts';

export type Stores = ReturnType<typeof withPackages>;

export function withPackages(stores: CoreStores, database: Database) {
  return { ...stores, ...createPortalStores(database) };
}

export const { series, storesOn, onStores } = storeFixtures({
  packages: PACKAGES,
  more: createPortalStores,
});
