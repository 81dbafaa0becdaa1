/**
 * A job under a claim: the statements of its lease, and what a run writes while it holds one. Each
 * is a compare-and-set on the fence (the table of core/jobs/job.ts) that commits by itself, so
 * nothing is held while a node works.
 *
 * `giveUp`: while the database is away the write is repeated until this signal aborts, two minutes
 * at most; absent: a second or two, as with every other method of the stores.
 */

import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
} from '@matting/database/database.ts';
import {
  keepStatement,
  keptMatchesOne,
  matchesOne,
  nowPlusMs,
} from '@matting/database/statements.ts';
import { describeSpan, traced } from '@matting/program/tracing/active-span.ts';
import { settledWithin } from '@matting/program/waiting.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import { timesByStage } from '@matting/proto/contract/stages.ts';
import { sql, type Updateable, type UpdateQueryBuilder, type UpdateResult } from 'kysely';
import type { Logger } from 'pino';
import type { RunEnd } from '../dispatch/dispatch-core.ts';
import { queuedFramePixels } from '../dispatch/job-needs.ts';
import {
  type Claim,
  failureDue,
  isFinal,
  type Job,
  type JobClass,
  type JobFailure,
  type JobInput,
  type JobResult,
  LEASE_TIMING,
  type LeaseTiming,
  type StageTimings,
  thumbnailBlob,
} from '../jobs/job.ts';
import {
  backgroundColumn,
  type ClaimableJob,
  inputColumns,
  readJob,
  sourceHostOf,
} from '../jobs/job-rows.ts';
import type { JobCompletion } from '../jobs/job-transactions.ts';
import type { AttemptOutcome, MatteResult, ResultSink } from '../nodes/matte-exchange.ts';
import {
  type BlobStore,
  type BlobWriter,
  type StoredBlob,
  writeBlob,
} from '../storage/blob-store.ts';

interface InputStoredOptions {
  readonly giveUp?: AbortSignal | undefined;
  /** The job's: it counts in the queue by what that makes of this input. */
  readonly finishing?: Finishing | null;
  /** Is to be downloaded next: the job stays fetching. */
  readonly backgroundUrl?: string | undefined;
}

type JobUpdate = UpdateQueryBuilder<Schema, 'jobs', 'jobs', UpdateResult>;

const FREE = { lease_holder: null, lease_expires_at: null };

const CLAIM = keepStatement<Claim & { fenceBefore: number; leaseMs: number }>(
  ({ kysely, nowMs }, { jobId, holder, fence, fenceBefore, leaseMs }) =>
    kysely
      .updateTable('jobs')
      // MySQL assigns from left to right: what reads the old lease comes before the new one.
      .set({
        takeovers: sql<number>`takeovers + case when lease_holder is null then 0 else 1 end`,
        state: sql<Job['state']>`case when state = 'accepted' then 'fetching' else state end`,
        fence,
        lease_holder: holder,
        lease_expires_at: nowPlusMs(nowMs, leaseMs),
      })
      .where('id', '=', jobId)
      .where('fence', '=', fenceBefore)
      .where('queue_at', 'is not', null)
      .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)])),
);

const RENEW = keepStatement<Claim & { leaseMs: number }>(
  ({ kysely, nowMs }, { leaseMs, ...claim }) =>
    heldBy(kysely, claim).set({ lease_expires_at: nowPlusMs(nowMs, leaseMs) }),
);

const ADMITTED = keepStatement<Claim>(({ kysely, nowMs }, claim) =>
  heldBy(kysely, claim)
    .set({ state: 'running', started_at: sql<number>`coalesce(started_at, ${nowMs})` })
    .where('state', 'in', ['ready', 'running']),
);

type JobLeases = ReturnType<typeof jobLeases>;

