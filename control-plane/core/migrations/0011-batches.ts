/**
 * A job may belong to a group, which holds credits for the jobs that it has yet to make. The
 * package that makes groups has their table: batches/migrations/0001-batches.ts.
 */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, COUNT_FROM_0, createIndex, ID, INTEGER } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function groups(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await addColumns(db, dialect, 'jobs', { batch_id: ID, batch_item: INTEGER });
      const ofGroup = ['batch_id', 'finished_at', 'batch_item'];
      await createIndex(db, dialect, 'jobs_batch', 'jobs', ofGroup, { notNull: 'batch_id' });
      await addColumns(db, dialect, 'accounts', { batch_waiting: COUNT_FROM_0 });
    },
  };
}
