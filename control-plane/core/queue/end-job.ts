/**
 * A job's end: its state, its funding, its notification and what packages do with it (SettledStep),
 * by the holder of the fence. The row that its hold took first comes first here too (core/funding/).
 *
 * A second call with the same claim and end answers true and changes nothing: the answer to a
 * commit may be lost, and only the holder of that fence can have made it.
 */

import {
  type Database,
  OvertakenError,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import { isHeldBy } from '@matting/database/leases.ts';
import { keepStatement, keptMatchesOne, nowPlusMs } from '@matting/database/statements.ts';
import { warningsOf } from '@matting/proto/contract/finishing.ts';
import type { JobState, JobStatus } from '@matting/queue/job.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import { type CompiledQuery, sql, type Transaction, type UpdateObject } from 'kysely';
import { keepFiles } from '../corrections/kept-files.ts';
import { fundingOf } from '../funding/fundings.ts';
import type { Job, ViewedJob } from '../jobs/job.ts';
import type { StoredMatte } from '../jobs/job-family.ts';
import type { JobOutcome } from '../jobs/job-outcome.ts';
import { readJob } from '../jobs/job-reading.ts';
import { failureColumns, inputColumns, resultColumns } from '../jobs/job-rows.ts';
import { looked } from '../jobs/looks.ts';
import { insertWebhook } from '../webhooks/outbox-store.ts';
import type { Queue } from './queue.ts';
import {
  type JobOfSteps,
  type SettledObserver,
  type SettledStep,
  SettledSteps,
  settledJobOf,
} from './settled-steps.ts';

export interface JobCompletionOptions {
  /** The notification's sealed body. Quick and without effects: a transaction is open. */
  readonly renderOutboxBody: (job: ViewedJob) => string;
  readonly settled: readonly SettledStep[];
  readonly observer?: SettledObserver;
  /** Time between a job's end and the first attempt to notify; 0 unless given. */
  readonly webhookFirstWaitMs?: number;
}

const SUCCEEDS_FROM: JobState[] = ['running'];
const FAILS_FROM: JobState[] = ['accepted', 'fetching', 'ready', 'running'];

/** Ends a job that is in one of these states; the caller adds who may. */
export function closing(
  { kysely, nowMs }: Database,
  jobId: string,
  from: JobState[],
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
      source_url: null,
      source_host: null,
      ...inputColumns(null),
      background_url: null,
      background: null,
      hints: null,
      hints_file: null,
      base_matte: null,
      callback_secret: null,
      callback_secret_key_id: null,
    })
    .where('id', '=', jobId)
    .where('state', 'in', from);
}

type Success = Claim &
  ReturnType<typeof resultColumns> & {
    readonly resultTtlMs: number;
    readonly timings: string;
    /** 1: the result has a warning. */
    readonly warned: 0 | 1;
  };

const SUCCEED = keepStatement<Success>(
  (database, { jobId, holder, fence, resultTtlMs, warned, ...columns }) => {
    const expiresAt = nowPlusMs(database.nowMs, resultTtlMs);
    return closing(database, jobId, SUCCEEDS_FROM, {
      ...columns,
      state: 'succeeded',
      expires_at: expiresAt,
      result_blob_expires_at: expiresAt,
      // Whoever corrects a result looks at what comes of it.
      look_until: sql`case when ${warned} = 1 and corrects is null then ${expiresAt} end`,
    }).where(isHeldBy({ holder, fence }));
  },
);

export function jobCompletion(database: Database, options: JobCompletionOptions) {
  const finish = async (claim: Claim, ending: Ending, giveUp?: AbortSignal): Promise<boolean> => {
    const steps = new SettledSteps(options.settled);
    const finishIn = async (tx: Transaction<Schema>) => {
      const job = await readJob(database, tx, claim.jobId);
      if (job === undefined || job.fence !== claim.fence) return false;
      if (job.finishedAtMs !== null) return ending.happened(job);
      if (job.lease?.holder !== claim.holder || !ending.from.includes(job.state)) return false;
      await endJob(database, tx, job, { options, steps, ending });
      return true;
    };
    const ended = await transact(database, finishIn, giveUp);
    noteLeftOut(database, options, claim.jobId, steps);
    return ended;
  };
  return {
    succeed(claim, result, resultTtlMs, timings, { giveUp, matte } = {}) {
      const { jobId, holder, fence } = claim;
      const warned = warningsOf(result.sight).length > 0 ? 1 : 0;
      const values = {
        jobId,
        holder,
        fence,
        ...resultColumns(result),
        resultTtlMs,
        warned,
      } as const;
      const ending: Ending = {
        kind: 'settle',
        retryable: false,
        matte,
        from: SUCCEEDS_FROM,
        statement: SUCCEED(database, { ...values, timings: JSON.stringify(timings) }),
        happened: job => job.state === 'succeeded' && job.result?.token === result.token,
      };
      return finish(claim, ending, giveUp);
    },
    fail(claim, failure, giveUp) {
      const ending: Ending = {
        kind: 'release',
        retryable: failure.retryable,
        from: FAILS_FROM,
        statement: closing(database, claim.jobId, FAILS_FROM, {
          state: 'failed',
          ...failureColumns(failure),
          ...(failure.retryable ? { idempotency_key_hash: null } : {}),
        })
          .where(isHeldBy(claim))
          .compile(),
        happened: job => job.state === 'failed' && job.failure?.code === failure.code,
      };
      return finish(claim, ending, giveUp);
    },
  } satisfies Partial<Queue>;
}

