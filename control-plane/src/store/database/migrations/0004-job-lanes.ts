/**
 * The indexes by which the queue is read lane by lane (store/jobs/job-lanes.ts). jobs_queue_lanes takes
 * the place of jobs_queue: it begins with the same column and holds what tells the lanes apart.
 */
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { createIndex, dropIndex } from './ddl.ts';

export function jobLanesMigration(dialect: DatabaseDialect): Migration {
  return {
    up: async db => {
      await createIndex(db, dialect, 'jobs_queue_lanes', 'jobs', [
        'queue_at',
        'mode',
        'account_id',
        'api_key_id',
      ]);
      await createIndex(db, dialect, 'jobs_lane', 'jobs', ['api_key_id', 'mode', 'queue_at', 'id']);
      await dropIndex(db, dialect, 'jobs_queue', 'jobs');
    },
  };
}
