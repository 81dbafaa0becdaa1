/**
 * A package declares its own tables. Times are UTC milliseconds by the database's clock.
 * Identifiers compare byte by byte. Nothing relies on the order of insertion.
 */

import type { Generated } from 'kysely';
import type { CallbackStatus } from './jobs/job-callback.ts';

/** One row: how the last audit ended. */
interface LedgerAuditsTable {
  kind: 'full';
  /** Unused: always 0. */
  jobs_checked_to: number;
  last_started_at: number | null;
  last_finished_at: number | null;
  last_problems: number | null;
}

/** docs/adr/0066 describes the parts of a job's row. */
interface RequestColumns {
  /** The address to download next: first image_url, then background_url. */
  source_url: string | null;
  input_blob: string | null;
  input_bytes: number | null;
  input_format: string | null;
  input_width: number | null;
  input_height: number | null;
  output_format: string;
  /** `fail`: a job whose image shows no subject fails. null: it succeeds. */
  no_subject: 'fail' | null;
  /** JSON: `StoredFinishing` in core/jobs/job-rows.ts; null: a plain cut-out. */
  finishing: string | null;
  /** Pixels of the requested frame; null: the input's, or unknown. */
  frame_pixels: number | null;
  /** Kept after the download, until the job is final. */
  background_url: string | null;
  /** JSON of the stored JobInput. */
  background: string | null;
  hints: string | null;
  /** JSON of the stored JobInput, if the hints are a picture. */
  hints_file: string | null;
  /** The caller's name for the job; null: none, or deleted. */
  reference: string | null;
  /** W3C Trace Context of the submission; null: not traced. */
  trace_context: string | null;
}

interface ResultColumns {
  /** Null again once the blob is removed. */
  result_blob: string | null;
  /** Equal to expires_at while result_blob is set, for an index of expired results. */
  result_blob_expires_at: number | null;
  /** SHA-256 of the token; the token itself is only stored sealed. */
  result_token: string | null;
  result_token_sealed: string | null;
  result_format: string | null;
  result_bytes: number | null;
  result_width: number | null;
  result_height: number | null;
  result_sha256: string | null;
  /** JSON of the node's report on the subject. */
  result_sight: string | null;
  /** Equal to expires_at while a person still has to review a warned result. */
  look_until: number | null;
  /** JSON of UsedModel[]; null: none yet, or an earlier release made the result. */
  result_models: string | null;
  /** Size of the thumbnail, stored with result_blob; null: no thumbnail. */
  result_thumbnail_bytes: number | null;
  failure_code: string | null;
  failure_detail: string | null;
  failure_retryable: number | null;
  timings: string | null;
}

interface CallbackColumns {
  callback_url: string | null;
  /** Encrypted; moves to the outbox when the job ends. */
  callback_secret: Uint8Array | null;
  callback_secret_key_id: string | null;
}

interface FamilyColumns {
  /** JSON: texts of finishing fields, which corrections inherit; null: not correctable. */
  correctable: string | null;
  /** The corrected job, and the first of its family; null: the job is not a correction. */
  corrects: string | null;
  family: string | null;
  /** JSON of the StoredMatte that an open correction begins with. */
  base_matte: string | null;
  /** When the files kept for corrections expire; null: nothing is kept. */
  kept_until: number | null;
  /** JSON of the JobInput; the first job of a family keeps it. */
  kept_input: string | null;
  /** JSON of the StoredMatte. */
  kept_matte: string | null;
  /** Number of corrections of this job and of its corrections. */
  corrections: Generated<number>;
}

declare module '@matting/queue/tables.ts' {
  interface JobsTable extends RequestColumns, ResultColumns, CallbackColumns, FamilyColumns {}
}

interface LostResultsTable {
  job_id: string;
  account_id: string;
  finding_id: string;
  found_by: 'download' | 'replay' | 'look' | 'operator';
  found_at: number;
  settlement: 'paid' | 'returned' | 'unpaid' | null;
  settled_at: number | null;
}

interface OutboxTable {
  /** The job's id for a job's end; otherwise an id that no job has. */
  id: string;
  kind: 'webhook' | 'mail';
  account_id: string;
  /** A URL, or a mail's recipient. */
  address: string;
  /** `<host>:<port>` of a URL; empty for mails. */
  receiver: string;
  subject: string | null;
  /** Rendered once and sealed; empty once the secret is erased or the mail has ended. */
  body: string;
  secret: Uint8Array | null;
  /** Empty for mails. */
  secret_key_id: string | null;
  /** When the secret must be erased, even if undelivered. */
  secret_erase_at: number | null;
  status: CallbackStatus;
  attempts: number;
  last_status_code: number | null;
  /** A code of the mail server or of the connection to it. */
  last_error: string | null;
  last_attempt_at: number | null;
  last_duration_ms: number | null;
  /** See attempt-log.ts; null: no attempt was made. */
  attempt_log: string | null;
  next_attempt_at: number | null;
  lease_holder: string | null;
  lease_expires_at: number | null;
  fence: number;
  created_at: number;
  finished_at: number | null;
  /** The type of an account's event; null: a job's end, or a mail. */
  event: string | null;
}

/** At most one row: a text that only the right secrets key opens. */
interface SecretsCanaryTable {
  id: string;
  key_id: string;
  ciphertext: Uint8Array;
  created_at: number;
}

interface SweepsTable {
  id: string;
  lease_holder: string | null;
  lease_expires_at: number | null;
  fence: number;
  /** The current part of the walk over the blobs, or WALK_PARTS once the walk has ended. */
  walk_part: number;
  walk_began_at: number | null;
  /** Only releases up to 0.3.0 use these three columns. */
  look_due_at: number | null;
  look_after_at: number | null;
  look_after_id: string | null;
}

declare module '@matting/database/database.ts' {
  interface Schema {
    ledger_audits: LedgerAuditsTable;
    lost_results: LostResultsTable;
    outbox: OutboxTable;
    sweeps: SweepsTable;
    secrets_canary: SecretsCanaryTable;
  }
}
