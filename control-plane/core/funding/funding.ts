/**
 * What pays for a job is held at its submission, and settled or released at its end. Each kind has
 * a file here, and takes first the row that keeps the account's other transactions out.
 */
import type { Database, Schema } from '@matting/database/database.ts';
import type { QueueJob } from '@matting/queue/job.ts';
import type { Transaction } from 'kysely';
import type { JobCorrection } from '../jobs/job-family.ts';
import type { FundedJob } from '../jobs/job-funding.ts';

type Tx = Transaction<Schema>;
type Payer = Pick<QueueJob, 'accountId' | 'apiKeyId'>;

export interface HoldLimits {
  readonly jobsInFlightMax?: number;
}

interface HeldJob extends FundedJob, Payer, HoldLimits {
  readonly id: string;
  readonly keyHasCap?: boolean;
  readonly unpaidDayMs?: number | null | undefined;
  readonly correction?: Omit<JobCorrection, 'matte'> | undefined;
}

/** Nothing changed. */
export interface HoldRefusal {
  readonly kind: 'insufficient-credits' | 'too-many-in-flight';
}

/** A job is in one of these counts beside the balance; null: in none. */
export type CountedIn = Pick<Schema['jobs'], 'cap_window_start' | 'playground_day' | 'base_matte'>;
type InsertJob = (counted: Partial<CountedIn>) => Promise<void>;

/** Has `close` close the job's row, and packages take their steps. Answers as `close` does. */
export type EndFunding = <T>(
  database: Database,
  tx: Tx,
  job: Payer & Pick<QueueJob, 'id' | 'capWindowStartMs'>,
  end: { readonly close: () => Promise<T>; readonly takeSteps: () => Promise<void> },
) => Promise<T | 'nothing-reserved'>;

export interface Funding {
  /** Undefined: it is held, and the job inserted. @throws CapReachedError, NotCorrectableError */
  hold(
    database: Database,
    tx: Tx,
    job: HeldJob,
    insertJob: InsertJob,
  ): Promise<HoldRefusal | undefined>;
  /** The job succeeds: what was held is spent. */
  readonly settle: EndFunding;
  /** The job fails: what was held goes back. */
  readonly release: EndFunding;
}
