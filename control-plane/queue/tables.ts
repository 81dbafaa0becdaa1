/**
 * The queue's columns of a job's row. The core adds those of the request and the result
 * (core/tables.ts).
 */
import type { JobClass, JobState } from './job.ts';

export interface JobsTable {
  id: string;
  account_id: string;
  api_key_id: string;
  /** SHA-256, hexadecimal. null: no key, or a retryable failure freed it. */
  idempotency_key_hash: string | null;
  fingerprint: string;
  state: JobState;
  class: JobClass;
  /** Set while the job is open. Orders the jobs of its class (queuePositionMs). */
  queue_at: number | null;
  /** Host and port of the next download (`sourceHostOf`). */
  source_host: string | null;
  model: string | null;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
  expires_at: number | null;
  deleted_at: number | null;
  lease_holder: string | null;
  lease_expires_at: number | null;
  fence: number;
  lost_attempts: number;
  lost_with_process: number;
  takeovers: number;
  cap_window_start: number | null;
  playground_day: number | null;
  batch_id: string | null;
  batch_item: number | null;
}

interface UnsettledJobsTable {
  job_id: string;
  package: string;
  created_at: number;
}

declare module '@matting/database/database.ts' {
  interface Schema {
    jobs: JobsTable;
    unsettled_jobs: UnsettledJobsTable;
  }
}
