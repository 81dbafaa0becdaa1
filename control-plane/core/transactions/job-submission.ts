/**
 * A job's submission: one transaction reserves a credit and makes the job. Its end, which charges or
 * releases the credit, is in job-completion.ts.
 *
 * The order of the statements, and why:
 * 1. the account's row, by compare-and-set: it serialises an account's submissions, so that neither
 *    the balance nor the number in flight nor a key's cap can be passed. For an unpaid job the row
 *    of its account's allowance stands in for it: no ledger entry is written and no balance moves.
 *    Inserting first left 86 deadlocks on MySQL, 263 on MariaDB in 25 s of load, this order none.
 *    A correction is counted there and moves no balance, then in the row of its family's first job,
 *    by the update that finds what it needs still kept (docs/adr/0052);
 * 2. where the job's API key has a cap: what it has counted, moved by compare-and-set;
 * 3. a read of the batches, of which none has the job's key: each begins with the account's row, too;
 *    then the job's row; its unique key stops the slower of two twins;
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
} from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { keepStatement, matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import type { Channels, Finishing } from '@matting/proto/contract/finishing.ts';
import { isTransparentFormat, type OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import type { Transaction } from 'kysely';
import { takeAccount } from '../accounts/account-store.ts';
import { readBatchByKey } from '../jobs/batch.ts';
import { isUnpaid, type Job, type JobClass } from '../jobs/job.ts';
import { CORRECTIONS_MAX, type JobCorrection } from '../jobs/job-family.ts';
import { readByIdempotencyKey, readJob } from '../jobs/job-reading.ts';
import type { JobBackground, JobInput } from '../jobs/job-request.ts';
import { inputColumn, inputColumns, type StoredFinishing, sourceHostOf } from '../jobs/job-rows.ts';
import { queuePositionMs } from '../jobs/lanes.ts';
import { queuedFramePixels } from '../jobs/queue-bound.ts';
import { CapReachedError, countForCap } from '../keys/key-caps.ts';
import { CREDITS_PER_JOB } from '../ledger/ledger.ts';
import { openCorrection, reserveCredit } from '../ledger/ledger-writer.ts';

/** The part of a request that does not depend on its picture. JSON keeps it as it is. */
export interface JobTemplate {
  readonly outputFormat: OutputFormat;
  readonly hints?: Hints | undefined;
  readonly model?: string | undefined;
  readonly noSubject?: 'fail' | undefined;
  readonly channels?: Channels;
  readonly finishing?: Finishing;
  /** Either its URL or what is stored; given exactly where `finishing` has a background picture. */
  readonly background?: JobBackground;
  /** If it is given, the job keeps its input and its matte; corrections take over these texts. */
  readonly correctable?: Readonly<Record<string, string>> | undefined;
  readonly traceContext?: string | undefined;
}

export interface NewJob extends JobTemplate {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly keyHasCap?: boolean;
  readonly idempotencyKeyHash: string;
  readonly fingerprint: string;
  readonly class: JobClass;
  /** Exactly one of the two: a stored input makes the job ready, a URL accepted. */
  readonly input: JobInput | null;
  readonly sourceUrl: string | null;
  /** Given exactly where `hints` are a picture. */
  readonly hintsFile?: JobInput | undefined;
  readonly callback?: {
    readonly url: string;
    readonly secret: Uint8Array | null;
    /** Names the key it is encrypted with; null exactly where `secret` is. */
    readonly secretKeyId: string | null;
  };
  readonly reference?: string | undefined;
  readonly batch?: { readonly id: string; readonly item: number };
  /** The job corrects another: its input is that of the first, and stays the first's. */
  readonly correction?: Omit<JobCorrection, 'matte'> | undefined;
}

/** An item has no key of its own: its batch has one. */
type ItemJob = Omit<NewJob, 'idempotencyKeyHash'> & { readonly idempotencyKeyHash: null };

type SubmitLimits = { readonly jobsInFlightMax: number } | { readonly allowance: Allowance };

/** The allowance is what an account may have a day without paying (docs/adr/0022). */
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
  /** A batch has the key. */
  | { readonly kind: 'key-of-a-batch' }
  /** The corrected job takes no correction now. Read it again to find out why. */
  | { readonly kind: 'not-correctable' }
  /** The allowance of an unpaid job refuses it. */
  | { readonly kind: 'refused'; readonly reason: string };

export type JobSubmission = ReturnType<typeof jobSubmission>;

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
    } else if (error instanceof NotCorrectableError) refused = { kind: 'not-correctable' };
    else if (error instanceof KeyOfBatchError) refused = { kind: 'key-of-a-batch' };
    else if (databaseErrorKind(error) !== 'duplicate') throw error;
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
  // If the row is ours, an earlier round committed it, and its answer was lost on the way.
  return { kind: found.id === job.id ? 'created' : 'exists', job: found };
}

