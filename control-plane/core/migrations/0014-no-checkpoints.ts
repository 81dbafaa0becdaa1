/** Removes what only audits of 0.2.0 used. Releases since 0.3.0 read and write none of it. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { dropTable } from '@matting/database/migrate.ts';
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

export function noCheckpoints(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await dropTable(db, dialect, 'ledger_checkpoints');
      await sql`delete from ledger_audits where kind = 'incremental'`.execute(db);
    },
  };
}