export function jobLeases(database: Database) {
  return {
    /** Undefined: somebody else was faster. */
    async claim(job: ClaimableJob, holder: string, leaseMs: number) {
      const claim: Claim = { jobId: job.id, holder, fence: job.fence + 1 };
      const values = { ...claim, fenceBefore: job.fence, leaseMs };
      const won = await query(database, db => keptMatchesOne(db, CLAIM(database, values)));
      if (!won) return undefined;
      const claimed = await query(database, db => readJob(database, db, job.id));
      // The answer took longer than the lease, and another replica has claimed the job.
      if (claimed === undefined || !holds(claimed, claim)) return undefined;
      return { claim, job: claimed };
    },
    renew: (claim: Claim, leaseMs: number) =>
      query(database, db => keptMatchesOne(db, RENEW(database, { ...claim, leaseMs }))),
    /** Gives the job back as it is, for anyone to claim. False: lost. */
    release: (claim: Claim, giveUp?: AbortSignal) =>
      query(database, db => matchesOne(heldBy(db, claim).set(FREE)), giveUp),
    /** Its holder finds out with its next write or renewal. */
    endLease: (jobId: string) => query(database, db => endLease(database, db, jobId)),
    /** fetching -> ready. False: lost; the row may name the blob all the same. */
    inputStored(claim: Claim, input: JobInput, options: InputStoredOptions = {}) {
      const { giveUp, backgroundUrl, finishing = null } = options;
      const next =
        backgroundUrl === undefined
          ? { state: 'ready' as const }
          : { source_url: backgroundUrl, source_host: sourceHostOf(backgroundUrl) };
      const frame = { frame_pixels: queuedFramePixels(finishing, input) };
      const columns = { ...next, ...inputColumns(input), ...frame };
      const happened = (job: Job) => job.input?.blob === input.blob;
      return query(database, db => store(database, db, { claim, columns, happened }), giveUp);
    },
    /** After the input: fetching -> ready. As inputStored. */
    backgroundStored(claim: Claim, background: JobInput, giveUp?: AbortSignal) {
      const columns = { state: 'ready' as const, background: backgroundColumn(background) };
      const happened = (job: Job) => job.background?.input?.blob === background.blob;
      return query(database, db => store(database, db, { claim, columns, happened }), giveUp);
    },
    /** ready or running -> running; sets started_at once. False: lost. */
    admitted: (claim: Claim, giveUp?: AbortSignal) =>
      query(database, db => keptMatchesOne(db, ADMITTED(database, claim)), giveUp),
    /** Gives the lease back. The job as it is then; undefined: lost. */
    attemptLost(claim: Claim, withProcess: boolean, giveUp?: AbortSignal) {
      let counted = false;
      const round = async (db: Db) => {
        counted ||= await matchesOne(
          heldBy(db, claim).set(eb => ({
            lost_attempts: eb('lost_attempts', '+', 1),
            lost_with_process: eb('lost_with_process', '+', withProcess ? 1 : 0),
            ...FREE,
          })),
        );
        return counted ? readJob(database, db, claim.jobId) : undefined;
      };
      return query(database, round, giveUp);
    },
  };
}

async function endLease(database: Database, db: Db, jobId: string) {
  const job = await readJob(database, db, jobId);
  if (job === undefined) return { kind: 'unknown' } as const;
  if (isFinal(job)) return { kind: 'final', state: job.state } as const;
  if (job.lease === null) return { kind: 'not-leased' } as const;
  const { holder } = job.lease;
  const claim: Claim = { jobId, holder, fence: job.fence };
  const ended = await matchesOne(heldBy(db, claim).set(FREE));
  if (!ended) throw new OvertakenError(`job ${jobId} changed hands after it was read`);
  return { kind: 'ended', holder } as const;
}

interface Storing {
  readonly claim: Claim;
  readonly columns: Updateable<Schema['jobs']>;
  /** Whether a row that this holder has was written by this very call. */
  readonly happened: (job: Job) => boolean;
}

/** What a download brought, while the job is fetching. False: the lease is lost. */
async function store(database: Database, db: Db, storing: Storing): Promise<boolean> {
  const { claim, columns, happened } = storing;
  const stored = await matchesOne(heldBy(db, claim).set(columns).where('state', '=', 'fetching'));
  if (stored) return true;
  // Perhaps it was, and only the answer was lost.
  const job = await readJob(database, db, claim.jobId);
  return job !== undefined && !isFinal(job) && holds(job, claim) && happened(job);
}