async function insertJob(
  database: Database,
  tx: Transaction<Schema>,
  job: NewJob,
  limits: SubmitLimits,
): Promise<SubmitOutcome> {
  const { id: jobId, accountId, apiKeyId } = job;
  const insert = async (counted: Partial<CountedIn>) => {
    const batch = await readBatchByKey(database, tx, apiKeyId, job.idempotencyKeyHash);
    if (batch !== undefined) throw new KeyOfBatchError();
    await tx.executeQuery(
      INSERT_JOB(database, { ...newJobValues(job), ...NOT_COUNTED, ...counted }),
    );
  };
  if (job.correction !== undefined) {
    const counted = await countCorrection(database, tx, { ...job, ...limits, ...job.correction });
    if (counted === 'too-many-in-flight') return { kind: counted };
    await insert(counted);
  } else if ('allowance' in limits) {
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

/** The transaction leaves no trace: what the correction needs is not kept, or too many were made. */
class NotCorrectableError extends Error {}
class KeyOfBatchError extends Error {}

/** Items of a batch become jobs, whose credits and place in a cap are reserved already. */
export async function insertItems(
  database: Database,
  tx: Transaction<Schema>,
  jobs: readonly ItemJob[],
  capWindowStartMs: number | null,
): Promise<void> {
  const counted = { ...NOT_COUNTED, cap_window_start: capWindowStartMs };
  for (const job of jobs) {
    await tx.executeQuery(INSERT_JOB(database, { ...newJobValues(job), ...counted }));
  }
}

type CountedCorrection = Pick<NewJob, 'accountId' | 'class'> &
  Omit<JobCorrection, 'matte'> & { readonly jobsInFlightMax?: number };

/** Two at once wait for each other at the account's row. @throws NotCorrectableError */
async function countCorrection(
  database: Database,
  tx: Transaction<Schema>,
  { accountId, of, first, jobsInFlightMax = 0, ...job }: CountedCorrection,
): Promise<'too-many-in-flight' | Partial<CountedIn>> {
  if (isUnpaid(job)) await takeAccount(database, tx, accountId);
  else if (!(await openCorrection(database, tx, { accountId, jobsInFlightMax }))) {
    return 'too-many-in-flight';
  }
  const counted = await matchesOne(
    tx
      .updateTable('jobs')
      .set(eb => ({ corrections: eb('corrections', '+', 1) }))
      .where('id', '=', first)
      .where('kept_until', '>', database.nowMs)
      .where('corrections', '<', CORRECTIONS_MAX),
  );
  const base = await tx
    .selectFrom('jobs')
    .select(['kept_matte as base_matte', 'playground_day'])
    .where('id', '=', of)
    .executeTakeFirst();
  if (!counted || base == null || base.base_matte === null) throw new NotCorrectableError();
  return base;
}

/** A job is in one of these counts beside the balance; null: in none. */
type CountedIn = Pick<Schema['jobs'], 'cap_window_start' | 'playground_day' | 'base_matte'>;

const NOT_COUNTED: CountedIn = { cap_window_start: null, playground_day: null, base_matte: null };

const INSERT_JOB = keepStatement<ReturnType<typeof newJobValues> & CountedIn>(
  ({ kysely, nowMs }, { queue_shift, ...columns }) =>
    kysely.insertInto('jobs').values({
      ...columns,
      queue_at: nowPlusMs(nowMs, queue_shift),
      created_at: nowMs,
    }),
);

/** queue_shift: how far its position in the queue is from now, ms. */
function newJobValues(job: NewJob | ItemJob) {
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
    background: inputColumn(job.background?.input ?? null),
    hints: job.hints ? JSON.stringify(job.hints) : null,
    hints_file: inputColumn(job.hintsFile ?? null),
    fence: 0,
    lost_attempts: 0,
    lost_with_process: 0,
    takeovers: 0,
    callback_url: job.callback?.url ?? null,
    callback_secret: job.callback?.secret ?? null,
    callback_secret_key_id: job.callback?.secretKeyId ?? null,
    reference: job.reference ?? null,
    batch_id: job.batch?.id ?? null,
    batch_item: job.batch?.item ?? null,
    trace_context: job.traceContext ?? null,
    correctable: job.correctable === undefined ? null : JSON.stringify(job.correctable),
    corrects: job.correction?.of ?? null,
    family: job.correction?.first ?? null,
  };
}

function finishingColumns(
  job: NewJob | ItemJob,
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
  const { input, sourceUrl, background, finishing, correction } = job;
  if (correction === undefined && isUnpaid(job) !== 'allowance' in limits) {
    throw new Error('an unpaid job is one within an allowance, and no other is');
  }
  if ((isUnpaid(job) || correction !== undefined) && input === null) {
    throw new Error('an unpaid job and a correction have their image');
  }
  if ((input === null) === (sourceUrl === null)) {
    throw new Error('a new job has either a stored input or a URL');
  }
  if (Boolean(job.hints?.picture) !== (job.hintsFile !== undefined)) {
    throw new Error('a new job has a file of hints exactly where they are one');
  }
  const hasPicture = finishing?.background?.kind === 'picture';
  if (hasPicture !== (background !== undefined)) {
    throw new Error('a new job has a picture for its background exactly where it asks for one');
  }
  if (background !== undefined && (background.input === null) === (background.url === null)) {
    throw new Error('a background has either a stored picture or a URL');
  }
}
