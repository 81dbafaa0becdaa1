/** Each replica writes what it sees of the nodes into a row, which commands and pages read. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { ascii, createTables, INTEGER, LONG_TEXT } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function sightings(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await createTables(db, dialect, [
        {
          name: 'sightings',
          columns: {
            replica: ascii(64),
            nodes: LONG_TEXT,
            noted_at: INTEGER,
            expires_at: INTEGER,
          },
          primaryKey: ['replica'],
        },
      ]);
    },
  };
}
