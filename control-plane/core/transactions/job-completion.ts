/**
 * A job's end: its state, its money, its notification and what packages do with it (SettledStep),
 * by the holder of the fence. The account's row comes first here too, that of its allowance for an
 * unpaid job, so that no two transactions wait for each other.
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
import { keepStatement, keptMatchesOne, nowPlusMs } from '@matting/database/statements.ts';
import type { CompiledQuery, Transaction, UpdateObject } from 'kysely';
import type { Claim, Job, JobFailure, JobResult, StageTimings } from '../jobs/job.ts';
import { readJob } from '../jobs/job-reading.ts';
import { failureColumns, resultColumns } from '../jobs/job-rows.ts';
import { giveBackToCap } from '../keys/key-caps.ts';
import { CREDITS_PER_JOB } from '../ledger/ledger.ts';
import { settleCredit } from '../ledger/ledger-writer.ts';
import { insertWebhook } from '../webhooks/outbox-store.ts';
import {
  type SettledJob,
  type SettledObserver,
  type SettledStep,
  SettledSteps,
} from './settled-steps.ts';

export interface JobCompletionOptions {
  /** The notification's sealed body. Quick and without effects: a transaction is open. */
  readonly renderOutboxBody: (job: Job) => string;
  readonly settled: readonly SettledStep[];
  readonly observer?: SettledObserver;
  /** This time passes between a job's end and the first attempt to notify; 0 unless given. */
  readonly webhookFirstWaitMs?: number;
}

const SUCCEEDS_FROM: Job['state'][] = ['running'];
const FAILS_FROM: Job['state'][] = ['accepted', 'fetching', 'ready', 'running'];

function closing(
  { kysely, nowMs }: Database,
  claim: Claim,
  from: Job['state'][],
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
      input_blob: null,
      input_bytes: null,
      input_format: null,
      input_width: null,
      input_height: null,
      background_url: null,
      background: null,
      callback_secret: null,
      callback_secret_key_id: null,
    })
    .where('id', '=', claim.jobId)
    .where('fence', '=', claim.fence)
    .where('lease_holder', '=', claim.holder)
    .where('state', 'in', from);
}

type Success = Claim &
  ReturnType<typeof resultColumns> & { readonly resultTtlMs: number; readonly timings: string };

const SUCCEED = keepStatement<Success>(
  (database, { jobId, holder, fence, resultTtlMs, ...columns }) => {
    const expiresAt = nowPlusMs(database.nowMs, resultTtlMs);
    return closing(database, { jobId, holder, fence }, SUCCEEDS_FROM, {
      ...columns,
      state: 'succeeded',
      expires_at: expiresAt,
      result_blob_expires_at: expiresAt,
    });
  },
);

export type JobCompletion = ReturnType<typeof jobCompletion>;

export function jobCompletion(database: Database, options: JobCompletionOptions) {
  const finish = async (claim: Claim, ending: Ending, giveUp?: AbortSignal): Promise<boolean> => {
    const steps = new SettledSteps(options.settled);
    const work = { options, steps, claim, ending };
    const ended = await transact(database, tx => finishIn(database, tx, work), giveUp);
    for (const { name, error } of steps.leftOut) {
      const fields = { err: error, job: claim.jobId, step: name };
      database.log.warn(fields, 'a step was left out of the end of a job');
      options.observer?.settledLeftOut(name);
    }
    return ended;
  };
  return {
    /** One transaction: result, charge, outbox, lease and input gone. False: fenced off. */
    succeed(
      claim: Claim,
      result: JobResult,
      resultTtlMs: number,
      timings: StageTimings,
      giveUp?: AbortSignal,
    ): Promise<boolean> {
      const { jobId, holder, fence } = claim;
      const values = { jobId, holder, fence, ...resultColumns(result), resultTtlMs };
      const ending: Ending = {
        kind: 'charge',
        retryable: false,
        from: SUCCEEDS_FROM,
        statement: SUCCEED(database, { ...values, timings: JSON.stringify(timings) }),
        happened: job => job.state === 'succeeded' && job.result?.token === result.token,
      };
      return finish(claim, ending, giveUp);
    },
    /** The same with the credit's release; a retryable failure frees the idempotency key. */
    fail(claim: Claim, failure: JobFailure, giveUp?: AbortSignal): Promise<boolean> {
      const ending: Ending = {
        kind: 'release',
        retryable: failure.retryable,
        from: FAILS_FROM,
        statement: closing(database, claim, FAILS_FROM, {
          state: 'failed',
          ...failureColumns(failure),
          ...(failure.retryable ? { idempotency_key_hash: null } : {}),
        }).compile(),
        happened: job => job.state === 'failed' && job.failure?.code === failure.code,
      };
      return finish(claim, ending, giveUp);
    },
  };
}

