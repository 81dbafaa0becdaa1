/** Lets a batch have a name, be listed by its key, and submit its failed items again. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, createIndex, text } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function again(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await addColumns(db, dialect, 'batches', { name: text(128) });
      await addColumns(db, dialect, 'batch_items', { again_url: text(2048) });
      const byKey = ['api_key_id', 'created_at', 'id'];
      await createIndex(db, dialect, 'batches_key_created', 'batches', byKey);
    },
  };
}
