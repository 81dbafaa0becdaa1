/**
 * Submission: one transaction that reserves a credit and makes the job, safe beside any other
 * submission. It knows nothing of requests; its caller compares fingerprints.
 *
 * The order of statements, and why:
 * 1. the account's row, by compare-and-set: it serialises an account's submissions, so that neither
 *    the balance nor the number in flight nor a key's cap can be passed. For an unpaid job the row
 *    of its account's allowance stands in for it (`Allowance`): no ledger entry is written and no
 *    balance moves. Taking the row before the insert matters: inserting first left 86 deadlocks on MySQL and 263 on MariaDB in 25 s of a prototype's load,
 *    this order none;
 * 2. where the job's API key has a cap: what it has counted, moved by compare-and-set;
 * 3. the job's row; its unique key stops the slower of two twins;
 * 4. the ledger's entry, and commit;
 * 5. where 1 or 2 refused or 3 was stopped, a read of the key: a twin may have taken the last
 *    credit for this very request. The usual repetition never comes here: the caller has searched
 *    before.
 */
import type { Transaction } from 'kysely';
import type { Channels, Finishing } from '#contract/finishing.ts';
import { isTransparentFormat, type OutputFormat } from '#contract/formats.ts';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
} from '../../database/database.ts';
import { databaseErrorKind } from '../../database/engines.ts';
import { keepStatement, nowPlusMs } from '../../database/statements.ts';
import { queuePositionMs } from '../dispatch/job-turns.ts';
import { queuedFramePixels } from '../dispatch/queue-share.ts';
import { CapReachedError, countForCap } from '../keys/api-key-store.ts';
import { CREDITS_PER_JOB } from '../ledger/ledger.ts';
import { reserveCredit } from '../ledger/ledger-writer.ts';
import type { Job, JobBackground, JobClass, JobInput } from './job.ts';
import { readByIdempotencyKey, readJob } from './job-reading.ts';
import { backgroundColumn, inputColumns, type StoredFinishing, sourceHostOf } from './job-rows.ts';

/** Where the end of a job is announced, and the secret that signs it. */
export interface NewJobCallback {
  readonly url: string;
  /** Encrypted; null: none. */
  readonly secret: Uint8Array | null;
  /** Names the key it is encrypted with; null exactly where `secret` is. */
  readonly secretKeyId: string | null;
}

export interface NewJob {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  /** The key had a cap when it was read last: what it has counted is read in the transaction. */
  readonly keyHasCap?: boolean;
  readonly idempotencyKeyHash: string;
  readonly fingerprint: string;
  readonly class: JobClass;
  readonly outputFormat: OutputFormat;
  /** Exactly one of the two: a stored input makes the job ready, a URL accepted. */
  readonly input: JobInput | null;
  readonly sourceUrl: string | null;
  /** rgba where absent. */
  readonly channels?: Channels;
  /** As in core/jobs/job.ts; absent: a plain cut-out. */
  readonly finishing?: Finishing;
  /** Either its URL or what is stored; given exactly where `finishing` has a background picture. */
  readonly background?: JobBackground;
  /** Absent: no notification is sent. */
  readonly callback?: NewJobCallback;
  /** The trace of its submission, as program/tracing/kept-context.ts writes it; absent: none. */
  readonly traceContext?: string | undefined;
}

export type SubmitLimits =
  /** Open jobs of the account that are paid for. */
  | { readonly jobsInFlightMax: number }
  /** Of an unpaid job. */
  | { readonly allowance: Allowance };

/** What an account may have without paying, a day (docs/adr/0022). */
export interface Allowance {
  /**
   * Counts a new job of the account, before its row is inserted, in a row that serialises the
   * account's unpaid jobs over all replicas; or says why not, and nothing changed.
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
  /** Another request with the key was first; the caller compares fingerprints. */
  | { readonly kind: 'exists'; readonly job: Job }
  | { readonly kind: 'insufficient-credits' }
  | { readonly kind: 'too-many-in-flight' }
  /** `detail` tells the caller when it begins again. */
  | { readonly kind: 'key-cap-reached'; readonly detail: string }
  /** By the allowance of an unpaid job, which says why. */
  | { readonly kind: 'refused'; readonly reason: string };

export function jobSubmission(database: Database) {
  return {
    /**
     * One transaction: counts jobs in flight, reserves 1 credit, inserts job and ledger entry; or
     * has its allowance count it, and inserts the job.
     */
    async submit(job: NewJob, limits: SubmitLimits): Promise<SubmitOutcome> {
      requireWhole(job, limits);
      return query(database, db => submit(database, db, job, limits));
    },
    /**
     * Compare-and-set: where that job is final and was submitted at least `rememberedMs` ago by the
     * database's clock, or its result has expired (core/submission/key-memory.ts), it no longer has this
     * key, and the next submission under it is a new job. Else nothing changes.
     */
    async freeKey(jobId: string, idempotencyKeyHash: string, rememberedMs: number): Promise<void> {
      await query(database, db =>
        db
          .updateTable('jobs')
          .set({ idempotency_key_hash: null })
          .where('id', '=', jobId)
          .where('idempotency_key_hash', '=', idempotencyKeyHash)
          .where('finished_at', 'is not', null)
          .where(eb =>
            eb.or([
              eb('created_at', '<=', nowPlusMs(database.nowMs, -rememberedMs)),
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

/** What the key of a new job has already made. */
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

/** Its columns; queue_shift: how far its place in the queue is from now, ms. */
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
