/**
 * Mails take turns by account, and there are only so many of an account and to an address a day;
 * the last test of an account's webhook is known when its address is gone. The columns of before
 * say of a mail's time what those control planes may do with it: nothing, where `due_at` is set.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes, createIndex, createTable } from './ddl.ts';

export function mailLimitsMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'mail_outbox', 'due_at', sql`${t.integer} null`);
      await createIndex(db, dialect, 'mail_outbox_due_at', 'mail_outbox', ['due_at']);
      await createIndex(db, dialect, 'mail_outbox_turns', 'mail_outbox', [
        'status',
        'account_id',
        'due_at',
      ]);
      await createTable(db, dialect, {
        name: 'message_counts',
        columns: { key_hash: t.hash, day_at: t.integer, used: t.integer, withheld: t.integer },
        nullable: { tested_at: t.integer },
        primaryKey: 'key_hash',
        checks: { message_counts_used: 'used >= 0 and withheld >= 0' },
      });
      await createIndex(db, dialect, 'message_counts_day', 'message_counts', ['day_at']);
    },
  };
}
