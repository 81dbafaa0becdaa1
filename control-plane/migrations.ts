/** The tables that the packages of this program add to the core's. */
import type { MigrationSeries } from './core/database/migrate.ts';
import { PORTAL_MIGRATIONS } from './portal/migrations.ts';

/** In the order in which they run, after the core's own. */
export const MIGRATIONS: readonly MigrationSeries[] = [PORTAL_MIGRATIONS];
