import type { MigrationSeries } from '@matting/database/migrate.ts';
import { baseline } from './migrations/0006-baseline.ts';
import { sightings } from './migrations/0007-sightings.ts';
import { hints } from './migrations/0008-hints.ts';
import { references } from './migrations/0009-references.ts';
import { corrections } from './migrations/0010-corrections.ts';
import { groups } from './migrations/0011-batches.ts';
import { webhooksOfAccounts } from './migrations/0012-webhooks-of-accounts.ts';
import { looks } from './migrations/0013-looks.ts';
import { noCheckpoints } from './migrations/0014-no-checkpoints.ts';
import type {} from './tables.ts';

/** They run before the migrations of packages. */
export const CORE_MIGRATIONS: MigrationSeries = {
  migrations: dialect => ({
    '0006-baseline': baseline(dialect),
    '0007-sightings': sightings(dialect),
    '0008-hints': hints(dialect),
    '0009-references': references(dialect),
    '0010-corrections': corrections(dialect),
    '0011-batches': groups(dialect),
    '0012-webhooks-of-accounts': webhooksOfAccounts(dialect),
    '0013-looks': looks(dialect),
    '0014-no-checkpoints': noCheckpoints(dialect),
  }),
  folded: [
    '0001-baseline',
    '0002-unsettled-jobs',
    '0003-models',
    '0004-no-subject',
    '0005-thumbnails',
  ],
  unreadable: {
    migration: '0001-initial',
    found: 'the database was made by 0.1.0, which this version does not read',
    advice:
      'give MATTING_DATABASE_URL or MATTING_DATA_DIR a place without one; it stays as it is, and 0.1.0 can go on with it',
  },
};