function heldBy(db: Db, claim: Claim): JobUpdate {
  return db
    .updateTable('jobs')
    .where('id', '=', claim.jobId)
    .where('fence', '=', claim.fence)
    .where('lease_holder', '=', claim.holder);
}

function holds(job: Job, claim: Claim): boolean {
  return job.fence === claim.fence && job.lease?.holder === claim.holder;
}

/** A claim kept alive; a renewal that the database does not answer loses nothing by itself. */

type LeaseEnd = 'lost' | 'stopping';

interface HeldLeaseOptions {
  readonly jobs: Pick<JobLeases, 'renew'>;
  readonly claim: Claim;
  readonly timing?: LeaseTiming | undefined;
  /** Aborts: the job is to be given back. */
  readonly stop: AbortSignal;
  readonly onRenewFailure: (error: unknown) => void;
}

export class HeldLease {
  readonly claim: Claim;
  readonly #options: HeldLeaseOptions;
  readonly #ended = new AbortController();
  readonly #onStop = () => this.#end('stopping');
  readonly #timing: LeaseTiming;
  readonly #timer: NodeJS.Timeout;
  #ending: LeaseEnd | undefined;
  #renewing = false;

  constructor(options: HeldLeaseOptions) {
    this.#options = options;
    this.claim = options.claim;
    this.#timing = options.timing ?? LEASE_TIMING;
    this.#timer = setInterval(() => void this.#renew(), this.#timing.renewMs);
    if (options.stop.aborted) this.#onStop();
    else options.stop.addEventListener('abort', this.#onStop, { once: true });
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  get end(): LeaseEnd | undefined {
    return this.#ending;
  }

  lose(): void {
    this.#end('lost');
  }

  stopRenewing(): void {
    clearInterval(this.#timer);
    this.#options.stop.removeEventListener('abort', this.#onStop);
  }

  #end(end: LeaseEnd): void {
    // A loss replaces stopping: a lost lease must not be given back.
    if (this.#ending === undefined || end === 'lost') this.#ending = end;
    this.#ended.abort();
  }

  async #renew(): Promise<void> {
    if (this.#renewing) return;
    this.#renewing = true;
    try {
      if (!(await this.#options.jobs.renew(this.claim, this.#timing.leaseMs))) this.lose();
    } catch (error) {
      this.#options.onRenewFailure(error);
    } finally {
      this.#renewing = false;
    }
  }
}

/*
 * What is written under a claim; what an attempt means for the job is the run's to say.
 *
 * | ending       | what is written                                                            |
 * |--------------|----------------------------------------------------------------------------|
 * | succeeded    | the result committed, then result and charge in one transaction            |
 * | failed       | the failure and the release of the credit in one transaction               |
 * | attempt-lost | counted and given back; core/jobs/job.ts says when it is enough             |
 * | given-back   | the lease ends and nothing is counted; nothing where the lease is lost     |
 *
 * Every write carries the fence, and one that is refused loses the lease.
 */

export interface ClaimedJobDependencies {
  readonly jobs: JobLeases & JobCompletion;
  readonly blobs: Pick<BlobStore, 'createWriter' | 'remove'>;
  readonly events: { jobFinal(jobId: string): void; notificationDue(): void };
  readonly observer: Pick<JobObserver, 'jobEnded' | 'leaseLost'>;
  readonly models?: { noteJob(name: string, ms: number): void };
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly resultTtlMs: number;
  readonly resultTokens: { make(jobId: string): Pick<JobResult, 'token' | 'sealedToken'> };
  readonly leaseTiming?: LeaseTiming | undefined;
}

export type Ending =
  | {
      readonly kind: 'succeeded';
      readonly result: MatteResult;
      readonly stored: ResultBlob;
      readonly nodeId: string;
      readonly waitMs: number;
    }
  | { readonly kind: 'failed'; readonly failure: JobFailure }
  | { readonly kind: 'attempt-lost'; readonly withProcess: boolean }
  | { readonly kind: 'given-back' };

export class ClaimedJob {
  readonly job: Job;
  readonly claim: Claim;
  readonly #dependencies: ClaimedJobDependencies;
  readonly #lease: HeldLease;
  readonly #claimedAtMs = performance.now();
  /** What no row names once the job is final: the input, the background. */
  readonly #blobs = new Map<'input' | 'background', string>();

  /** @param stop aborts: the job is to be given back */
  constructor(
    dependencies: ClaimedJobDependencies,
    { job, claim }: { readonly job: Job; readonly claim: Claim },
    stop: AbortSignal,
  ) {
    const { jobs, leaseTiming, log } = dependencies;
    this.#dependencies = dependencies;
    this.job = job;
    this.claim = claim;
    if (job.input !== null) this.#blobs.set('input', job.input.blob);
    if (job.background?.input) this.#blobs.set('background', job.background.input.blob);
    this.#lease = new HeldLease({
      jobs,
      claim,
      timing: leaseTiming,
      stop,
      onRenewFailure: err => log.warn({ err, jobId: job.id }, 'lease not renewed'),
    });
  }

  /** Aborts when the lease is lost or the job is to be given back. */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  get leaseLost(): boolean {
    return this.#lease.end === 'lost';
  }

  get ageMs(): number {
    const { createdAtMs, readAtMs } = this.job;
    return readAtMs - createdAtMs + (performance.now() - this.#claimedAtMs);
  }

  close(): void {
    this.#lease.stopRenewing();
    if (!this.leaseLost) return;
    const { observer, log } = this.#dependencies;
    observer.leaseLost();
    log.warn({ jobId: this.job.id, fence: this.claim.fence }, 'lease lost');
  }

  /** False: the lease is lost. An input that no row names is the sweeper's. */
  async inputStored(input: JobInput): Promise<boolean> {
    this.#blobs.set('input', input.blob);
    const { background, finishing } = this.job;
    const backgroundUrl = background?.input === null ? (background.url ?? undefined) : undefined;
    const options = { giveUp: this.signal, backgroundUrl, finishing };
    return await this.#stands(this.#dependencies.jobs.inputStored(this.claim, input, options));
  }

  async backgroundStored(background: JobInput): Promise<boolean> {
    this.#blobs.set('background', background.blob);
    const { jobs } = this.#dependencies;
    return await this.#stands(jobs.backgroundStored(this.claim, background, this.signal));
  }

  async admitted(): Promise<void> {
    await this.#stands(this.#dependencies.jobs.admitted(this.claim, this.signal));
  }

  /** Rejects where the database stays away: the lease then runs out by itself. */
  end(ending: Ending): Promise<RunEnd> {
    switch (ending.kind) {
      case 'succeeded':
        return this.#tracedSuccess(ending);
      case 'failed':
        return this.#fail(ending.failure);
      case 'attempt-lost':
        return this.#attemptLost(ending.withProcess);
      case 'given-back':
        return this.#giveBack();
    }
  }

  #tracedSuccess(ending: Extract<Ending, { kind: 'succeeded' }>): Promise<RunEnd> {
    return traced({ name: 'store' }, async () => {
      const end = await this.#succeed(ending);
      describeSpan({ 'matting.outcome': end.kind });
      return end;
    });
  }

  async #succeed({
    result,
    stored: resultBlob,
    nodeId,
    waitMs,
  }: Extract<Ending, { kind: 'succeeded' }>): Promise<RunEnd> {
    const { jobs, resultTtlMs, log } = this.#dependencies;
    const { job, claim } = this;
    if (job.noSubject === 'fail' && result.sight?.subject === null) {
      await resultBlob.abort();
      return await this.#fail(NO_SUBJECT);
    }
    const storedFromMs = performance.now();
    const { blob } = resultBlob;
    // Beside the result, so that the job waits for the slower of the two alone.
    const thumbnail = this.#storeThumbnail(thumbnailBlob(blob), result.thumbnail);
    try {
      await resultBlob.commit(result);
    } catch (err) {
      log.error({ err, jobId: job.id }, 'result not stored');
      await thumbnail;
      await this.#removeResult(blob);
      return await this.#fail(STORAGE_FAILED);
    }
    const { format, bytes, width, height, sha256, sight, models, plan } = result;
    const token = this.#dependencies.resultTokens.make(job.id);
    const file = { blob, ...token, format, bytes, width, height, sha256 };
    const stored = { ...file, sight, models, thumbnailBytes: await thumbnail };
    const storeMs = performance.now() - storedFromMs;
    const timings = roundedTimings(result.timings, { queue: waitMs, store: storeMs });
    // Where this throws the row may or may not name the blobs, so they stay, for the sweeper.
    if (!(await this.#stands(jobs.succeed(claim, stored, resultTtlMs, timings, this.signal)))) {
      // Only a final row names a result, and a final row keeps its fence: this one names another.
      await this.#removeResult(blob);
      return { kind: 'open' };
    }
    this.#dependencies.models?.noteJob(job.model ?? plan, this.ageMs - waitMs);
    const { input, outputFormat } = job;
    const inputFields = { inputBytes: input?.bytes, inputFormat: input?.format };
    const sizes = { ...inputFields, outputFormat, resultBytes: bytes };
    return await this.#ended(undefined, { nodeId, plan, ...sizes, timings });
  }

  /** null: there is none. A job never fails for its thumbnail. */
  async #storeThumbnail(blob: string, bytes: Buffer | undefined): Promise<number | null> {
    if (bytes === undefined) return null;
    const { blobs, log } = this.#dependencies;
    const failed = (err: unknown) => {
      log.warn({ err, jobId: this.job.id, blob }, 'thumbnail not stored, left to the sweeper');
      return false;
    };
    const stored = writeBlob(blobs, blob, bytes).then(() => true, failed);
    if (!(await settledWithin(stored, THUMBNAIL_MS_MAX))) failed(new Error('the storage is slow'));
    else if (await stored) return bytes.length;
    return null;
  }

  async #fail(failure: JobFailure): Promise<RunEnd> {
    const { jobs } = this.#dependencies;
    const failed = await this.#stands(jobs.fail(this.claim, failure, this.signal));
    return failed ? await this.#ended(failure, {}) : { kind: 'open' };
  }

