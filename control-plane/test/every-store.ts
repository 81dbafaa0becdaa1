/** Databases and stores of the whole program. Needs: fleet-size, portal. */
import type { Stores as CoreStores } from '@matting/core/stores.ts';
import { storeFixtures } from '@matting/core/test/fixtures.ts';
import type { Database } from '@matting/database/database.ts';
import { createFleetReportStore } from '@matting/fleet-size/fleet-sizing.ts';
import { createPortalStores } from '@matting/portal/portal-stores.ts';
import { PACKAGES } from '../packages.ts';

export type Stores = ReturnType<typeof withPackages>;

export function withPackages(stores: CoreStores, database: Database) {
  return { ...stores, ...storesOfPackages(database) };
}

function storesOfPackages(database: Database) {
  return { ...createPortalStores(database), fleetReports: createFleetReportStore(database) };
}

export const { series, storesOn, onStores } = storeFixtures({
  packages: PACKAGES,
  more: storesOfPackages,
});
