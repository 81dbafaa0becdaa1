/**
 * What an account used, a row a day, key, outcome and format; the thresholds of its balance and
 * whom to tell at them; mails that wait. An entry of the ledger says whether it was counted with
 * the job's end: those of older control planes are counted afterwards (store/usage/usage-walk.ts).
 * A row of webhook_outbox that no job left says which event it tells of.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, type ColumnTypes, columnTypes, createIndex, createTable } from './ddl.ts';

export function usageMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'ledger_entries', 'usage_counted', sql`${t.integer} null`);
      await addColumn(db, 'webhook_outbox', 'event', sql`${t.ascii(32)} null`);
      await createUsage(db, dialect, t);
      await createAlerts(db, dialect, t);
      await createMailOutbox(db, dialect, t);
    },
  };
}

async function createUsage(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'usage_days',
    columns: {
      account_id: t.id,
      day: t.integer,
      api_key_id: t.id,
      outcome: t.ascii(16),
      format: t.ascii(8),
      images: t.integer,
      credits: t.integer,
    },
    primaryKey: ['account_id', 'day', 'api_key_id', 'outcome', 'format'],
    checks: { usage_days_counts: 'images > 0 and credits >= 0' },
  });
  await createIndex(db, dialect, 'usage_days_day', 'usage_days', ['day']);
  await createTable(db, dialect, {
    name: 'usage_places',
    columns: { account_id: t.id, counted_to_at: t.integer, counted_to_id: t.id },
    primaryKey: 'account_id',
  });
  await createTable(db, dialect, {
    name: 'usage_walks',
    columns: { id: t.ascii(16), first_began_at: t.integer, account_after: t.id },
    nullable: { pass_ended_at: t.integer },
    primaryKey: 'id',
    checks: { usage_walks_single: `id = 'usage'` },
  });
}

async function createAlerts(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'balance_alerts',
    columns: { account_id: t.id, threshold: t.integer, created_at: t.integer },
    nullable: { told_at: t.integer, told_credits: t.integer, told_event: t.id },
    primaryKey: ['account_id', 'threshold'],
    checks: {
      balance_alerts_threshold: 'threshold >= 0',
      balance_alerts_told: `(told_at is null) = (told_credits is null)
        and (told_at is null) = (told_event is null)`,
    },
  });
  await createTable(db, dialect, {
    name: 'account_webhooks',
    columns: {
      account_id: t.id,
      url: t.text(2048),
      secret: t.bytes,
      secret_key_id: t.ascii(64),
      created_at: t.integer,
    },
    nullable: { tested_at: t.integer, test_event: t.id },
    primaryKey: 'account_id',
    checks: { account_webhooks_tested: '(tested_at is null) = (test_event is null)' },
  });
  await createIndex(db, dialect, 'account_webhooks_key', 'account_webhooks', [
    'secret_key_id',
    'account_id',
  ]);
}

async function createMailOutbox(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'mail_outbox',
    columns: {
      id: t.id,
      account_id: t.id,
      recipient: t.text(320),
      subject: t.text(200),
      body: t.longText,
      status: t.ascii(16),
      attempts: t.integer,
      fence: t.integer,
      created_at: t.integer,
    },
    nullable: {
      last_error: t.ascii(64),
      last_attempt_at: t.integer,
      next_attempt_at: t.integer,
      lease_holder: t.ascii(64),
      lease_expires_at: t.integer,
      finished_at: t.integer,
    },
    primaryKey: 'id',
    checks: {
      mail_outbox_status: `status in ('pending', 'sent', 'failed')`,
      mail_outbox_counts: 'attempts >= 0 and fence >= 0',
      mail_outbox_final: `(status = 'pending') = (finished_at is null)`,
      mail_outbox_next: `(status = 'pending') = (next_attempt_at is not null)`,
      mail_outbox_lease: '(lease_holder is null) = (lease_expires_at is null)',
    },
  });
  await createIndex(db, dialect, 'mail_outbox_due', 'mail_outbox', ['next_attempt_at']);
  await createIndex(db, dialect, 'mail_outbox_finished', 'mail_outbox', ['finished_at']);
}
