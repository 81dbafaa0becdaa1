/** The table of fleet reports; where the core's baseline made it once, it stays as it is. */

import type { DatabaseDialect } from '@matting/database/engines.ts';
import { ascii, createTables, INTEGER, type MigrationSeries } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';

/** One row a control plane with a fleet that sleeps. */
interface FleetReportsTable {
  /** Holder of its leases. */
  replica: string;
  reported_at: number;
  /** Submitted to it a second. */
  inflow_pixels: number;
  done_pixels: number;
  node_ms: number;
  wanted_nodes: number;
}

declare module '@matting/database/database.ts' {
  interface Schema {
    fleet_reports: FleetReportsTable;
  }
}

export const FLEET_SIZE_MIGRATIONS: MigrationSeries = {
  package: 'fleet-size',
  migrations: dialect => ({ '0001-baseline': { up: db => createFleetReports(db, dialect) } }),
};

function createFleetReports(db: Kysely<unknown>, dialect: DatabaseDialect): Promise<void> {
  return createTables(db, dialect, [
    {
      name: 'fleet_reports',
      columns: {
        replica: ascii(64),
        reported_at: INTEGER,
        inflow_pixels: INTEGER,
        done_pixels: INTEGER,
        node_ms: INTEGER,
        wanted_nodes: INTEGER,
      },
      primaryKey: ['replica'],
      checks: {
        fleet_reports_counts:
          'inflow_pixels >= 0 and done_pixels >= 0 and node_ms >= 0 and wanted_nodes >= 0',
      },
    },
  ]);
}
