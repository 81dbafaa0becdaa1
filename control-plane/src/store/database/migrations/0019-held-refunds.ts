/**
 * When a refund last left something that it could not take: what jobs that were open then give back
 * goes to it. What control planes from before it refund stays as it is.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes, createIndex } from './ddl.ts';

export function heldRefundsMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'orders', 'unrevoked_at', sql`${t.integer} null`);
      await createIndex(db, dialect, 'orders_account_unrevoked', 'orders', [
        'account_id',
        'unrevoked_at',
        'id',
      ]);
    },
  };
}