  async #ended(failure: JobFailure | undefined, fields: object): Promise<RunEnd> {
    const { events, observer, log } = this.#dependencies;
    const { job, claim } = this;
    events.jobFinal(job.id);
    if (job.callback !== null) events.notificationDue();
    const outcome = failure === undefined ? 'succeeded' : 'failed';
    const totalMs = this.ageMs;
    const mode = job.class;
    observer.jobEnded({ outcome, mode, failure, totalMs });
    const common = { jobId: job.id, mode, outcome, fence: claim.fence };
    const total = { totalMs: Math.round(totalMs) };
    log.info(
      { ...common, ...total, ...fields, ...(failure === undefined ? {} : { failure }) },
      'job',
    );
    for (const blob of this.#blobs.values()) await this.#removeBlob(blob);
    return { kind: 'final' };
  }

  async #attemptLost(withProcess: boolean): Promise<RunEnd> {
    const { jobs } = this.#dependencies;
    const job = await this.#stands(jobs.attemptLost(this.claim, withProcess, this.signal));
    return { kind: 'open', failure: job && failureDue(job) };
  }

  async #giveBack(): Promise<RunEnd> {
    const { jobs } = this.#dependencies;
    if (!this.leaseLost) await this.#stands(jobs.release(this.claim, this.signal));
    return { kind: 'open' };
  }

  async #stands<T>(write: Promise<T>): Promise<T> {
    const answer = await write;
    if (answer === false || answer === undefined) this.#lease.lose();
    return answer;
  }

  async #removeResult(blob: string): Promise<void> {
    await this.#removeBlob(blob);
    await this.#removeBlob(thumbnailBlob(blob));
  }

  async #removeBlob(name: string): Promise<void> {
    try {
      await this.#dependencies.blobs.remove(name);
    } catch (err) {
      this.#dependencies.log.warn({ err, blob: name }, 'blob not removed, left to the sweeper');
    }
  }
}

