/** The portal's tables, and what was changed of them since. */
import type { MigrationSeries } from '@matting/database/migrate.ts';
import { baseline } from './migrations/0001-baseline.ts';
import { keyEnds } from './migrations/0002-key-ends.ts';
import { orderReferences } from './migrations/0003-order-references.ts';

export const PORTAL_MIGRATIONS: MigrationSeries = {
  package: 'portal',
  migrations: dialect => ({
    '0001-baseline': baseline(dialect),
    '0002-key-ends': keyEnds(dialect),
    '0003-order-references': orderReferences(dialect),
  }),
};
