/**
 * The playground of the account area: which jobs are its, an account's allowance of pictures and
 * the key that its jobs are of. Rows of before are paid for. The index lets the jobs of one key be
 * listed in the order they ended; the log of a notification holds its attempts from now on.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes, createIndex, createTable } from './ddl.ts';

export function playgroundMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'jobs', 'playground_day', sql`${t.integer} null`);
      await addColumn(db, 'webhook_outbox', 'attempt_log', sql`${t.ascii(2048)} null`);
      await createIndex(db, dialect, 'jobs_key_finished', 'jobs', [
        'api_key_id',
        'state',
        'finished_at',
        'id',
      ]);
      await createTable(db, dialect, {
        name: 'playgrounds',
        columns: {
          account_id: t.id,
          api_key_id: t.id,
          day_at: t.integer,
          used: t.integer,
        },
        primaryKey: 'account_id',
        unique: { playgrounds_api_key: ['api_key_id'] },
        checks: { playgrounds_used: 'used >= 0 and day_at >= 0' },
      });
    },
  };
}
