/**
 * Funding is held at a job's submission, and settled or released at its end. Each kind first locks
 * the row that excludes the account's other transactions.
 */
import type { Database, Schema } from '@matting/database/database.ts';
import type { Transaction } from 'kysely';
import type { QueueJob } from '../job.ts';

/**
 * credit: the account pays. free: nobody pays. unpaid: nobody pays, and a package counts the job
 * against a daily allowance (docs/adr/0022).
 */
export type FundingKind = 'credit' | 'free' | 'unpaid';

type Tx = Transaction<Schema>;
type Payer = Pick<QueueJob, 'id' | 'accountId' | 'apiKeyId'>;

export interface HoldLimits {
  readonly jobsInFlightMax?: number;
}

interface HeldJob extends Payer, HoldLimits {
  readonly keyHasCap?: boolean;
}

/** A refusal changes nothing. */
export interface HoldRefusal {
  readonly kind: 'insufficient-credits' | 'too-many-in-flight';
}

/** @param capWindowStartMs start of the cap window in which the job counts; null: none */
type InsertJob = (capWindowStartMs: number | null) => Promise<void>;

/**
 * Calls `close`, which closes the job's row, then runs the steps of packages.
 * @returns the result of `close`
 */
export type EndFunding = <T>(
  database: Database,
  tx: Tx,
  job: Payer & Pick<QueueJob, 'capWindowStartMs'>,
  end: { readonly close: () => Promise<T>; readonly takeSteps: () => Promise<void> },
) => Promise<T | 'nothing-reserved'>;

export interface Funding {
  /**
   * @returns undefined: the funding is held and the job inserted
   * @throws CapReachedError, and errors of `insertJob`
   */
  hold(
    database: Database,
    tx: Tx,
    job: HeldJob,
    insertJob: InsertJob,
  ): Promise<HoldRefusal | undefined>;
  readonly settle: EndFunding;
  readonly release: EndFunding;
}
