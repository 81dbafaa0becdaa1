/**
 * A job's row as the queue has it. What the job is to do, and what came of it, are columns that the
 * core adds (core/tables.ts).
 */
import type { JobClass, JobState } from './job.ts';

export interface JobsTable {
  id: string;
  account_id: string;
  api_key_id: string;
  /** SHA-256, hexadecimal; null: no key, or a retryable failure freed it. */
  idempotency_key_hash: string | null;
  fingerprint: string;
  state: JobState;
  class: JobClass;
  /** Set while the job is open: orders the jobs of its class (queuePositionMs). */
  queue_at: number | null;
  /** The value is sourceHostOf the next download. */
  source_host: string | null;
  /** The plan or model that the request named. */
  model: string | null;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
  /** The result's link expires then. */
  expires_at: number | null;
  /** When the caller deleted the result. */
  deleted_at: number | null;
  lease_holder: string | null;
  lease_expires_at: number | null;
  fence: number;
  lost_attempts: number;
  lost_with_process: number;
  takeovers: number;
  /** The count of its key's cap that it is in: api_keys.cap_window_start then; null: none. */
  cap_window_start: number | null;
  /** The day whose allowance an unpaid job is counted in; null: it is paid for. */
  playground_day: number | null;
  /** The group that it is of, and its position there, from 0; null: of none. */
  batch_id: string | null;
  batch_item: number | null;
}

/** A package has this left to do with a job that ended (settled-steps.ts). */
interface UnsettledJobsTable {
  job_id: string;
  /** The step's name. */
  package: string;
  created_at: number;
}

declare module '@matting/database/database.ts' {
  interface Schema {
    jobs: JobsTable;
    unsettled_jobs: UnsettledJobsTable;
  }
}
