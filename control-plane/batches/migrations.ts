import type { MigrationSeries } from '@matting/database/migrate.ts';
import { batches } from './migrations/0001-batches.ts';
import { again } from './migrations/0002-again.ts';

export const BATCH_MIGRATIONS: MigrationSeries = {
  package: 'batches',
  migrations: dialect => ({ '0001-batches': batches(dialect), '0002-again': again(dialect) }),
};
