/** Databases of the core and the fleet's reports, and their stores. */
import type { Stores as CoreStores } from '@matting/core/stores.ts';
import { storeFixtures } from '@matting/core/test/fixtures.ts';
import type { Database } from '@matting/database/database.ts';
import { fleetSize } from '../fleet-size.ts';
import { createFleetReportStore } from '../fleet-sizing.ts';

export const fleetReports = (database: Database) => ({
  fleetReports: createFleetReportStore(database),
});

export type Stores = CoreStores & ReturnType<typeof fleetReports>;

export const FLEET_SIZE_FIXTURES = storeFixtures({ packages: [fleetSize], more: fleetReports });
