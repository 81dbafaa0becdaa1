/** Stores the hash and header facts of an uploaded image, so that a call need not read it again. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, ascii } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function knownUploads(dialect: DatabaseDialect): Migration {
  return {
    up: (db: Kysely<unknown>) => addColumns(db, dialect, 'mcp_uploads', { known: ascii(512) }),
  };
}
