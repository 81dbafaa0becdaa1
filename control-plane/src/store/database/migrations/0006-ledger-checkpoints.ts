/**
 * What keeps the ledger's audit, and every sum over it, bounded: the order in which an account's
 * entries are read, the sums up to points of that order, and where each kind of audit stands.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { columnTypes, createIndex, createTable } from './ddl.ts';

export function ledgerCheckpointsMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    up: async (db: Kysely<unknown>) => {
      await createIndex(db, dialect, 'ledger_entries_account_time', 'ledger_entries', [
        'account_id',
        'created_at',
        'id',
      ]);
      await createTable(db, dialect, {
        name: 'ledger_checkpoints',
        columns: {
          account_id: t.id,
          closed_to: t.integer,
          entries: t.integer,
          granted: t.integer,
          reserved: t.integer,
          charged: t.integer,
          released: t.integer,
          revoked: t.integer,
          created_at: t.integer,
        },
        primaryKey: ['account_id', 'closed_to'],
        checks: {
          ledger_checkpoints_sums: `entries > 0 and granted >= 0 and reserved >= 0
            and charged >= 0 and released >= 0 and revoked >= 0`,
        },
      });
      await createTable(db, dialect, {
        name: 'ledger_audits',
        columns: { kind: t.ascii(16), jobs_checked_to: t.integer },
        nullable: {
          run_id: t.id,
          saved_at: t.integer,
          progress: t.longText,
          last_started_at: t.integer,
          last_finished_at: t.integer,
          last_problems: t.integer,
        },
        primaryKey: 'kind',
        checks: {
          ledger_audits_kind: `kind in ('incremental', 'full')`,
          ledger_audits_run: `(run_id is null) = (saved_at is null)
            and (run_id is null) = (progress is null)`,
        },
      });
    },
  };
}
