/** What packages have left to do with jobs that ended (core/jobs/job-transactions.ts). */

import type { DatabaseDialect } from '@matting/database/engines.ts';
import { ascii, createTable, ID, INTEGER } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function unsettledJobs(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await createTable(db, dialect, {
        name: 'unsettled_jobs',
        columns: { job_id: ID, package: ascii(64), created_at: INTEGER },
        primaryKey: ['package', 'job_id'],
      });
    },
  };
}
