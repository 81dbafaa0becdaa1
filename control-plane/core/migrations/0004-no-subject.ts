/** What a request asks for where no subject is seen. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, ascii } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function noSubject(dialect: DatabaseDialect): Migration {
  return {
    up: (db: Kysely<unknown>) => addColumns(db, dialect, 'jobs', { no_subject: ascii(8) }),
  };
}
