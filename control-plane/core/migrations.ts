/** The core's tables, and what was changed of them since. */
import type { MigrationSeries } from '@matting/database/migrate.ts';
import { baseline } from './migrations/0001-baseline.ts';
import { unsettledJobs } from './migrations/0002-unsettled-jobs.ts';
import { models } from './migrations/0003-models.ts';
import { noSubject } from './migrations/0004-no-subject.ts';
import { thumbnails } from './migrations/0005-thumbnails.ts';

export const OLDER_FOUND = 'the database was made by 0.1.0, which this version does not read';
export const OLDER_ADVICE =
  'give MATTING_DATABASE_URL or MATTING_DATA_DIR a place without one; it stays as it is, and 0.1.0 can go on with it';

/** It runs before those of the packages. */
export const CORE_MIGRATIONS: MigrationSeries = {
  migrations: dialect => ({
    '0001-baseline': baseline(dialect),
    '0002-unsettled-jobs': unsettledJobs(dialect),
    '0003-models': models(dialect),
    '0004-no-subject': noSubject(dialect),
    '0005-thumbnails': thumbnails(dialect),
  }),
  unreadable: { migration: '0001-initial', why: `${OLDER_FOUND}: ${OLDER_ADVICE}` },
};
