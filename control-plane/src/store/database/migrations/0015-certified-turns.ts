/**
 * For engines that certify what transactions change instead of locking rows for all of them
 * (store/database/engines.ts): the count of an account's turns, which a transaction moves on where it
 * has to keep others out and changes nothing else of the row.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes } from './ddl.ts';

export function certifiedTurnsMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'accounts', 'turns', sql`${t.integer} not null default 0`);
    },
  };
}