export function noteLeftOut(
  { log }: Database,
  { observer }: JobCompletionOptions,
  job: string,
  { leftOut }: SettledSteps,
): void {
  for (const { name: step, error: err } of leftOut) {
    log.warn({ err, job, step }, 'a step was left out of the end of a job');
    observer?.settledLeftOut(step);
  }
}

export interface EndWork {
  readonly options: JobCompletionOptions;
  readonly steps: SettledSteps;
  readonly ending: End;
}

/** An end reads these of a job. */
export type EndingJob = JobOfSteps & Pick<Job, 'fence' | 'capWindowStartMs' | 'callback' | 'input'>;

/** Ends an open job that was read in this transaction. Throws where it has changed since. */
export async function endJob(
  database: Database,
  tx: Transaction<Schema>,
  job: EndingJob,
  { options, steps, ending }: EndWork,
): Promise<void> {
  const { id: jobId, accountId } = job;
  const settled = settledJobOf(job, ending.kind === 'settle', ending.retryable);
  const secret = await fundingOf(job)[ending.kind](database, tx, job, {
    close: async () => {
      const callbackSecret = await readCallbackSecret(tx, job);
      if (!(await keptMatchesOne(tx, ending.statement))) throw overtaken(jobId);
      if (job.correction !== null && ending.kind === 'settle') await looked(tx, job.correction.of);
      if (ending.matte !== undefined) await keepFiles(tx, job, ending.matte);
      return callbackSecret;
    },
    takeSteps: () => steps.run(database, tx, settled),
  });
  if (secret === 'nothing-reserved') {
    // Perhaps another call settled this job under the same claim meanwhile.
    const now = await readJob(database, tx, jobId);
    if (now?.fence !== job.fence || now.finishedAtMs !== null) throw overtaken(jobId);
    throw new Error(`account ${accountId} has nothing reserved for its open job ${jobId}`);
  }
  if (secret !== undefined) await notify(database, tx, options, jobId, secret);
}

async function notify(
  database: Database,
  tx: Transaction<Schema>,
  { renderOutboxBody, webhookFirstWaitMs = 0 }: JobCompletionOptions,
  jobId: string,
  secret: NonNullable<Awaited<ReturnType<typeof readCallbackSecret>>>,
): Promise<void> {
  const ended = await readJob(database, tx, jobId);
  if (ended?.callback == null) throw new Error(`job ${jobId} lost its callback`);
  const { accountId } = ended;
  const told = { id: jobId, accountId, event: null, url: ended.callback.url };
  const webhook = { ...told, body: renderOutboxBody(ended), ...secret };
  await insertWebhook(database, tx, webhook, webhookFirstWaitMs);
}

/** The next round finds a fence that moved, or a job that is final. */
function overtaken(jobId: string): OvertakenError {
  return new OvertakenError(`job ${jobId} was claimed or ended after it was read`);
}

interface End {
  readonly kind: 'settle' | 'release';
  /** A failure that passes. */
  readonly retryable: boolean;
  /** Stored for corrections of this job; absent: it takes none. */
  readonly matte?: StoredMatte | undefined;
  /** Changes the job's row where it still is as it was read. */
  readonly statement: CompiledQuery<unknown>;
}

interface Ending extends End {
  readonly from: JobState[];
  /** True for a final job that this very ending made. */
  readonly happened: (job: JobStatus & JobOutcome) => boolean;
}

async function readCallbackSecret(tx: Transaction<Schema>, job: EndingJob) {
  if (job.callback === null) return undefined;
  return tx
    .selectFrom('jobs')
    .select(['callback_secret as secret', 'callback_secret_key_id as secretKeyId'])
    .where('id', '=', job.id)
    .executeTakeFirstOrThrow();
}
