/** Stores the caller's hints about the subject until the job is final. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, ascii, LONG_TEXT } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function hints(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await addColumns(db, dialect, 'jobs', { hints: LONG_TEXT, hints_file: ascii(512) });
    },
  };
}
