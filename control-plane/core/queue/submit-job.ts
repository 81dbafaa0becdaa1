/**
 * A job's submission: one transaction holds what the job's funding takes (core/funding/) and makes
 * the job. Its end, which settles or releases that, is in end-job.ts.
 *
 * The order of the statements, and why:
 * 1. the account's row, by compare-and-set: it serialises an account's submissions, so that neither
 *    the balance nor the number in flight nor a key's cap can be passed. Inserting first left 86
 *    deadlocks on MySQL, 263 on MariaDB in 25 s of load, this order none. A correction is then
 *    counted in the row of its family's first job, by the update that finds what it needs still kept
 *    (docs/adr/0052);
 * 2. where the job's API key has a cap: what it has counted, moved by compare-and-set;
 * 3. what packages have made, of which nothing has the job's key (submission-steps.ts); then the job's
 *    row; its unique key stops the slower of two twins;
 * 4. the ledger's entry, and commit;
 * 5. where 1 or 2 refused or 3 was stopped, a read of the key: a twin may have taken the last
 *    credit for this very request.
 */

import { CapReachedError } from '@matting/accounts/keys/key-caps.ts';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
} from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { keepStatement, nowPlusMs } from '@matting/database/statements.ts';
import type { Channels, Finishing } from '@matting/proto/contract/finishing.ts';
import { isTransparentFormat, type OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import type { JobClass } from '@matting/queue/job.ts';
import { queuePositionMs } from '@matting/queue/lanes.ts';
import type { Transaction } from 'kysely';
import { NotCorrectableError } from '../corrections/family.ts';
import type { CountedIn, HoldLimits, HoldRefusal } from '../funding/funding.ts';
import { fundingOf } from '../funding/fundings.ts';
import type { Job } from '../jobs/job.ts';
import type { JobCorrection } from '../jobs/job-family.ts';
import { takesCredit } from '../jobs/job-funding.ts';
import { readByIdempotencyKey, readJob } from '../jobs/job-reading.ts';
import type { JobBackground, JobInput } from '../jobs/job-request.ts';
import { inputColumn, inputColumns, type StoredFinishing, sourceHostOf } from '../jobs/job-rows.ts';
import { queuedFramePixels } from './queue-bound.ts';
import { keyTaken, type SubmissionStep } from './submission-steps.ts';

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
  /** A job of UNPAID has it: a package counted the job in this day. */
  readonly unpaidDayMs?: number | null | undefined;
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
  readonly group?: { readonly id: string; readonly item: number };
  /** The job corrects another: its input is that of the first, and stays the first's. */
  readonly correction?: Omit<JobCorrection, 'matte'> | undefined;
}

/** A job of a group has no key of its own. */
type ItemJob = Omit<NewJob, 'idempotencyKeyHash'> & { readonly idempotencyKeyHash: null };

interface SubmitBounds {
  readonly limits: HoldLimits;
  readonly isTaken: (tx: Db) => Promise<boolean>;
}

export type SubmitOutcome =
  /** `exists`: another request with the key was first. */
  | { readonly kind: 'created' | 'exists'; readonly job: Job }
  | HoldRefusal
  | { readonly kind: 'key-cap-reached'; readonly detail: string }
  /** Something else of a package has the key. */
  | { readonly kind: 'key-taken' }
  /** The corrected job takes no correction now. Read it again to find out why. */
  | { readonly kind: 'not-correctable' };

export function jobSubmission(database: Database, steps: readonly SubmissionStep[] = []) {
  const { taken, isKeyTaken } = keyTaken(database, steps);
  return {
    isKeyTaken,
    async submit(job: NewJob, limits: HoldLimits): Promise<SubmitOutcome> {
      requireWhole(job);
      const isTaken = (tx: Db) => taken(tx, job.apiKeyId, job.idempotencyKeyHash);
      return query(database, db => submit(database, db, job, { limits, isTaken }));
    },
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
  bounds: SubmitBounds,
): Promise<SubmitOutcome> {
  let refused: SubmitOutcome | undefined;
  try {
    refused = await db.transaction().execute(tx => insertJob(database, tx, job, bounds));
    if (refused.kind === 'created') return refused;
  } catch (error) {
    if (error instanceof CapReachedError) {
      refused = { kind: 'key-cap-reached', detail: error.detail };
    } else if (error instanceof NotCorrectableError) refused = { kind: 'not-correctable' };
    else if (error instanceof KeyTakenError) refused = { kind: 'key-taken' };
    else if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const { id, apiKeyId, idempotencyKeyHash } = job;
  const twin = await readByIdempotencyKey(database, db, apiKeyId, idempotencyKeyHash);
  // If the row is ours, an earlier round committed it, and its answer was lost on the way.
  if (twin !== undefined) return { kind: twin.id === id ? 'created' : 'exists', job: twin };
  if (refused !== undefined) return refused;
  throw new OvertakenError(`a twin of job ${id} freed its key after it was in the way`);
}

async function insertJob(
  database: Database,
  tx: Transaction<Schema>,
  job: NewJob,
  { limits, isTaken }: SubmitBounds,
): Promise<SubmitOutcome> {
  const { id: jobId } = job;
  const refusal = await fundingOf(job).hold(database, tx, { ...job, ...limits }, async counted => {
    if (await isTaken(tx)) throw new KeyTakenError();
    const row = { ...newJobValues(job), ...NOT_COUNTED, ...counted };
    await tx.executeQuery(INSERT_JOB(database, row));
  });
  if (refusal !== undefined) return refusal;
  const created = await readJob(database, tx, jobId);
  if (created === undefined) throw new Error(`job ${jobId} is gone before its commit`);
  return { kind: 'created', job: created };
}

class KeyTakenError extends Error {}

/** The jobs' credits are held already, and counted for the key's cap. */
export async function insertComing(
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
    batch_id: job.group?.id ?? null,
    batch_item: job.group?.item ?? null,
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

function requireWhole(job: NewJob): void {
  const { input, sourceUrl, background, finishing } = job;
  if (!takesCredit(job) && input === null) throw new Error('a job without a credit has its image');
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
