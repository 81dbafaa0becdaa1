/**
 * The two transactions in which a job and its money move together: its submission, which reserves a
 * credit and makes the job, and its end, which charges or releases it.
 *
 * The order of a submission's statements, and why:
 * 1. the account's row, by compare-and-set: it serialises an account's submissions, so that neither
 *    the balance nor the number in flight nor a key's cap can be passed. For an unpaid job the row
 *    of its account's allowance stands in for it: no ledger entry is written and no balance moves.
 *    Inserting first left 86 deadlocks on MySQL, 263 on MariaDB in 25 s of load, this order none;
 * 2. where the job's API key has a cap: what it has counted, moved by compare-and-set;
 * 3. the job's row; its unique key stops the slower of two twins;
 * 4. the ledger's entry, and commit;
 * 5. where 1 or 2 refused or 3 was stopped, a read of the key: a twin may have taken the last
 *    credit for this very request.
 */

import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { keepStatement, keptMatchesOne, nowPlusMs } from '@matting/database/statements.ts';
import type { Channels, Finishing } from '@matting/proto/contract/finishing.ts';
import { isTransparentFormat, type OutputFormat } from '@matting/proto/contract/formats.ts';
import { CompiledQuery, type Transaction, type UpdateObject } from 'kysely';
import { queuePositionMs } from '../dispatch/dispatch-core.ts';
import { queuedFramePixels } from '../dispatch/job-needs.ts';
import { CapReachedError, countForCap, giveBackToCap } from '../keys/api-key-store.ts';
import { CREDITS_PER_JOB } from '../ledger/ledger.ts';
import { reserveCredit, settleCredit } from '../ledger/ledger-writer.ts';
import { insertWebhook } from '../webhooks/outbox-store.ts';
import type {
  Claim,
  Job,
  JobBackground,
  JobClass,
  JobFailure,
  JobInput,
  JobResult,
  StageTimings,
} from './job.ts';
import {
  backgroundColumn,
  failureColumns,
  inputColumns,
  readByIdempotencyKey,
  readJob,
  resultColumns,
  type StoredFinishing,
  sourceHostOf,
} from './job-rows.ts';

export interface NewJob {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly keyHasCap?: boolean;
  readonly idempotencyKeyHash: string;
  readonly fingerprint: string;
  readonly class: JobClass;
  readonly outputFormat: OutputFormat;
  /** Exactly one of the two: a stored input makes the job ready, a URL accepted. */
  readonly input: JobInput | null;
  readonly sourceUrl: string | null;
  readonly model?: string | undefined;
  readonly noSubject?: 'fail' | undefined;
  readonly channels?: Channels;
  readonly finishing?: Finishing;
  /** Either its URL or what is stored; given exactly where `finishing` has a background picture. */
  readonly background?: JobBackground;
  readonly callback?: {
    readonly url: string;
    readonly secret: Uint8Array | null;
    /** Names the key it is encrypted with; null exactly where `secret` is. */
    readonly secretKeyId: string | null;
  };
  readonly traceContext?: string | undefined;
}

type SubmitLimits = { readonly jobsInFlightMax: number } | { readonly allowance: Allowance };

/** What an account may have without paying, a day (docs/adr/0022). */
export interface Allowance {
  /**
   * Counts a new job, before its row is inserted, in a row that serialises the account's unpaid
   * jobs over all replicas; or says why not, and nothing changed.
   * @returns the first instant of the day that it is counted in
   */
  take(
    database: Database,
    tx: Transaction<Schema>,
    job: Pick<NewJob, 'accountId' | 'apiKeyId'>,
  ): Promise<number | { readonly refused: string }>;
}

export type SubmitOutcome =
  | { readonly kind: 'created'; readonly job: Job }
  /** Another request with the key was first. */
  | { readonly kind: 'exists'; readonly job: Job }
  | { readonly kind: 'insufficient-credits' }
  | { readonly kind: 'too-many-in-flight' }
  | { readonly kind: 'key-cap-reached'; readonly detail: string }
  /** By the allowance of an unpaid job. */
  | { readonly kind: 'refused'; readonly reason: string };

export function jobSubmission(database: Database) {
  return {
    async submit(job: NewJob, limits: SubmitLimits): Promise<SubmitOutcome> {
      requireWhole(job, limits);
      return query(database, db => submit(database, db, job, limits));
    },
    /** Frees the key of a final job that isForgotten. */
    async freeKey(jobId: string, idempotencyKeyHash: string, rememberedMs: number): Promise<void> {
      await query(database, db =>
        db
          .updateTable('jobs')
          .set({ idempotency_key_hash: null })
          .where('id', '=', jobId)
          .where('idempotency_key_hash', '=', idempotencyKeyHash)
          // Neither is set while the job is open: its key stays.
          .where(eb =>
            eb.or([
              eb('finished_at', '<=', nowPlusMs(database.nowMs, -rememberedMs)),
              eb('expires_at', '<=', database.nowMs),
            ]),
          )
          .execute(),
      );
    },
  };
}

