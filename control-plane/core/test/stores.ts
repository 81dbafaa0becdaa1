/** The stores of the core and of the packages on one database, as the service has them. */

import type { Database } from '../../database/database.ts';
import { createFleetReportStore } from '../../fleet-size/fleet-sizing.ts';
import { createPortalStores } from '../../portal/portal-stores.ts';
import type { JobCompletionOptions } from '../jobs/job-transactions.ts';
import { type Stores as CoreStores, createStores as createCoreStores } from '../stores.ts';

export type Stores = ReturnType<typeof withPackages>;

export function createStores(database: Database, ends: JobCompletionOptions): Stores {
  return withPackages(createCoreStores(database, ends), database);
}

export function withPackages(stores: CoreStores, database: Database) {
  const fleetReports = createFleetReportStore(database);
  return { ...stores, ...createPortalStores(database), fleetReports };
}
