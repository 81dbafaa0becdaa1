/** The migrations of the package's tables. */
import type { MigrationSeries } from '@matting/database/migrate.ts';
import { batches } from './migrations/0001-batches.ts';

export const BATCH_MIGRATIONS: MigrationSeries = {
  package: 'batches',
  migrations: dialect => ({ '0001-batches': batches(dialect) }),
};
