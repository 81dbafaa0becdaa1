/**
 * Whom a notification goes to, in a column: due ones are then found past those of a receiver that
 * has no room, however many of those there are. Rows from before share the empty receiver.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes, createIndex } from './ddl.ts';

export function webhookReceiversMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      const type = sql`${t.ascii(300)} not null default ''`;
      await addColumn(db, 'webhook_outbox', 'receiver', type);
      await createIndex(db, dialect, 'webhook_outbox_due_receiver', 'webhook_outbox', [
        'next_attempt_at',
        'receiver',
        'account_id',
      ]);
    },
  };
}
