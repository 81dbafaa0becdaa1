/** The tables of the core, and those that the packages of this program add. */

import { CORE_MIGRATIONS } from './core/migrations.ts';
import type { MigrationSeries } from './database/migrate.ts';
import { PORTAL_MIGRATIONS } from './portal/migrations.ts';

/** In the order in which they run. */
export const MIGRATIONS: readonly MigrationSeries[] = [CORE_MIGRATIONS, PORTAL_MIGRATIONS];