/** A job waits no longer for its thumbnail to be stored. */
const THUMBNAIL_MS_MAX = 3000;

const NO_SUBJECT: JobFailure = {
  code: 'NO_SUBJECT',
  detail: 'No subject was found in the image.',
  retryable: false,
};

export const STORAGE_FAILED: JobFailure = {
  code: 'PROCESSING_FAILED',
  detail: 'The storage failed while the service processed the image.',
  retryable: true,
};

/** Milliseconds to the tenth: `queue`, then the node's stages in their order, then `store`. */
function roundedTimings(
  node: MatteResult['timings'],
  own: { readonly queue: number; readonly store: number },
): StageTimings {
  const nodeTimes = node === undefined ? [] : timesByStage(node);
  const times = [['queue', own.queue] as const, ...nodeTimes, ['store', own.store] as const];
  return Object.fromEntries(times.map(([stage, ms]) => [stage, Math.round(ms * 10) / 10]));
}

/* Where an attempt's result goes while it comes in, until it is committed or removed. */

export interface ResultBlob {
  readonly blob: string;
  /** Makes it durable, and proves it; where that rejects, what is left is to be removed. */
  commit(result: Pick<MatteResult, 'bytes' | 'sha256'>): Promise<void>;
  abort(): Promise<void>;
}

