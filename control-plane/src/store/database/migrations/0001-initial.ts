/**
 * The first schema. DDL that SQLite, MySQL and MariaDB read alike, up to the names of types:
 *
 * - identifiers, hashes and codes are ASCII compared byte by byte (default collations make `abc`
 *   equal
 *   to `ABC`, and pad spaces); people's text is UTF-8 compared byte by byte;
 * - times are BIGINT milliseconds: DATETIME rounds on MySQL, truncates on MariaDB;
 * - no auto-increment and no foreign keys: rows are found by account or job, so that engines that
 *   spread tables over machines can hold them. Rows are only ever removed together with what refers
 * to them (a job with its outbox row), and `credits check` finds what is left without its partner;
 * - CHECK constraints repeat the rules of domain/ for the day a program forgets one.
 *
 * Every statement can be repeated: MySQL commits each by itself, so that a migration that was cut
 * off runs again from its beginning.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { type ColumnTypes, columnTypes, createIndex, createTable } from './ddl.ts';

export function initialMigration(dialect: DatabaseDialect): Migration {
  const types = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await createAccounts(db, dialect, types);
      await createApiKeys(db, dialect, types);
      await createLedgerEntries(db, dialect, types);
      await createJobs(db, dialect, types);
      await createWebhookOutbox(db, dialect, types);
      await createNodes(db, dialect, types);
      await createSecretsCanary(db, dialect, types);
    },
  };
}

async function createAccounts(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'accounts',
    columns: {
      id: t.id,
      name: t.text(64),
      available: t.integer,
      reserved: t.integer,
      created_at: t.integer,
    },
    primaryKey: 'id',
    unique: { accounts_name: ['name'] },
    checks: {
      accounts_available: 'available >= 0',
      accounts_reserved: 'reserved >= 0',
    },
  });
}

async function createApiKeys(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'api_keys',
    columns: {
      id: t.id,
      account_id: t.id,
      name: t.text(64),
      secret_hash: t.hash,
      created_at: t.integer,
    },
    nullable: { revoked_at: t.integer },
    primaryKey: 'id',
  });
  await createIndex(db, dialect, 'api_keys_account', 'api_keys', ['account_id', 'created_at']);
}

async function createLedgerEntries(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'ledger_entries',
    columns: {
      id: t.id,
      account_id: t.id,
      kind: t.ascii(8),
      slot: t.ascii(8),
      reference: t.ascii(128),
      amount: t.integer,
      created_at: t.integer,
    },
    nullable: { job_id: t.id },
    primaryKey: 'id',
    // One reserve and one settlement a job, one grant and one revocation a reference.
    unique: { ledger_entries_once: ['account_id', 'slot', 'reference'] },
    checks: {
      ledger_entries_amount: 'amount > 0',
      ledger_entries_kind: `(kind in ('grant', 'revoke', 'reserve') and slot = kind)
        or (kind in ('charge', 'release') and slot = 'settle')`,
      ledger_entries_job: `(kind in ('grant', 'revoke') and job_id is null)
        or (kind not in ('grant', 'revoke') and job_id is not null and job_id = reference)`,
    },
  });
}

async function createJobs(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'jobs',
    columns: {
      id: t.id,
      account_id: t.id,
      api_key_id: t.id,
      fingerprint: t.hash,
      state: t.ascii(16),
      mode: t.ascii(8),
      output_format: t.ascii(8),
      created_at: t.integer,
      fence: t.integer,
      lost_attempts: t.integer,
      lost_with_process: t.integer,
      takeovers: t.integer,
    },
    nullable: {
      idempotency_key_hash: t.hash,
      queue_at: t.integer,
      source_url: t.text(2048),
      input_blob: t.ascii(128),
      input_bytes: t.integer,
      input_format: t.ascii(8),
      input_width: t.integer,
      input_height: t.integer,
      started_at: t.integer,
      finished_at: t.integer,
      expires_at: t.integer,
      lease_holder: t.ascii(64),
      lease_expires_at: t.integer,
      result_blob: t.ascii(128),
      result_blob_expires_at: t.integer,
      result_token: t.ascii(64),
      result_format: t.ascii(8),
      result_bytes: t.integer,
      result_width: t.integer,
      result_height: t.integer,
      result_sha256: t.hash,
      failure_code: t.ascii(64),
      failure_detail: t.text(1024),
      failure_retryable: t.integer,
      timings: t.longText,
      callback_url: t.text(2048),
      callback_secret: t.bytes,
      callback_secret_key_id: t.ascii(64),
    },
    primaryKey: 'id',
    unique: {
      jobs_idempotency_key: ['api_key_id', 'idempotency_key_hash'],
      jobs_result_token: ['result_token'],
    },
    checks: JOB_CHECKS,
  });
  await createIndex(db, dialect, 'jobs_queue', 'jobs', ['queue_at', 'id']);
  await createIndex(db, dialect, 'jobs_account_state', 'jobs', ['account_id', 'state']);
  await createIndex(db, dialect, 'jobs_finished', 'jobs', ['finished_at']);
  await createIndex(db, dialect, 'jobs_result_expiry', 'jobs', ['result_blob_expires_at']);
  await createIndex(db, dialect, 'jobs_input_blob', 'jobs', ['input_blob']);
  await createIndex(db, dialect, 'jobs_result_blob', 'jobs', ['result_blob']);
}

const JOB_CHECKS = {
  jobs_state: `state in ('accepted', 'fetching', 'ready', 'running', 'succeeded', 'failed')`,
  jobs_mode: `mode in ('sync', 'async')`,
  jobs_counts: `fence >= 0 and lost_attempts >= 0 and takeovers >= 0
    and lost_with_process >= 0 and lost_with_process <= lost_attempts`,
  jobs_final: `(state in ('succeeded', 'failed')) = (finished_at is not null)`,
  jobs_queue_at: '(queue_at is null) = (finished_at is not null)',
  jobs_lease: '(lease_holder is null) = (lease_expires_at is null)',
  jobs_final_free: `finished_at is null or (lease_holder is null and input_blob is null
    and source_url is null and callback_secret is null)`,
  jobs_input: `state not in ('ready', 'running') or input_blob is not null`,
  jobs_source: `state not in ('accepted', 'fetching') or source_url is not null`,
  jobs_started: `state not in ('running', 'succeeded') or started_at is not null`,
  jobs_result: `(state = 'succeeded') = (result_token is not null and expires_at is not null)`,
  jobs_result_blob: '(result_blob is null) = (result_blob_expires_at is null)',
  jobs_failure: `(state = 'failed') = (failure_code is not null)`,
  jobs_callback: '(callback_secret is null) = (callback_secret_key_id is null)',
};

async function createWebhookOutbox(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'webhook_outbox',
    columns: {
      job_id: t.id,
      account_id: t.id,
      callback_url: t.text(2048),
      body: t.longText,
      status: t.ascii(16),
      attempts: t.integer,
      fence: t.integer,
      created_at: t.integer,
    },
    nullable: {
      secret: t.bytes,
      secret_key_id: t.ascii(64),
      secret_erase_at: t.integer,
      last_status_code: t.integer,
      last_attempt_at: t.integer,
      next_attempt_at: t.integer,
      lease_holder: t.ascii(64),
      lease_expires_at: t.integer,
      finished_at: t.integer,
    },
    primaryKey: 'job_id',
    checks: {
      webhook_outbox_status: `status in ('pending', 'delivered', 'failed')`,
      webhook_outbox_attempts: 'attempts >= 0 and fence >= 0',
      webhook_outbox_final: `(status = 'pending') = (finished_at is null)`,
      webhook_outbox_next: `(status = 'pending') = (next_attempt_at is not null)`,
      webhook_outbox_lease: '(lease_holder is null) = (lease_expires_at is null)',
      webhook_outbox_secret: `(secret is null) = (secret_erase_at is null)
        and (secret is null) = (secret_key_id is null)`,
    },
  });
  await createIndex(db, dialect, 'webhook_outbox_due', 'webhook_outbox', ['next_attempt_at']);
  await createIndex(db, dialect, 'webhook_outbox_secret_erase', 'webhook_outbox', [
    'secret_erase_at',
  ]);
}

async function createNodes(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'nodes',
    columns: {
      node_id: t.ascii(64),
      boot_id: t.id,
      address: t.ascii(300),
      http_address: t.ascii(300),
      version: t.ascii(64),
      registered_at: t.integer,
      heartbeat_at: t.integer,
      lease_expires_at: t.integer,
      draining: t.integer,
    },
    primaryKey: 'node_id',
    checks: { nodes_draining: 'draining in (0, 1)' },
  });
}

async function createSecretsCanary(db: Kysely<unknown>, dialect: DatabaseDialect, t: ColumnTypes) {
  await createTable(db, dialect, {
    name: 'secrets_canary',
    columns: { id: t.ascii(16), key_id: t.ascii(64), ciphertext: t.bytes, created_at: t.integer },
    primaryKey: 'id',
    checks: { secrets_canary_single: `id = 'canary'` },
  });
}
