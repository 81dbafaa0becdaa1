/** Callers name their jobs, list them, and delete what they have fetched. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, createIndex, INTEGER, text } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function references(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await addColumns(db, dialect, 'jobs', { reference: text(128), deleted_at: INTEGER });
      const byState = ['api_key_id', 'state', 'created_at', 'id'];
      await createIndex(db, dialect, 'jobs_key_created', 'jobs', byState);
      const byReference = ['api_key_id', 'reference', 'created_at', 'id'];
      const some = { notNull: 'reference' };
      await createIndex(db, dialect, 'jobs_key_reference', 'jobs', byReference, some);
    },
  };
}
