/**
 * What finishing adds to a job: what is asked for, the background's picture, what was seen in the
 * result. The columns stay null in every other row, and control planes from before them leave them
 * alone: they claim no such job (store/jobs/queue-range.ts).
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes } from './ddl.ts';

export function jobFinishingMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  const columns = {
    finishing: t.ascii(2048),
    frame_pixels: t.integer,
    background_url: t.text(2048),
    background: t.ascii(512),
    result_sight: t.ascii(512),
  };
  return {
    async up(db: Kysely<unknown>) {
      for (const [name, type] of Object.entries(columns)) {
        await addColumn(db, 'jobs', name, sql`${type} null`);
      }
    },
  };
}
