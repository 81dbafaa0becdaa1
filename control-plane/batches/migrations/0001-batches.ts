/**
 * Batches, whose items wait here until each becomes a job. A database that the core's 0011-batches
 * made has these tables already, and keeps their rows.
 */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import {
  ascii,
  BYTES,
  createTables,
  HASH,
  ID,
  INTEGER,
  LONG_TEXT,
  text,
} from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function batches(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await createTables(db, dialect, [
        {
          name: 'batches',
          columns: {
            id: ID,
            account_id: ID,
            api_key_id: ID,
            idempotency_key_hash: HASH,
            fingerprint: HASH,
            request: LONG_TEXT,
            items: INTEGER,
            next_item: INTEGER,
            created_at: INTEGER,
          },
          nullable: {
            open_at: INTEGER,
            cancelled_at: INTEGER,
            finished_at: INTEGER,
            cap_window_start: INTEGER,
            callback_url: text(2048),
            callback_secret: BYTES,
            callback_secret_key_id: ascii(64),
          },
          primaryKey: ['id'],
          unique: { batches_idempotency_key: ['api_key_id', 'idempotency_key_hash'] },
          checks: {
            batches_items: 'items > 0 and next_item >= 0 and next_item <= items',
            batches_open: '(open_at is null) = (finished_at is not null)',
            batches_whole: 'finished_at is null or next_item = items',
          },
          indexes: {
            batches_open: ['open_at', 'id'],
            batches_account: ['account_id', 'open_at'],
            batches_account_created: ['account_id', 'created_at', 'id'],
            batches_finished: ['finished_at'],
          },
        },
        {
          name: 'batch_items',
          columns: { batch_id: ID, item: INTEGER, job_id: ID, account_id: ID },
          nullable: { image_url: text(2048), reference: text(128) },
          primaryKey: ['batch_id', 'item'],
          unique: { batch_items_job: ['job_id'] },
        },
      ]);
    },
  };
}
