/**
 * What pays for a job is held at its submission, and settled or released at its end. Each kind has
 * a file here, and takes first the row that keeps the account's other transactions out.
 */
import type { Database, Schema } from '@matting/database/database.ts';
import type { Transaction } from 'kysely';
import type { QueueJob } from '../job.ts';

/** credit: the account pays. free: nobody does. unpaid: a package counted it (docs/adr/0022). */
export type FundingKind = 'credit' | 'free' | 'unpaid';

type Tx = Transaction<Schema>;
type Payer = Pick<QueueJob, 'id' | 'accountId' | 'apiKeyId'>;

export interface HoldLimits {
  readonly jobsInFlightMax?: number;
}

interface HeldJob extends Payer, HoldLimits {
  readonly keyHasCap?: boolean;
}

/** Nothing changed. */
export interface HoldRefusal {
  readonly kind: 'insufficient-credits' | 'too-many-in-flight';
}

/** @param capWindowStartMs the count of the key's cap that the job is in; null: none */
type InsertJob = (capWindowStartMs: number | null) => Promise<void>;

/** Has `close` close the job's row, and packages take their steps. Answers as `close` does. */
export type EndFunding = <T>(
  database: Database,
  tx: Tx,
  job: Payer & Pick<QueueJob, 'capWindowStartMs'>,
  end: { readonly close: () => Promise<T>; readonly takeSteps: () => Promise<void> },
) => Promise<T | 'nothing-reserved'>;

export interface Funding {
  /** Undefined: it is held, and the job inserted. @throws CapReachedError, and what `insertJob` throws */
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
