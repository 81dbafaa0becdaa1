/** What a request named to make its result, what made it, and which names a key may give. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, ascii, LONG_TEXT } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function models(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await addColumns(db, dialect, 'jobs', { model: ascii(64), result_models: LONG_TEXT });
      await addColumns(db, dialect, 'api_keys', { models: LONG_TEXT });
      await addColumns(db, dialect, 'nodes', { models: LONG_TEXT });
    },
  };
}
