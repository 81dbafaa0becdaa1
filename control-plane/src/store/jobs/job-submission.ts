/**
 * Submission: one transaction that reserves a credit and makes the job, safe beside any other
 * submission. It knows nothing of requests; its caller compares fingerprints.
 *
 * The order of statements, and why:
 * 1. the account's row, by compare-and-set: it serialises an account's submissions, so that neither
 *    the balance nor the number in flight nor a key's cap can be passed. Taking it before the insert matters:
 *    inserting first left 86 deadlocks on MySQL and 263 on MariaDB in 25 s of a prototype's load,
 *    this order none;
 * 2. where the job's API key has a cap: what it has counted, moved by compare-and-set;
 * 3. the job's row; its unique key stops the slower of two twins;
 * 4. the ledger's entry, and commit;
 * 5. where 1 or 2 refused or 3 was stopped, a read of the key: a twin may have taken the last
 *    credit for this very request. The usual repetition never comes here: the caller has searched
 *    before.
 */
import type { Kysely, RawBuilder, Transaction } from 'kysely';
import { queuePositionMs } from '../../domain/dispatch/job-turns.ts';
import { CREDITS_PER_JOB } from '../../domain/ledger.ts';
import { CapReachedError, countForCap } from '../accounts/key-cap.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import { keepStatement } from '../database/kept-statement.ts';
import type { Schema } from '../database/schema.ts';
import { OvertakenError, readBack } from '../database/transact.ts';
import { reserveCredit } from '../ledger/ledger-writer.ts';
import { backgroundColumn, finishingColumns } from './job-finishing.ts';
import { readByIdempotencyKey, readJob } from './job-queries.ts';
import { inputColumns } from './job-rows.ts';
import type { JobStore, NewJob, SubmitLimits, SubmitOutcome, SubmittedJob } from './job-store.ts';
import { queueShiftMs } from './queue-range.ts';
import { sourceHostOf } from './source-host.ts';

export function jobSubmission(database: Database): Pick<JobStore, 'submit'> {
  return {
    async submit(job, limits) {
      requireOneSource(job);
      return readBack(database, db => submit(database, db, job, limits));
    },
  };
}

async function submit(
  database: Database,
  db: Kysely<Schema>,
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

/** What the key of a new job has already made. */
export async function findTwin(
  database: Database,
  db: Kysely<Schema>,
  job: NewJob,
): Promise<SubmittedJob | undefined> {
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
  const { id: jobId, accountId } = job;
  const reservation = { accountId, jobId, ...limits };
  const outcome = await reserveCredit(database, tx, reservation, async () => {
    const capWindowStart = job.keyHasCap
      ? await countForCap(database, tx, job.apiKeyId, CREDITS_PER_JOB)
      : null;
    const values = { ...newJobValues(job), cap_window_start: capWindowStart };
    await tx.executeQuery(INSERT_JOB(database, values));
  });
  if (outcome !== 'reserved') return { kind: outcome };
  const created = await readJob(database, tx, job.id);
  if (created === undefined) throw new Error(`job ${job.id} is gone before its commit`);
  return { kind: 'created', job: created };
}

/** As it is inserted where it is paid for. */
export function newJobRow(database: Database, job: NewJob) {
  return timed(database, newJobValues(job));
}

/** With what the database's clock decides. */
function timed<V extends NewJobValues>(
  { nowMs }: Database,
  { queue_shift, ...columns }: V,
): Omit<V, 'queue_shift'> & Record<'queue_at' | 'created_at', RawBuilder<number>> {
  return { ...columns, queue_at: nowPlusMs(nowMs, queue_shift), created_at: nowMs };
}

type NewJobValues = ReturnType<typeof newJobValues>;

const INSERT_JOB = keepStatement<NewJobValues & { readonly cap_window_start: number | null }>(
  (database, values) => database.kysely.insertInto('jobs').values(timed(database, values)),
);

/** Its columns; queue_shift: how far its place in the queue is from now, ms. */
function newJobValues(job: NewJob) {
  const queueShift = queueShiftMs(job.finishing === undefined ? 'plain' : 'finishing');
  const nextUrl = job.input === null ? job.sourceUrl : (job.background?.url ?? null);
  return {
    id: job.id,
    account_id: job.accountId,
    api_key_id: job.apiKeyId,
    idempotency_key_hash: job.idempotencyKeyHash,
    fingerprint: job.fingerprint,
    state: nextUrl === null ? ('ready' as const) : ('accepted' as const),
    mode: job.mode,
    queue_shift: queuePositionMs(job.mode, 0) + queueShift,
    source_url: nextUrl,
    source_host: nextUrl === null ? null : sourceHostOf(nextUrl),
    ...inputColumns(job.input),
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

export function requireOneSource({ input, sourceUrl, background, finishing }: NewJob): void {
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
