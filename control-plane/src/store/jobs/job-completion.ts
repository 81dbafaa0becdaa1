/**
 * The end of a job: its state, its money and its notification in one transaction, by whoever holds
 * the fence. The account's row comes first here too, so that no two transactions wait for each
 * other.
 *
 * A second call with the same claim and the same end answers true and changes nothing: the answer
 * to a commit may be lost, and only the holder of that fence can have made it.
 */
import { randomUUID } from 'node:crypto';
import type { RawBuilder, Transaction } from 'kysely';
import type { Job, JobFailure, JobResult, StageTimings } from '../../domain/job.ts';
import { CREDITS_PER_JOB, SLOT_OF } from '../../domain/ledger.ts';
import { destinationOf } from '../../domain/url-destination.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { failureColumns, resultColumns } from '../database/rows.ts';
import type { Schema } from '../database/schema.ts';
import { OvertakenError, transact } from '../database/transact.ts';
import { readJob } from './job-queries.ts';
import type { Claim } from './job-store.ts';

/**
 * The notification's body, rendered once, when the job ends; pure and quick: a transaction is open.
 */
export type RenderOutboxBody = (job: Job) => string;

/** A callback's secret is kept this long after the job's end, delivered or not. */
const CALLBACK_SECRET_MS = 86_400_000;

export class JobCompletion {
  readonly #database: Database;
  readonly #renderOutboxBody: RenderOutboxBody;
  readonly #webhookFirstWaitMs: number;

  /** @param webhookFirstWaitMs between a job's end and the first attempt to tell of it */
  constructor(database: Database, renderOutboxBody: RenderOutboxBody, webhookFirstWaitMs: number) {
    this.#database = database;
    this.#renderOutboxBody = renderOutboxBody;
    this.#webhookFirstWaitMs = webhookFirstWaitMs;
  }

  succeed(
    claim: Claim,
    result: JobResult,
    resultTtlMs: number,
    timings: StageTimings,
    giveUp?: AbortSignal,
  ): Promise<boolean> {
    const expiresAt = nowPlusMs(this.#database.nowMs, resultTtlMs);
    const ending: Ending = {
      kind: 'charge',
      from: ['running'],
      columns: {
        state: 'succeeded',
        expires_at: expiresAt,
        result_blob_expires_at: expiresAt,
        ...resultColumns(result),
        timings: JSON.stringify(timings),
      },
      happened: job => job.state === 'succeeded' && job.result?.token === result.token,
    };
    return this.#finish(claim, ending, giveUp);
  }

  fail(claim: Claim, failure: JobFailure, giveUp?: AbortSignal): Promise<boolean> {
    const ending: Ending = {
      kind: 'release',
      from: ['accepted', 'fetching', 'ready', 'running'],
      columns: {
        state: 'failed',
        ...failureColumns(failure),
        ...(failure.retryable ? { idempotency_key_hash: null } : {}),
      },
      happened: job => job.state === 'failed' && job.failure?.code === failure.code,
    };
    return this.#finish(claim, ending, giveUp);
  }

  #finish(claim: Claim, ending: Ending, giveUp: AbortSignal | undefined): Promise<boolean> {
    return transact(this.#database, tx => this.#finishIn(tx, claim, ending), giveUp);
  }

  async #finishIn(tx: Transaction<Schema>, claim: Claim, ending: Ending): Promise<boolean> {
    const job = await readJob(this.#database, tx, claim.jobId);
    if (job === undefined || job.fence !== claim.fence) return false;
    if (job.finishedAtMs !== null) return ending.happened(job);
    if (job.lease?.holder !== claim.holder || !ending.from.includes(job.state)) return false;
    await this.#settle(tx, job, ending.kind);
    const secret = await readCallbackSecret(tx, job);
    await this.#close(tx, claim, ending);
    await this.#enter(tx, job, ending.kind);
    if (secret !== undefined) await this.#notify(tx, job.id, secret);
    return true;
  }

  async #settle(tx: Transaction<Schema>, job: Job, kind: Ending['kind']): Promise<void> {
    const returned = kind === 'release' ? CREDITS_PER_JOB : 0;
    const { numUpdatedRows } = await tx
      .updateTable('accounts')
      .set(eb => ({
        available: eb('available', '+', returned),
        reserved: eb('reserved', '-', CREDITS_PER_JOB),
      }))
      .where('id', '=', job.accountId)
      .where('reserved', '>=', CREDITS_PER_JOB)
      .executeTakeFirstOrThrow();
    if (numUpdatedRows === 1n) return;
    // We may have waited here for whoever took this job's credit with the same claim.
    const now = await readJob(this.#database, tx, job.id);
    if (now?.fence !== job.fence || now.finishedAtMs !== null) throw overtaken(job.id);
    throw new Error(`account ${job.accountId} has nothing reserved for its open job ${job.id}`);
  }

  async #close(tx: Transaction<Schema>, claim: Claim, ending: Ending): Promise<void> {
    const { numUpdatedRows } = await tx
      .updateTable('jobs')
      .set({
        ...ending.columns,
        finished_at: this.#database.nowMs,
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
        callback_secret: null,
        callback_secret_key_id: null,
      })
      .where('id', '=', claim.jobId)
      .where('fence', '=', claim.fence)
      .where('lease_holder', '=', claim.holder)
      .where('state', 'in', ending.from)
      .executeTakeFirstOrThrow();
    if (numUpdatedRows !== 1n) throw overtaken(claim.jobId);
  }

