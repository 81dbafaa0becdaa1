/** Images that agents send before the call that names them. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { ascii, createTables, HASH, ID, INTEGER } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function uploads(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await createTables(db, dialect, [
        {
          name: 'mcp_uploads',
          columns: {
            account_id: ID,
            slot: INTEGER,
            id: ID,
            api_key_id: ID,
            token_hash: HASH,
            created_at: INTEGER,
          },
          nullable: { blob: ascii(512) },
          primaryKey: ['account_id', 'slot'],
          unique: { mcp_uploads_id: ['id'], mcp_uploads_token: ['token_hash'] },
          indexes: { mcp_uploads_created: ['created_at'] },
        },
      ]);
    },
  };
}
