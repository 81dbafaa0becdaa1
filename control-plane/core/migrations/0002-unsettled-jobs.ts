/** What packages have left to do with jobs that ended (core/jobs/job-transactions.ts). */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../../database/engines.ts';
import { ascii, createTable, ID, INTEGER } from '../../database/migrate.ts';

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
