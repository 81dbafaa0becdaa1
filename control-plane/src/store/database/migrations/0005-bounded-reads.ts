/**
 * What lets each statement read a number of rows that does not grow with the tables: jobs by state
 * and account in the order they ended, notifications by lane (store/outbox/webhook-due.ts) and by age.
 * On SQLite blobs' names have an index without the rows that name none: statistics over those would
 * make it read the whole table instead. The table says which replica sweeps.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, type ColumnTypes, columnTypes, createIndex, createTable } from './ddl.ts';

export function boundedReadsMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await createIndexes(db, dialect);
      await addColumn(db, 'webhook_outbox', 'last_duration_ms', t.integer);
      await createSweeps(db, dialect, t);
    },
  };
}

async function createIndexes(db: Kysely<unknown>, dialect: DatabaseDialect): Promise<void> {
  const index = (name: string, table: string, columns: readonly string[], notNull?: string) =>
    createIndex(db, dialect, name, table, columns, notNull);
  await index('jobs_state_finished', 'jobs', ['state', 'finished_at', 'id']);
  await index('jobs_account_finished', 'jobs', ['account_id', 'state', 'finished_at', 'id']);
  if (dialect === 'sqlite') {
    for (const column of ['input_blob', 'result_blob']) {
      await index(`jobs_${column}_named`, 'jobs', [column], column);
    }
  }
  await index('webhook_outbox_lanes', 'webhook_outbox', [
    'status',
    'receiver',
    'account_id',
    'secret_key_id',
    'next_attempt_at',
  ]);
  await index('webhook_outbox_age', 'webhook_outbox', ['status', 'created_at', 'job_id']);
}

/** One row: who sweeps, and where the walk over the blobs stands. */
function createSweeps(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  return createTable(db, dialect, {
    name: 'sweeps',
    columns: { id: t.ascii(16), fence: t.integer, walk_part: t.integer },
    nullable: {
      lease_holder: t.ascii(64),
      lease_expires_at: t.integer,
      walk_began_at: t.integer,
    },
    primaryKey: 'id',
    checks: {
      sweeps_single: `id = 'sweep'`,
      sweeps_lease: '(lease_holder is null) = (lease_expires_at is null)',
      sweeps_walk: 'walk_part >= 0 and fence >= 0',
    },
  });
}
