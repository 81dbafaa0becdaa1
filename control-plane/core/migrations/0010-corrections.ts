/** Columns for jobs that correct others, and for files that these need (docs/adr/0052). */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import {
  addColumns,
  ascii,
  COUNT_FROM_0,
  createIndex,
  ID,
  INTEGER,
  LONG_TEXT,
} from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function corrections(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await addColumns(db, dialect, 'accounts', { open_corrections: COUNT_FROM_0 });
      await addColumns(db, dialect, 'jobs', {
        correctable: LONG_TEXT,
        corrects: ID,
        family: ID,
        base_matte: ascii(256),
        kept_until: INTEGER,
        kept_input: ascii(512),
        kept_matte: ascii(256),
        corrections: COUNT_FROM_0,
      });
      for (const column of ['family', 'kept_until']) {
        await createIndex(db, dialect, `jobs_${column}`, 'jobs', [column], { notNull: column });
      }
    },
  };
}
