/**
 * Results whose files are gone while their links are good, a row each; and where the daily look
 * over all live results is. Control planes from before it see neither.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes, createIndex, createTable } from './ddl.ts';

export function lostResultsMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await createTable(db, dialect, {
        name: 'lost_results',
        columns: {
          job_id: t.id,
          account_id: t.id,
          finding_id: t.id,
          found_by: t.ascii(16),
          found_at: t.integer,
        },
        nullable: { settlement: t.ascii(16), settled_at: t.integer },
        primaryKey: 'job_id',
        checks: {
          lost_results_found: `found_by in ('download', 'replay', 'look', 'operator')`,
          lost_results_settled: `(settlement is null) = (settled_at is null)
            and (settlement is null or settlement in ('paid', 'returned', 'unpaid'))`,
        },
      });
      await createIndex(db, dialect, 'lost_results_open', 'lost_results', [
        'settled_at',
        'found_at',
        'job_id',
      ]);
      await addColumn(db, 'sweeps', 'look_due_at', sql`${t.integer} null`);
      await addColumn(db, 'sweeps', 'look_after_at', sql`${t.integer} null`);
      await addColumn(db, 'sweeps', 'look_after_id', sql`${t.id} null`);
    },
  };
}
