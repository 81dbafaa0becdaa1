/**
 * The core's tables, in DDL that SQLite, MySQL and MariaDB read alike up to the names of types:
 *
 * - identifiers, hashes and codes are ASCII compared byte by byte (default collations make `abc`
 *   equal to `ABC`, and pad spaces); people's text is UTF-8 compared byte by byte;
 * - times are BIGINT milliseconds: DATETIME rounds on MySQL, truncates on MariaDB;
 * - no auto-increment and no foreign keys, so that engines that spread tables over machines can
 *   hold them. A row is removed together with those that refer to it;
 * - CHECK constraints repeat rules of the programs, in case a program forgets one.
 *
 * ../tables.ts explains the columns. Every statement can be repeated: MySQL commits each by itself,
 * so a migration that was cut off runs again from its beginning.
 */

import type { DatabaseDialect } from '@matting/database/engines.ts';
import {
  ascii,
  BYTES,
  COUNT_FROM_0,
  createIndex,
  createTables,
  HASH,
  ID,
  INTEGER,
  LONG_TEXT,
  type TableDefinition,
  text,
} from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function baseline(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await createTables(db, dialect, TABLES);
      // On SQLite these indexes leave out rows without a blob. The statistics of such rows would
      // make SQLite read the whole table.
      for (const column of ['input_blob', 'result_blob']) {
        await createIndex(db, dialect, `jobs_${column}`, 'jobs', [column], { notNull: column });
      }
    },
  };
}

