/** Thumbnails beside results. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, INTEGER } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function thumbnails(dialect: DatabaseDialect): Migration {
  return {
    up: (db: Kysely<unknown>) =>
      addColumns(db, dialect, 'jobs', { result_thumbnail_bytes: INTEGER }),
  };
}
