/** Removes a table and rows of audits of 0.2.0. Later releases neither read nor write them. */
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