  async #enter(tx: Transaction<Schema>, job: Job, kind: Ending['kind']): Promise<void> {
    await tx
      .insertInto('ledger_entries')
      .values({
        id: randomUUID(),
        account_id: job.accountId,
        job_id: job.id,
        kind,
        slot: SLOT_OF[kind],
        reference: job.id,
        amount: CREDITS_PER_JOB,
        created_at: this.#database.nowMs,
      })
      .execute();
  }

  async #notify(tx: Transaction<Schema>, jobId: string, secret: CallbackSecret): Promise<void> {
    const ended = await readJob(this.#database, tx, jobId);
    if (ended?.callback == null) throw new Error(`job ${jobId} lost its callback`);
    const { nowMs } = this.#database;
    await tx
      .insertInto('webhook_outbox')
      .values({
        job_id: jobId,
        account_id: ended.accountId,
        callback_url: ended.callback.url,
        receiver: destinationOf(ended.callback.url),
        body: this.#renderOutboxBody(ended),
        ...secret,
        secret_erase_at: secret.secret === null ? null : nowPlusMs(nowMs, CALLBACK_SECRET_MS),
        status: 'pending',
        attempts: 0,
        next_attempt_at: nowPlusMs(nowMs, this.#webhookFirstWaitMs),
        fence: 0,
        created_at: nowMs,
      })
      .execute();
  }
}

/** The next round finds a fence that moved, or a job that is final. */
function overtaken(jobId: string): OvertakenError {
  return new OvertakenError(`job ${jobId} was claimed or ended after it was read`);
}

interface Ending {
  readonly kind: 'charge' | 'release';
  readonly from: Job['state'][];
  readonly columns: Readonly<Record<string, string | number | null | RawBuilder<number>>>;
  /** True for a final job that this very ending made. */
  readonly happened: (job: Job) => boolean;
}

interface CallbackSecret {
  readonly secret: Uint8Array | null;
  readonly secret_key_id: string | null;
}

async function readCallbackSecret(
  tx: Transaction<Schema>,
  job: Job,
): Promise<CallbackSecret | undefined> {
  if (job.callback === null) return undefined;
  return tx
    .selectFrom('jobs')
    .select(['callback_secret as secret', 'callback_secret_key_id as secret_key_id'])
    .where('id', '=', job.id)
    .executeTakeFirstOrThrow();
}