async function submit(
  database: Database,
  db: Db,
  job: NewJob,
  limits: SubmitLimits,
): Promise<SubmitOutcome> {
  let refused: SubmitOutcome | undefined;
  try {
    refused = await db.transaction().execute(tx => insertJob(database, tx, job, limits));
    if (refused.kind === 'created') return refused;
  } catch (error) {
    if (error instanceof CapReachedError) {
      refused = { kind: 'key-cap-reached', detail: error.detail };
    } else if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const outcome = (await findTwin(database, db, job)) ?? refused;
  if (outcome !== undefined) return outcome;
  throw new OvertakenError(`a twin of job ${job.id} freed its key after it was in the way`);
}

async function findTwin(
  database: Database,
  db: Db,
  job: NewJob,
): Promise<SubmitOutcome | undefined> {
  const { apiKeyId, idempotencyKeyHash } = job;
  const found = await readByIdempotencyKey(database, db, apiKeyId, idempotencyKeyHash);
  if (found === undefined) return undefined;
  // Our own row: it was committed by an earlier round whose answer was lost on the way.
  return { kind: found.id === job.id ? 'created' : 'exists', job: found };
}

async function insertJob(
  database: Database,
  tx: Transaction<Schema>,
  job: NewJob,
  limits: SubmitLimits,
): Promise<SubmitOutcome> {
  const { id: jobId, accountId, apiKeyId } = job;
  const insert = (counted: Partial<CountedIn>) =>
    tx.executeQuery(INSERT_JOB(database, { ...newJobValues(job), ...NOT_COUNTED, ...counted }));
  if ('allowance' in limits) {
    const taken = await limits.allowance.take(database, tx, job);
    if (typeof taken !== 'number') return { kind: 'refused', reason: taken.refused };
    await insert({ playground_day: taken });
  } else {
    const reservation = { accountId, jobId, ...limits };
    const outcome = await reserveCredit(database, tx, reservation, async () => {
      const cap = job.keyHasCap ? await countForCap(database, tx, apiKeyId, CREDITS_PER_JOB) : null;
      await insert({ cap_window_start: cap });
    });
    if (outcome !== 'reserved') return { kind: outcome };
  }
  const created = await readJob(database, tx, jobId);
  if (created === undefined) throw new Error(`job ${jobId} is gone before its commit`);
  return { kind: 'created', job: created };
}

/** Which count beside the balance a job is in; null: none. */
type CountedIn = Pick<Schema['jobs'], 'cap_window_start' | 'playground_day'>;

const NOT_COUNTED: CountedIn = { cap_window_start: null, playground_day: null };

const INSERT_JOB = keepStatement<ReturnType<typeof newJobValues> & CountedIn>(
  ({ kysely, nowMs }, { queue_shift, ...columns }) =>
    kysely.insertInto('jobs').values({
      ...columns,
      queue_at: nowPlusMs(nowMs, queue_shift),
      created_at: nowMs,
    }),
);

/** queue_shift: how far its position in the queue is from now, ms. */
function newJobValues(job: NewJob) {
  const nextUrl = job.input === null ? job.sourceUrl : (job.background?.url ?? null);
  return {
    id: job.id,
    account_id: job.accountId,
    api_key_id: job.apiKeyId,
    idempotency_key_hash: job.idempotencyKeyHash,
    fingerprint: job.fingerprint,
    state: nextUrl === null ? ('ready' as const) : ('accepted' as const),
    class: job.class,
    queue_shift: queuePositionMs(job.class, 0),
    source_url: nextUrl,
    source_host: nextUrl === null ? null : sourceHostOf(nextUrl),
    ...inputColumns(job.input),
    model: job.model ?? null,
    no_subject: job.noSubject ?? null,
    ...finishingColumns(job),
    background_url: job.background?.url ?? null,
    background: backgroundColumn(job.background?.input ?? null),
    fence: 0,
    lost_attempts: 0,
    lost_with_process: 0,
    takeovers: 0,
    callback_url: job.callback?.url ?? null,
    callback_secret: job.callback?.secret ?? null,
    callback_secret_key_id: job.callback?.secretKeyId ?? null,
    trace_context: job.traceContext ?? null,
  };
}

function finishingColumns(
  job: NewJob,
): Pick<Schema['jobs'], 'output_format' | 'finishing' | 'frame_pixels'> {
  const { outputFormat, channels = 'rgba', finishing } = job;
  if (finishing === undefined) {
    if (channels === 'rgba' && isTransparentFormat(outputFormat)) {
      return { output_format: outputFormat, finishing: null, frame_pixels: null };
    }
    throw new Error(`a job for ${outputFormat}, ${channels} is one with finishing`);
  }
  const stored: StoredFinishing = {
    ...(channels === 'rgba' ? {} : { channels }),
    steps: finishing,
  };
  return {
    output_format: outputFormat,
    finishing: JSON.stringify(stored),
    frame_pixels: queuedFramePixels(finishing, job.input),
  };
}

function requireWhole(job: NewJob, limits: SubmitLimits): void {
  const { input, sourceUrl, background, finishing } = job;
  if ((job.class === 'playground') !== 'allowance' in limits) {
    throw new Error('an unpaid job is one within an allowance, and no other is');
  }
  if (job.class === 'playground' && input === null) {
    throw new Error('an unpaid job has its image');
  }
  if ((input === null) === (sourceUrl === null)) {
    throw new Error('a new job has either a stored input or a URL');
  }
  const hasPicture = finishing?.background?.kind === 'picture';
  if (hasPicture !== (background !== undefined)) {
    throw new Error('a new job has a picture for its background exactly where it asks for one');
  }
  if (background !== undefined && (background.input === null) === (background.url === null)) {
    throw new Error('a background has either a stored picture or a URL');
  }
}

/**
 * A job's end: its state, its money, its notification and what packages do with it (SettledStep),
 * by the holder of the fence. The account's row comes first here too, that of its allowance for an
 * unpaid job, so that no two transactions wait for each other.
 *
 * A second call with the same claim and end answers true and changes nothing: the answer to a
 * commit may be lost, and only the holder of that fence can have made it.
 */

export interface JobCompletionOptions {
  /** The notification's sealed body. Quick and without effects: a transaction is open. */
  readonly renderOutboxBody: (job: Job) => string;
  readonly settled: readonly SettledStep[];
  readonly observer?: SettledObserver;
  /** Between a job's end and the first attempt to notify; 0 unless given. */
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

/*
 * What packages do with the end of a job: each a step in the job's own transaction, so that it
 * counts every job once. A step can never keep a job from its end:
 *
 * - Where one throws, or its statement is wrong, all are rolled back to the savepoint before them.
 *   Each runs again behind a savepoint of its own, and the one that fails is left out.
 * - Where one ends the transaction (a conflict, a lost connection), the whole is repeated. Once
 *   that has happened STEP_ENDS_MAX times, all are left out.
 *
 * What is left out is a row of `unsettled_jobs`, written in the same transaction, from which
 * core/retention/unsettled-jobs.ts does it later.
 */

export interface SettledJob {
  readonly accountId: string;
  readonly jobId: string;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  readonly outcome: 'succeeded' | 'failed';
  /** A failure that passes. */
  readonly retryable: boolean;
  readonly credits: number;
  readonly format: string;
  /** The day whose allowance it is counted in; null: it is paid for. */
  readonly unpaidDayMs: number | null;
}

export interface SettledStep {
  /** Kept in `unsettled_jobs`: it never changes. */
  readonly name: string;
  /**
   * Called once the job is closed and its credit settled, or later where it was left out, with the
   * account's row held. Of an unpaid job it is called before the job's row is changed, so that the
   * allowance's row comes first. Bounded: a few statements by an index.
   */
  settled(database: Database, tx: Db, job: SettledJob): Promise<void>;
}

export interface SettledObserver {
  settledLeftOut(step: string): void;
}

/** How often steps may end the transaction of one job's end. */
const STEP_ENDS_MAX = 2;

const SAVEPOINT = CompiledQuery.raw('savepoint settled');
/** It stays: the end of the transaction releases it. */
const ROLLBACK = CompiledQuery.raw('rollback to savepoint settled');

interface LeftOut {
  readonly name: string;
  readonly error: unknown;
}

/** Of one job's end, over all rounds of its transaction. */
class SettledSteps {
  readonly #steps: readonly SettledStep[];
  #ends = 0;
  #lastEnd: unknown;
  #leftOut: readonly LeftOut[] = [];

  constructor(steps: readonly SettledStep[]) {
    this.#steps = steps;
  }

  /** Of the round that was committed. */
  get leftOut(): readonly LeftOut[] {
    return this.#leftOut;
  }

  async run(database: Database, tx: Db, job: SettledJob): Promise<void> {
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

  async #attempt(database: Database, tx: Db, job: SettledJob): Promise<LeftOut[]> {
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
  return kind !== 'duplicate' && kind !== 'other';
}
