/**
 * The core's tables as Kysely sees them; migrations/ makes them, in this order. A package declares
 * its own beside these (portal/tables.ts). Times are UTC milliseconds by the database's clock,
 * identifiers are compared byte by byte, and nothing relies on the order rows were inserted in.
 */

import type { Generated } from 'kysely';
import type { LedgerAuditKind } from './audit/last-audits.ts';
import type { CallbackStatus } from './jobs/job-callback.ts';

/**
 * How the last audit ended: the row `full`. Replicas of 0.2.0 also write a row `incremental`, the
 * columns run_id, saved_at and progress, and the table ledger_checkpoints, which nothing reads any
 * more: the second release after 0.2.0 may remove them.
 */
interface LedgerAuditsTable {
  kind: LedgerAuditKind;
  /** Always 0. */
  jobs_checked_to: number;
  last_started_at: number | null;
  last_finished_at: number | null;
  last_problems: number | null;
}

/** The parts of a job's row; docs/adr/0066. This one: what its caller sent. */
interface RequestColumns {
  /** An open job is to download this: image_url, or else background_url. */
  source_url: string | null;
  input_blob: string | null;
  input_bytes: number | null;
  input_format: string | null;
  input_width: number | null;
  input_height: number | null;
  output_format: string;
  /** The request wants this if no subject is seen; null: a result. */
  no_subject: 'fail' | null;
  /** JSON: `StoredFinishing` in core/jobs/job-rows.ts; null: a plain cut-out. */
  finishing: string | null;
  /** The pixels are of the frame that the request wants; null: the input's, or unknown. */
  frame_pixels: number | null;
  /** Set until the job is final, downloaded or not. */
  background_url: string | null;
  /** JSON of the JobInput that is stored. */
  background: string | null;
  /** JSON of the Hints; null: none. */
  hints: string | null;
  /** JSON of the JobInput that is stored, if they are a picture. */
  hints_file: string | null;
  /** The caller's own name for it; null: none, or its caller deleted it. */
  reference: string | null;
  /** W3C Trace Context of its submission; null: it was not traced. */
  trace_context: string | null;
}

/** What came of it. */
interface ResultColumns {
  /** null again once the sweeper took it. */
  result_blob: string | null;
  /** Equal to expires_at while result_blob is named: the sweeper's index. */
  result_blob_expires_at: number | null;
  /** SHA-256 of the token, which itself is in no column but sealed. */
  result_token: string | null;
  result_token_sealed: string | null;
  result_format: string | null;
  result_bytes: number | null;
  result_width: number | null;
  result_height: number | null;
  result_sha256: string | null;
  /** JSON of what the node saw. */
  result_sight: string | null;
  /** Equal to expires_at while a warned result waits for somebody's look. */
  look_until: number | null;
  /** JSON of UsedModel[]; null: none yet, or an earlier version made the result. */
  result_models: string | null;
  /** The size is of the blob beside result_blob; null: there is none. */
  result_thumbnail_bytes: number | null;
  failure_code: string | null;
  failure_detail: string | null;
  failure_retryable: number | null;
  /** JSON: stage to milliseconds. */
  timings: string | null;
}

/** Whom to notify. */
interface CallbackColumns {
  callback_url: string | null;
  /** Encrypted; moves to the outbox when the job ends. */
  callback_secret: Uint8Array | null;
  callback_secret_key_id: string | null;
}

/** What corrections of it need (core/corrections/). */
interface FamilyColumns {
  /** JSON: texts of the finishing fields, which its corrections take over; null: not correctable. */
  correctable: string | null;
  /** The job that this one corrects, and the first of them all; null: it corrects none. */
  corrects: string | null;
  family: string | null;
  /** JSON of the StoredMatte that an open correction begins with. */
  base_matte: string | null;
  /** When the job loses what it keeps for corrections; null: nothing is kept. */
  kept_until: number | null;
  /** JSON of the JobInput; the first of a family keeps it. */
  kept_input: string | null;
  /** JSON of the StoredMatte. */
  kept_matte: string | null;
  /** So many corrections were made of this job and of its corrections. */
  corrections: Generated<number>;
}

declare module '@matting/queue/tables.ts' {
  interface JobsTable extends RequestColumns, ResultColumns, CallbackColumns, FamilyColumns {}
}

/** A row a result whose file was gone while its link was good (results/lost-result-store.ts). */
interface LostResultsTable {
  job_id: string;
  account_id: string;
  /** The id is of the finding. */
  finding_id: string;
  found_by: 'download' | 'replay' | 'look' | 'operator';
  found_at: number;
  settlement: 'paid' | 'returned' | 'unpaid' | null;
  settled_at: number | null;
}

/** Messages that wait, and what became of them: core/webhooks/outbox-store.ts. */
interface OutboxTable {
  /** The id is its job's if it tells of a job's end; no job has the others. */
  id: string;
  kind: 'webhook' | 'mail';
  account_id: string;
  /** A URL, or whom a mail goes to. */
  address: string;
  /** `<host>:<port>` of a URL; empty for mails. */
  receiver: string;
  /** The subject is a mail's. */
  subject: string | null;
  /** Rendered once, and sealed; empty once its secret is erased, or a mail has ended. */
  body: string;
  /** The secret is a webhook's. */
  secret: Uint8Array | null;
  /** Empty for mails. */
  secret_key_id: string | null;
  /** Set while a secret is stored: when it must be gone, delivered or not. */
  secret_erase_at: number | null;
  status: CallbackStatus;
  attempts: number;
  last_status_code: number | null;
  /** A code of the mail server or of the connection to it. */
  last_error: string | null;
  last_attempt_at: number | null;
  last_duration_ms: number | null;
  /** Each attempt: core/webhooks/attempt-log.ts; null: none was made. */
  attempt_log: string | null;
  /** Set while the notification is pending. */
  next_attempt_at: number | null;
  lease_holder: string | null;
  lease_expires_at: number | null;
  fence: number;
  created_at: number;
  finished_at: number | null;
  /** The type of an account's event; null: a job's end, or a mail. */
  event: string | null;
}

/** The table has at most one row, which only the right secrets key can open. */
interface SecretsCanaryTable {
  id: string;
  key_id: string;
  ciphertext: Uint8Array;
  created_at: number;
}

/**
 * The table has at most one row: it names the replica that sweeps (core/retention/sweep-store.ts).
 */
interface SweepsTable {
  id: string;
  lease_holder: string | null;
  lease_expires_at: number | null;
  fence: number;
  /** The part that the walk over the blobs is at; behind the last one it has ended. */
  walk_part: number;
  /** null: there was none yet. */
  walk_began_at: number | null;
  /** Releases up to 0.3.0 look over live results by these. */
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
