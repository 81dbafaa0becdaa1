/** What each control plane measures of a fleet that sleeps, one row a process. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { columnTypes, createTable } from './ddl.ts';

export function fleetReportsMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await createTable(db, dialect, {
        name: 'fleet_reports',
        columns: {
          replica: t.ascii(64),
          reported_at: t.integer,
          inflow_pixels: t.integer,
          done_pixels: t.integer,
          node_ms: t.integer,
          wanted_nodes: t.integer,
        },
        primaryKey: 'replica',
        checks: {
          fleet_reports_counts:
            'inflow_pixels >= 0 and done_pixels >= 0 and node_ms >= 0 and wanted_nodes >= 0',
        },
      });
    },
  };
}
