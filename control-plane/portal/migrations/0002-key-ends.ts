/** Notices before API keys expire, each once (alerts/key-expiry-notices.ts). */

import type { DatabaseDialect } from '@matting/database/engines.ts';
import { createTable, ID, INTEGER } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function keyEnds(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await createTable(db, dialect, {
        name: 'key_ends_told',
        columns: { id: ID, api_key_id: ID, expires_at: INTEGER },
        primaryKey: ['id'],
        unique: { key_ends_told_once: ['api_key_id', 'expires_at'] },
        indexes: { key_ends_told_end: ['expires_at'] },
      });
    },
  };
}