const TABLES: readonly TableDefinition[] = [
  {
    name: 'accounts',
    columns: {
      id: ID,
      name: text(64),
      available: INTEGER,
      reserved: INTEGER,
      turns: COUNT_FROM_0,
      created_at: INTEGER,
    },
    primaryKey: ['id'],
    unique: { accounts_name: ['name'] },
    checks: { accounts_available: 'available >= 0', accounts_reserved: 'reserved >= 0' },
  },
  {
    name: 'api_keys',
    columns: { id: ID, account_id: ID, name: text(64), secret_hash: HASH, created_at: INTEGER },
    nullable: {
      revoked_at: INTEGER,
      expires_at: INTEGER,
      last_used_at: INTEGER,
      previous_secret_hash: HASH,
      previous_expires_at: INTEGER,
      previous_last_used_at: INTEGER,
      cap_credits: INTEGER,
      cap_period: ascii(16),
      cap_window_start: INTEGER,
      cap_used: INTEGER,
      submissions_per_minute: INTEGER,
      scopes: ascii(128),
      networks: ascii(2048),
      purpose: ascii(16),
      made_by: ID,
      models: LONG_TEXT,
    },
    primaryKey: ['id'],
    indexes: { api_keys_account: ['account_id', 'created_at'] },
  },
  {
    name: 'ledger_entries',
    columns: {
      id: ID,
      account_id: ID,
      kind: ascii(8),
      slot: ascii(8),
      reference: ascii(128),
      amount: INTEGER,
      created_at: INTEGER,
    },
    nullable: { job_id: ID },
    primaryKey: ['id'],
    // A job has one reserve and one settlement, a reference one grant and one revocation.
    unique: { ledger_entries_once: ['account_id', 'slot', 'reference'] },
    checks: {
      ledger_entries_amount: 'amount > 0',
      ledger_entries_kind: `(kind in ('grant', 'revoke', 'reserve') and slot = kind)
          or (kind in ('charge', 'release') and slot = 'settle')`,
      ledger_entries_job: `(kind in ('grant', 'revoke') and job_id is null)
          or (kind not in ('grant', 'revoke') and job_id is not null and job_id = reference)`,
    },
    indexes: {
      ledger_entries_account_time: ['account_id', 'created_at', 'id'],
      ledger_entries_account_kind: ['account_id', 'kind', 'created_at', 'id'],
    },
  },
  {
    name: 'ledger_audits',
    columns: { kind: ascii(16), jobs_checked_to: INTEGER },
    nullable: {
      run_id: ID,
      saved_at: INTEGER,
      progress: LONG_TEXT,
      last_started_at: INTEGER,
      last_finished_at: INTEGER,
      last_problems: INTEGER,
    },
    primaryKey: ['kind'],
    checks: {
      ledger_audits_kind: `kind in ('incremental', 'full')`,
      ledger_audits_run: `(run_id is null) = (saved_at is null)
              and (run_id is null) = (progress is null)`,
    },
  },
  {
    name: 'jobs',
    columns: {
      id: ID,
      account_id: ID,
      api_key_id: ID,
      fingerprint: HASH,
      state: ascii(16),
      class: ascii(16),
      output_format: ascii(8),
      created_at: INTEGER,
      fence: INTEGER,
      lost_attempts: INTEGER,
      lost_with_process: INTEGER,
      takeovers: INTEGER,
    },
    nullable: {
      idempotency_key_hash: HASH,
      queue_at: INTEGER,
      source_url: text(2048),
      source_host: ascii(32),
      input_blob: ascii(128),
      input_bytes: INTEGER,
      input_format: ascii(8),
      input_width: INTEGER,
      input_height: INTEGER,
      finishing: ascii(2048),
      frame_pixels: INTEGER,
      background_url: text(2048),
      background: ascii(512),
      model: ascii(64),
      no_subject: ascii(8),
      started_at: INTEGER,
      finished_at: INTEGER,
      expires_at: INTEGER,
      lease_holder: ascii(64),
      lease_expires_at: INTEGER,
      result_blob: ascii(128),
      result_blob_expires_at: INTEGER,
      result_token: HASH,
      // Room for a token sealed by two keys.
      result_token_sealed: ascii(255),
      result_format: ascii(8),
      result_bytes: INTEGER,
      result_width: INTEGER,
      result_height: INTEGER,
      result_sha256: HASH,
      result_sight: ascii(512),
      result_models: LONG_TEXT,
      result_thumbnail_bytes: INTEGER,
      failure_code: ascii(64),
      failure_detail: text(1024),
      failure_retryable: INTEGER,
      timings: LONG_TEXT,
      callback_url: text(2048),
      callback_secret: BYTES,
      callback_secret_key_id: ascii(64),
      cap_window_start: INTEGER,
      playground_day: INTEGER,
      // A traceparent of 55 characters, a blank, a tracestate of at most 512.
      trace_context: ascii(568),
    },
    primaryKey: ['id'],
    unique: {
      jobs_idempotency_key: ['api_key_id', 'idempotency_key_hash'],
      jobs_result_token: ['result_token'],
    },
    checks: {
      jobs_state: `state in ('accepted', 'fetching', 'ready', 'running', 'succeeded', 'failed')`,
      jobs_class: `class in ('sync', 'async', 'playground')`,
      jobs_playground: `(class = 'playground') = (playground_day is not null)`,
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
      jobs_result: `(state = 'succeeded') = (result_token is not null
    and result_token_sealed is not null and expires_at is not null)`,
      jobs_result_blob: '(result_blob is null) = (result_blob_expires_at is null)',
      jobs_failure: `(state = 'failed') = (failure_code is not null)`,
      jobs_callback: '(callback_secret is null) = (callback_secret_key_id is null)',
    },
    indexes: {
      // The queue is read lane by lane (queue/queue-reads.ts).
      jobs_queue: ['class', 'queue_at', 'id'],
      jobs_lane_state: ['state', 'account_id', 'api_key_id', 'class', 'queue_at', 'id'],
      jobs_finished: ['finished_at'],
      jobs_state_finished: ['state', 'finished_at', 'id'],
      jobs_account_finished: ['account_id', 'state', 'finished_at', 'id'],
      jobs_key_finished: ['api_key_id', 'state', 'finished_at', 'id'],
      jobs_result_expiry: ['result_blob_expires_at'],
    },
  },
  // What packages must still do about ended jobs (queue/settled-steps.ts).
  {
    name: 'unsettled_jobs',
    columns: { job_id: ID, package: ascii(64), created_at: INTEGER },
    primaryKey: ['package', 'job_id'],
  },
  {
    name: 'lost_results',
    columns: {
      job_id: ID,
      account_id: ID,
      finding_id: ID,
      found_by: ascii(16),
      found_at: INTEGER,
    },
    nullable: { settlement: ascii(16), settled_at: INTEGER },
    primaryKey: ['job_id'],
    checks: {
      lost_results_found: `found_by in ('download', 'replay', 'look', 'operator')`,
      lost_results_settled: `(settlement is null) = (settled_at is null)
              and (settlement is null or settlement in ('paid', 'returned', 'unpaid'))`,
    },
    indexes: { lost_results_open: ['settled_at', 'found_at', 'job_id'] },
  },
  {
    name: 'outbox',
    columns: {
      id: ID,
      kind: ascii(16),
      account_id: ID,
      address: text(2048),
      receiver: ascii(300),
      body: LONG_TEXT,
      status: ascii(16),
      attempts: INTEGER,
      fence: INTEGER,
      created_at: INTEGER,
    },
    nullable: {
      event: ascii(32),
      subject: text(200),
      secret: BYTES,
      secret_key_id: ascii(64),
      secret_erase_at: INTEGER,
      last_status_code: INTEGER,
      last_error: ascii(64),
      last_attempt_at: INTEGER,
      last_duration_ms: INTEGER,
      attempt_log: ascii(2048),
      next_attempt_at: INTEGER,
      lease_holder: ascii(64),
      lease_expires_at: INTEGER,
      finished_at: INTEGER,
    },
    primaryKey: ['id'],
    checks: {
      outbox_kind: `kind in ('webhook', 'mail') and (kind = 'mail') = (subject is not null)`,
      outbox_status: `status in ('pending', 'delivered', 'failed')`,
      outbox_attempts: 'attempts >= 0 and fence >= 0',
      outbox_final: `(status = 'pending') = (finished_at is null)`,
      outbox_next: `(status = 'pending') = (next_attempt_at is not null)`,
      outbox_lease: '(lease_holder is null) = (lease_expires_at is null)',
      outbox_secret: `(secret is null) = (secret_erase_at is null)
          and (kind = 'mail' or (secret is null) = (secret_key_id is null))`,
    },
    indexes: {
      outbox_due: ['kind', 'next_attempt_at'],
      outbox_lanes: [
        'kind',
        'status',
        'receiver',
        'account_id',
        'secret_key_id',
        'next_attempt_at',
      ],
      outbox_age: ['kind', 'status', 'created_at', 'id'],
      outbox_finished: ['kind', 'finished_at'],
      outbox_secret_erase: ['secret_erase_at'],
    },
  },
  {
    name: 'rate_quotas',
    columns: { account_id: ID, kind: ascii(16), window_start: INTEGER, leased: INTEGER },
    primaryKey: ['account_id', 'kind'],
    checks: {
      rate_quotas_kind: `kind in ('submissions', 'reads')`,
      rate_quotas_leased: 'leased >= 0 and window_start >= 0',
    },
  },
  {
    name: 'audit_entries',
    columns: {
      id: ID,
      account_id: ID,
      created_at: INTEGER,
      actor_kind: ascii(16),
      action: ascii(64),
      subject: text(254),
    },
    nullable: {
      actor_user_id: ID,
      actor_mail: text(254),
      address: ascii(64),
      value_before: LONG_TEXT,
      value_after: LONG_TEXT,
    },
    primaryKey: ['id'],
    checks: {
      audit_entries_actor: `actor_kind in ('person', 'operator', 'payment', 'system')
          and (actor_kind = 'person') = (actor_user_id is not null)`,
    },
    indexes: {
      audit_entries_account: ['account_id', 'created_at', 'id'],
      audit_entries_age: ['created_at'],
    },
  },
  {
    name: 'nodes',
    columns: {
      node_id: ascii(64),
      boot_id: ID,
      address: ascii(300),
      http_address: ascii(300),
      version: ascii(64),
      registered_at: INTEGER,
      heartbeat_at: INTEGER,
      lease_expires_at: INTEGER,
      draining: INTEGER,
    },
    nullable: { models: LONG_TEXT },
    primaryKey: ['node_id'],
    checks: { nodes_draining: 'draining in (0, 1)' },
  },
  {
    name: 'sweeps',
    columns: { id: ascii(16), fence: INTEGER, walk_part: INTEGER },
    nullable: {
      lease_holder: ascii(64),
      lease_expires_at: INTEGER,
      walk_began_at: INTEGER,
      look_due_at: INTEGER,
      look_after_at: INTEGER,
      look_after_id: ID,
    },
    primaryKey: ['id'],
    checks: {
      sweeps_single: `id = 'sweep'`,
      sweeps_lease: '(lease_holder is null) = (lease_expires_at is null)',
      sweeps_walk: 'walk_part >= 0 and fence >= 0',
    },
  },
  {
    name: 'secrets_canary',
    columns: { id: ascii(16), key_id: ascii(64), ciphertext: BYTES, created_at: INTEGER },
    primaryKey: ['id'],
    checks: { secrets_canary_single: `id = 'canary'` },
  },
];
