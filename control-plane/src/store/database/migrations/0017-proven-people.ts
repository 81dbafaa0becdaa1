/**
 * What of a person was proven, who made a link or knows an API key, and the count by which changes
 * of a person keep each other out where engines certify (0015). Every column may be left out: to
 * rows of control planes from before, nobody's mail was proven and nobody is known to have made it.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes } from './ddl.ts';

export function provenPeopleMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'users', 'proven_at', sql`${t.integer} null`);
      await addColumn(db, 'users', 'turns', sql`${t.integer} not null default 0`);
      await addColumn(db, 'one_time_links', 'proves_mail', sql`${t.integer} null`);
      await addColumn(db, 'one_time_links', 'made_by', sql`${t.id} null`);
      await addColumn(db, 'api_keys', 'made_by', sql`${t.id} null`);
    },
  };
}
