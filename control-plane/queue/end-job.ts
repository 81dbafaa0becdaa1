/**
 * Ends a job in one transaction: its state, its funding, its payload and the steps of packages
 * (settled-steps.ts). First locks the row that the submission locked first (funding/).
 *
 * A repeated call with the same claim and end returns true and changes nothing: the first answer
 * may be lost, and only the holder of that fence can have made the change.
 */

import {
  type Database,
  type Db,
  OvertakenError,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import { isHeldBy } from '@matting/database/leases.ts';
import { keptMatchesOne } from '@matting/database/statements.ts';
import type { CompiledQuery, Transaction, Updateable, UpdateObject } from 'kysely';
import type { FundingKind } from './funding/funding.ts';
import { FUNDINGS } from './funding/fundings.ts';
import {
  type JobFailure,
  type JobState,
  OPEN_STATES,
  QUEUED_STATES,
  type QueueJob,
} from './job.ts';
import type { Claim } from './lease-rules.ts';
import {
  type JobOfSteps,
  type SettledJob,
  type SettledObserver,
  type SettledStep,
  SettledSteps,
  settledJobOf,
} from './settled-steps.ts';

type Tx = Transaction<Schema>;
export type Columns = Updateable<Schema['jobs']>;

export type EndableJob = JobOfSteps &
  Pick<QueueJob, 'state' | 'lease' | 'fence' | 'finishedAtMs' | 'capWindowStartMs'> & {
    readonly failure: JobFailure | null;
  };

export interface PayloadEnds<J extends EndableJob, S extends SettledJob = SettledJob> {
  read(database: Database, db: Db, jobId: string): Promise<J | undefined>;
  fundingOf(job: J): FundingKind;
  readonly cleared: Columns;
  failed(failure: JobFailure): Columns;
  /** Returns the payload's own fields, which steps in settled-steps.ts read. */
  settled(job: J): Omit<S, keyof SettledJob>;
  /**
   * Must call `close`, which closes the job's row. The returned function runs in the transaction
   * after the steps.
   */
  end(
    database: Database,
    tx: Tx,
    job: J,
    close: () => Promise<void>,
  ): Promise<(() => Promise<void>) | undefined>;
}

export interface EndOptions<S extends SettledJob> {
  readonly settled: readonly SettledStep<S>[];
  readonly observer?: SettledObserver;
}

export interface End {
  readonly kind: 'settle' | 'release';
  readonly retryable: boolean;
  /** Changes the job's row unless it changed since the transaction read it (`closing`). */
  readonly statement: CompiledQuery<unknown>;
  readonly closed?: (tx: Tx) => Promise<void>;
}

interface Ending<J> extends Omit<End, 'closed'> {
  readonly from: readonly JobState[];
  readonly closed?: (tx: Tx, job: J) => Promise<void>;
  /** Whether an earlier try of this call ended the final job. */
  readonly happened: (job: J) => boolean;
}

/** Ends a job in one of these states. The caller adds the condition on the lease or fence. */
export function closing(
  { kysely, nowMs }: Database,
  jobId: string,
  from: readonly JobState[],
  columns: UpdateObject<Schema, 'jobs'>,
) {
  return kysely
    .updateTable('jobs')
    .set({
      ...columns,
      finished_at: nowMs,
      queue_at: null,
      lease_holder: null,
      lease_expires_at: null,
      source_host: null,
    })
    .where('id', '=', jobId)
    .where('state', 'in', from);
}

export function settledBy<J extends EndableJob, S extends SettledJob>(
  payload: Pick<PayloadEnds<J, S>, 'fundingOf' | 'settled'>,
  job: J,
  ended: { readonly succeeded: boolean; readonly retryable: boolean },
): S {
  const settled = settledJobOf(job, { ...ended, funding: payload.fundingOf(job) });
  return { ...settled, ...payload.settled(job) } as S;
}

export class JobEnds<J extends EndableJob, S extends SettledJob = SettledJob> {
  readonly #database: Database;
  readonly #payload: PayloadEnds<J, S>;
  readonly #options: EndOptions<S>;

  constructor(database: Database, payload: PayloadEnds<J, S>, options: EndOptions<S>) {
    this.#database = database;
    this.#payload = payload;
    this.#options = options;
  }

  /**
   * Runs `run` in a transaction, which may repeat it.
   * @param jobId names the job in the log if a step is left out
   */
  async ending<T>(
    jobId: string,
    run: (tx: Tx, end: (job: J, how: End) => Promise<void>) => Promise<T>,
    giveUp?: AbortSignal,
  ): Promise<T> {
    const steps = new SettledSteps(this.#options.settled);
    const end = (tx: Tx) => (job: J, how: End) => this.#end(tx, job, how, steps);
    const ended = await transact(this.#database, tx => run(tx, end(tx)), giveUp);
    this.#noteLeftOut(jobId, steps);
    return ended;
  }

  finish(
    claim: Claim,
    { from, happened, closed, ...how }: Ending<J>,
    giveUp?: AbortSignal,
  ): Promise<boolean> {
    return this.ending(
      claim.jobId,
      async (tx, end) => {
        const job = await this.#payload.read(this.#database, tx, claim.jobId);
        if (job === undefined || job.fence !== claim.fence) return false;
        if (job.finishedAtMs !== null) return happened(job);
        if (job.lease?.holder !== claim.holder || !from.includes(job.state)) return false;
        await end(job, { ...how, ...(closed && { closed: of => closed(of, job) }) });
        return true;
      },
      giveUp,
    );
  }

  /** A retryable failure frees the job's Idempotency-Key. */
  fail(claim: Claim, failure: JobFailure, giveUp?: AbortSignal): Promise<boolean> {
    const { retryable } = failure;
    const columns = {
      ...this.#failed(failure),
      ...(retryable ? { idempotency_key_hash: null } : {}),
    };
    const closes = closing(this.#database, claim.jobId, OPEN_STATES, columns);
    const how: Ending<J> = {
      kind: 'release',
      retryable,
      from: OPEN_STATES,
      statement: closes.where(isHeldBy(claim)).compile(),
      happened: job => job.state === 'failed' && job.failure?.code === failure.code,
    };
    return this.finish(claim, how, giveUp);
  }

  /**
   * Ends a job without its holder: the raised fence stops the holder from admitting or ending
   * it.
   */
  cancelling(job: J, failure: JobFailure, from: readonly JobState[] = QUEUED_STATES): End {
    const columns = { ...this.#failed(failure), fence: job.fence + 1 };
    const closes = closing(this.#database, job.id, from, columns).where('fence', '=', job.fence);
    return { kind: 'release', retryable: false, statement: closes.compile() };
  }

  /**
   * Ends the job in the caller's transaction.
   * @returns a function to call after the commit
   */
  async cancelIn(tx: Tx, job: J, failure: JobFailure): Promise<() => void> {
    const steps = new SettledSteps(this.#options.settled);
    await this.#end(tx, job, this.cancelling(job, failure), steps);
    return () => this.#noteLeftOut(job.id, steps);
  }

  #failed(failure: JobFailure) {
    const { cleared, failed } = this.#payload;
    return { ...cleared, ...failed(failure), state: 'failed' as const };
  }

  #noteLeftOut(job: string, { leftOut }: SettledSteps<S>): void {
    for (const { name: step, error: err } of leftOut) {
      this.#database.log.warn({ err, job, step }, 'a step was left out of the end of a job');
      this.#options.observer?.settledLeftOut(step);
    }
  }

  /** Throws if the job changed since this transaction read it. */
  async #end(tx: Tx, job: J, how: End, steps: SettledSteps<S>): Promise<void> {
    const { id: jobId, accountId } = job;
    const database = this.#database;
    const payload = this.#payload;
    const ended = { succeeded: how.kind === 'settle', retryable: how.retryable };
    const close = async () => {
      if (!(await keptMatchesOne(tx, how.statement))) throw overtaken(jobId);
      await how.closed?.(tx);
    };
    const after = await FUNDINGS[payload.fundingOf(job)][how.kind](database, tx, job, {
      close: () => payload.end(database, tx, job, close),
      takeSteps: () => steps.run(database, tx, settledBy(payload, job, ended)),
    });
    if (after !== 'nothing-reserved') return await after?.();
    // Another call may have settled this job under the same claim.
    const now = await payload.read(database, tx, jobId);
    if (now?.fence !== job.fence || now.finishedAtMs !== null) throw overtaken(jobId);
    throw new Error(`account ${accountId} has nothing reserved for its open job ${jobId}`);
  }
}

/** The repeated transaction sees the raised fence or the final job. */
function overtaken(jobId: string): OvertakenError {
  return new OvertakenError(`job ${jobId} was claimed or ended after it was read`);
}
