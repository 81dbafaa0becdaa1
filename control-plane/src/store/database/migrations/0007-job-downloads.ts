/**
 * What the queue is read by when downloads have a lane of their own (store/jobs/job-lanes.ts): an index
 * that begins with the state, and the hash of the host that an image is downloaded from. Rows of
 * older control planes have none; it is made of their URL when they are read.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes, createIndex } from './ddl.ts';

export function jobDownloadsMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'jobs', 'source_host', sql`${t.ascii(32)} null`);
      await createIndex(db, dialect, 'jobs_lane_state', 'jobs', [
        'state',
        'account_id',
        'api_key_id',
        'mode',
        'queue_at',
        'id',
      ]);
    },
  };
}