interface EndingWork {
  readonly options: JobCompletionOptions;
  readonly steps: SettledSteps;
  readonly claim: Claim;
  readonly ending: Ending;
}

async function finishIn(
  database: Database,
  tx: Transaction<Schema>,
  { options, steps, claim, ending }: EndingWork,
): Promise<boolean> {
  const job = await readJob(database, tx, claim.jobId);
  if (job === undefined || job.fence !== claim.fence) return false;
  if (job.finishedAtMs !== null) return ending.happened(job);
  if (job.lease?.holder !== claim.holder || !ending.from.includes(job.state)) return false;
  const { id: jobId, accountId } = job;
  const settled = settledJob(job, ending);
  if (settled.unpaidDayMs !== null) {
    await steps.run(database, tx, settled);
    await close(tx, claim, ending);
    return true;
  }
  const settlement = { kind: ending.kind, accountId, jobId };
  const secret = await settleCredit(database, tx, settlement, async () => {
    const callbackSecret = await readCallbackSecret(tx, job);
    await close(tx, claim, ending);
    if (ending.kind === 'release' && job.capWindowStartMs !== null) {
      await giveBackToCap(tx, job.apiKeyId, job.capWindowStartMs, CREDITS_PER_JOB);
    }
    return callbackSecret;
  });
  if (secret === 'nothing-reserved') {
    // Perhaps another call settled this job under the same claim meanwhile.
    const now = await readJob(database, tx, jobId);
    if (now?.fence !== job.fence || now.finishedAtMs !== null) throw overtaken(jobId);
    throw new Error(`account ${accountId} has nothing reserved for its open job ${jobId}`);
  }
  await steps.run(database, tx, settled);
  if (secret !== undefined) await notify(database, tx, options, jobId, secret);
  return true;
}

function settledJob(job: Job, { kind, retryable }: Ending): SettledJob {
  const { id: jobId, accountId, apiKeyId, createdAtMs, outputFormat: format, unpaidDayMs } = job;
  return {
    ...{ accountId, jobId, apiKeyId, createdAtMs, retryable, format, unpaidDayMs },
    outcome: kind === 'charge' ? 'succeeded' : 'failed',
    credits: kind === 'charge' && unpaidDayMs === null ? CREDITS_PER_JOB : 0,
  };
}

async function close(tx: Transaction<Schema>, claim: Claim, ending: Ending): Promise<void> {
  if (!(await keptMatchesOne(tx, ending.statement))) throw overtaken(claim.jobId);
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

interface Ending {
  readonly kind: 'charge' | 'release';
  /** A failure that passes. */
  readonly retryable: boolean;
  readonly from: Job['state'][];
  /** Changes the job's row where it still is this holder's. */
  readonly statement: CompiledQuery<unknown>;
  /** True for a final job that this very ending made. */
  readonly happened: (job: Job) => boolean;
}

async function readCallbackSecret(tx: Transaction<Schema>, job: Job) {
  if (job.callback === null) return undefined;
  return tx
    .selectFrom('jobs')
    .select(['callback_secret as secret', 'callback_secret_key_id as secretKeyId'])
    .where('id', '=', job.id)
    .executeTakeFirstOrThrow();
}
