import type { MigrationSeries } from '@matting/database/migrate.ts';
import { baseline } from './migrations/0004-baseline.ts';
import { withheldAndEnded } from './migrations/0005-withheld-and-ended.ts';

export const PORTAL_MIGRATIONS: MigrationSeries = {
  package: 'portal',
  migrations: dialect => ({
    '0004-baseline': baseline(dialect),
    '0005-withheld-and-ended': withheldAndEnded(dialect),
  }),
  folded: ['0001-baseline', '0002-key-ends', '0003-order-references'],
};
