/** The stores of the core and of the packages on one database, as the service has them. */

import type { Database } from '../../database/database.ts';
import { createPortalStores, type PortalStores } from '../../portal/portal-stores.ts';
import type { JobCompletionOptions } from '../jobs/job-transactions.ts';
import { type Stores as CoreStores, createStores as createCoreStores } from '../stores.ts';

export type Stores = CoreStores & PortalStores;

export function createStores(database: Database, ends: JobCompletionOptions): Stores {
  return { ...createCoreStores(database, ends), ...createPortalStores(database) };
}
