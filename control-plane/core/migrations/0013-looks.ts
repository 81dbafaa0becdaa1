/** Marks results that a person should review, until somebody has. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, createIndex, INTEGER } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function looks(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await addColumns(db, dialect, 'jobs', { look_until: INTEGER });
      const columns = ['account_id', 'look_until', 'api_key_id', 'id'];
      await createIndex(db, dialect, 'jobs_look', 'jobs', columns, { notNull: 'look_until' });
    },
  };
}
