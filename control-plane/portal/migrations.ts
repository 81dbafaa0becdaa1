/** The portal's tables, and what was changed of them since. */
import type { MigrationSeries } from '@matting/database/migrate.ts';
import { baseline } from './migrations/0001-baseline.ts';

export const PORTAL_MIGRATIONS: MigrationSeries = {
  package: 'portal',
  migrations: dialect => ({ '0001-baseline': baseline(dialect) }),
};