/** Opens its blob with the first byte: refused attempts cost no file. */
export class BlobSink implements ResultSink, ResultBlob {
  readonly blob: string;
  readonly #blobs: Pick<BlobStore, 'createWriter' | 'stat' | 'signed'>;
  #writer: BlobWriter | undefined;

  constructor(blobs: Pick<BlobStore, 'createWriter' | 'stat' | 'signed'>, blob: string) {
    this.blob = blob;
    this.#blobs = blobs;
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#writer ??= await this.#blobs.createWriter(this.blob);
    await this.#writer.write(chunk);
  }

  async commit(result: Pick<MatteResult, 'bytes' | 'sha256'>): Promise<void> {
    if (this.#writer === undefined) throw new Error('a result without bytes');
    try {
      await this.#writer.commit();
    } catch (error) {
      await this.#writer.abort();
      throw error;
    }
    await this.#requireStored(result);
  }

  /** A store, or a proxy before it, may answer well and keep nothing. */
  async #requireStored({ bytes, sha256 }: Pick<MatteResult, 'bytes' | 'sha256'>): Promise<void> {
    const { signed } = this.#blobs;
    const stored: StoredBlob | undefined =
      signed === undefined ? await this.#blobs.stat(this.blob) : await signed.stored(this.blob);
    if (stored === undefined) throw new Error('the storage does not have what was put there');
    const isSame = stored.bytes === bytes && (stored.sha256 ?? sha256) === sha256;
    if (!isSame) throw new Error('the storage has something else than what was put there');
  }

  async abort(): Promise<void> {
    await this.#writer?.abort();
  }
}

/* What happens to jobs, for the metrics; no identifiers, so that no label ever holds one. */

export const FETCH_OUTCOMES = ['stored', 'failed', 'aborted'] as const;
type FetchOutcome = (typeof FETCH_OUTCOMES)[number];

export interface JobEnding {
  readonly outcome: 'succeeded' | 'failed';
  /** The label of the metrics is older than the classes. */
  readonly mode: JobClass;
  readonly failure: Pick<JobFailure, 'code' | 'retryable'> | undefined;
  readonly totalMs: number;
}

export interface JobObserver {
  jobAdmitted(mode: JobClass, waitMs: number): void;
  /** @param reason the code that ended it; undefined for a success or our own abort. */
  attemptEnded(kind: AttemptOutcome['kind'], reason: ErrorCode | undefined): void;
  /** Besides, where files went straight between node and storage. */
  directAttemptEnded(kind: AttemptOutcome['kind']): void;
  fetchEnded(outcome: FetchOutcome): void;
  jobEnded(ending: JobEnding): void;
  leaseLost(): void;
  takenOver(): void;
  /** @param ms from its admission by a node until its result is stored */
  modelTimed(model: string, ms: number): void;
}
