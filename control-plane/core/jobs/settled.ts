/**
 * What packages do with the end of a job (job-completion.ts): each a step in the job's own
 * transaction, so that it counts every job once.
 */
import type { Database } from '../database/connect.ts';
import type { Db } from '../database/schema.ts';

/** A job that ends. */
export interface SettledJob {
  readonly accountId: string;
  readonly jobId: string;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  readonly outcome: 'succeeded' | 'failed';
  /** A failure that passes. */
  readonly retryable: boolean;
  /** Charged. */
  readonly credits: number;
  /** Of its output. */
  readonly format: string;
  /** The day whose allowance it is counted in; null: it is paid for. */
  readonly unpaidDayMs: number | null;
}

export interface SettledStep {
  readonly name: string;
  /**
   * Called once the job is closed and its credit settled, with the account's row held. An unpaid
   * job holds no such row and has nothing settled: it is called before the job's row is changed, so
   * that the allowance's row comes first. Bounded: a few statements by an index.
   */
  settled(database: Database, tx: Db, job: SettledJob): Promise<void>;
}
