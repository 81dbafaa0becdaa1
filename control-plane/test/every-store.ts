/**
 * Databases of the whole program, and the stores of the core and of every package on them.
 * Needs: fleet-size, portal.
 */
import type { Stores as CoreStores } from '../core/stores.ts';
import { storeFixtures } from '../core/test/fixtures.ts';
import type { Database } from '../database/database.ts';
import { createFleetReportStore } from '../fleet-size/fleet-sizing.ts';
import { PACKAGES } from '../packages.ts';
import { createPortalStores } from '../portal/portal-stores.ts';

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
