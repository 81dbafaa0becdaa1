/**
 * Packages take part in the end of a job: each has a step in the job's transaction, and so counts
 * every job once. A step cannot keep a job from ending.
 *
 * If a step fails, all roll back to the savepoint before them. Each then runs again after a
 * savepoint of its own, and the one that fails is left out.
 *
 * If a step ends the transaction (a conflict, a lost connection), the whole transaction repeats.
 * After STEP_ENDS_MAX repeats, all steps are left out.
 *
 * Each left-out step adds a row to `unsettled_jobs` in the same transaction; unsettled-jobs.ts runs
 * it later.
 */

import { CREDITS_PER_JOB } from '@matting/accounts/ledger/ledger.ts';
import { selectSettlement } from '@matting/accounts/ledger/ledger-writer.ts';
import { type Database, type Db, OvertakenError, type Schema } from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { CompiledQuery, type RawBuilder, type SelectQueryBuilder, sql } from 'kysely';
import type { FundingKind } from './funding/funding.ts';
import type { QueueJob } from './job.ts';

/** What a step gets of an ended job. The payload adds fields (`PayloadEnds.settled`). */
export interface SettledJob {
  readonly accountId: string;
  readonly jobId: string;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  readonly unpaidDayMs: number | null;
  readonly retryable: boolean;
  readonly outcome: 'succeeded' | 'failed';
  readonly funding: FundingKind;
  readonly groupId: string | undefined;
  readonly credits: number;
}

export type JobOfSteps = Pick<
  QueueJob,
  'id' | 'accountId' | 'apiKeyId' | 'createdAtMs' | 'unpaidDayMs' | 'group'
>;

export function settledJobOf(
  { id: jobId, accountId, apiKeyId, createdAtMs, unpaidDayMs, group }: JobOfSteps,
  {
    succeeded,
    retryable,
    funding,
  }: Pick<SettledJob, 'retryable' | 'funding'> & {
    readonly succeeded: boolean;
  },
): SettledJob {
  return {
    ...{ accountId, jobId, apiKeyId, createdAtMs, unpaidDayMs, retryable, funding },
    outcome: succeeded ? 'succeeded' : 'failed',
    groupId: group?.id,
    credits: succeeded && funding === 'credit' ? CREDITS_PER_JOB : 0,
  };
}

export interface SettledStep<S extends SettledJob = SettledJob> {
  /** `unsettled_jobs` stores it, so it must never change. */
  readonly name: string;
  /**
   * Runs with the account's row locked, after the job is closed and its credit settled, or later if
   * it was left out. It must take a few indexed statements at most.
   */
  settled(database: Database, tx: Db, job: S): Promise<void>;
}

/** Selects the row with the end time: the job's ledger entry, or the job if it takes no credit. */
export function selectEnd(
  db: Db,
  { accountId, jobId, funding }: Pick<SettledJob, 'accountId' | 'jobId' | 'funding'>,
): { row: SelectQueryBuilder<Schema, never, object>; atMs: RawBuilder<number> } {
  if (funding !== 'credit') {
    return { row: db.selectFrom('jobs').where('id', '=', jobId), atMs: sql.ref('finished_at') };
  }
  const row = selectSettlement(db, { accountId, jobId });
  return { row, atMs: sql.ref('created_at') };
}

export interface SettledObserver {
  settledLeftOut(step: string): void;
}

/** Steps may end the transaction of one job's end this many times. */
const STEP_ENDS_MAX = 2;

const SAVEPOINT = CompiledQuery.raw('savepoint settled');
/** A rollback keeps the savepoint until the transaction ends. */
const ROLLBACK = CompiledQuery.raw('rollback to savepoint settled');

interface LeftOut {
  readonly name: string;
  readonly error: unknown;
}

export class SettledSteps<S extends SettledJob = SettledJob> {
  readonly #steps: readonly SettledStep<S>[];
  #ends = 0;
  #lastEnd: unknown;
  #leftOut: readonly LeftOut[] = [];

  constructor(steps: readonly SettledStep<S>[]) {
    this.#steps = steps;
  }

  get leftOut(): readonly LeftOut[] {
    return this.#leftOut;
  }

  async run(database: Database, tx: Db, job: S): Promise<void> {
    this.#leftOut =
      this.#ends < STEP_ENDS_MAX
        ? await this.#attempt(database, tx, job)
        : this.#steps.map(({ name }) => ({ name, error: this.#lastEnd }));
    for (const { name } of this.#leftOut) {
      await tx
        .insertInto('unsettled_jobs')
        .values({ job_id: job.jobId, package: name, created_at: database.nowMs })
        .execute();
    }
  }

  async #attempt(database: Database, tx: Db, job: S): Promise<LeftOut[]> {
    const together = await this.#guarded(tx, async () => {
      for (const step of this.#steps) await step.settled(database, tx, job);
    });
    if (together === undefined) return [];
    const leftOut: LeftOut[] = [];
    for (const step of this.#steps) {
      const failed = await this.#guarded(tx, () => step.settled(database, tx, job));
      if (failed !== undefined) leftOut.push({ name: step.name, ...failed });
    }
    return leftOut;
  }

  async #guarded(tx: Db, run: () => Promise<void>): Promise<{ error: unknown } | undefined> {
    await tx.executeQuery(SAVEPOINT);
    try {
      await run();
      return undefined;
    } catch (error) {
      if (endsTransaction(error)) {
        this.#ends += 1;
        this.#lastEnd = error;
        throw error;
      }
      await tx.executeQuery(ROLLBACK);
      return { error };
    }
  }
}

function endsTransaction(error: unknown): boolean {
  if (error instanceof OvertakenError) return true;
  const kind = databaseErrorKind(error);
  return kind !== 'duplicate' && kind !== 'other' && kind !== 'refused';
}
