/**
 * Claim, renew, give back: compare-and-set on the fence (core/attempts/lease.ts has the table). Each is
 * one statement that commits by itself, so nothing is held while a node works.
 *
 * `giveUp`, for writes under a claim: while the database is away the write is repeated until this
 * signal aborts, two minutes at most (database/database.ts). Absent: it rejects after a second or
 * two, as every other method of the stores does.
 */
import { sql, type Updateable, type UpdateQueryBuilder, type UpdateResult } from 'kysely';
import type { Finishing } from '#contract/finishing.ts';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
} from '../../database/database.ts';
import { keepStatement, keptMatchesOne, matchesOne, nowPlusMs } from '../../database/statements.ts';
import type { ClaimableJob } from '../dispatch/job-queue.ts';
import { queuedFramePixels } from '../dispatch/queue-share.ts';
import { isFinal, type Job, type JobInput, type JobState } from '../jobs/job.ts';
import { readJob } from '../jobs/job-reading.ts';
import { backgroundColumn, inputColumns, sourceHostOf } from '../jobs/job-rows.ts';

/** Proof of a claim: nothing below changes a job whose fence has moved on. */
export interface Claim {
  readonly jobId: string;
  readonly holder: string;
  readonly fence: number;
}

export interface InputStoredOptions {
  readonly giveUp?: AbortSignal | undefined;
  /** The job's: from now on it counts in the queue by what that makes of this input. */
  readonly finishing?: Finishing | null;
  /** Is to be downloaded next: the job stays fetching, among those that wait for its host. */
  readonly backgroundUrl?: string | undefined;
}

/** What became of a lease that was to be ended. */
export type LeaseEnding =
  | { readonly kind: 'ended'; readonly holder: string }
  /** It had none: the next dispatcher with room claims it. */
  | { readonly kind: 'not-leased' }
  | { readonly kind: 'final'; readonly state: JobState }
  | { readonly kind: 'unknown' };

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

export function jobLeases(database: Database) {
  return {
    /**
     * Compare-and-set on the fence and the lease: the claim, or undefined when somebody else was
     * faster. Raises the fence; a take-over raises `takeovers`; accepted becomes fetching.
     */
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
    /** False: the lease is lost, stop at once. */
    renew: (claim: Claim, leaseMs: number) =>
      query(database, db => keptMatchesOne(db, RENEW(database, { ...claim, leaseMs }))),
    /** Gives the job back as it is, for anyone to claim: a refusal before Admitted. False: lost. */
    release: (claim: Claim, giveUp?: AbortSignal) =>
      query(database, db => matchesOne(heldBy(db, claim).set(FREE)), giveUp),
    /**
     * Ends whatever lease an open job has, so that it is claimed again. Its holder finds out with
     * its next write or renewal, and counts nothing.
     */
    endLease: (jobId: string) => query(database, db => endLease(database, db, jobId)),
    /**
     * fetching -> ready; keeps the lease. False: lost. The row may name the blob all the same: it
     * was written by an earlier call whose answer was lost, and somebody else has the job since.
     */
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
    /** The background's picture, after the input: fetching -> ready. As inputStored. */
    backgroundStored(claim: Claim, background: JobInput, giveUp?: AbortSignal) {
      const columns = { state: 'ready' as const, background: backgroundColumn(background) };
      const happened = (job: Job) => job.background?.input?.blob === background.blob;
      return query(database, db => store(database, db, { claim, columns, happened }), giveUp);
    },
    /** ready or running -> running; sets started_at once. False: lost. */
    admitted: (claim: Claim, giveUp?: AbortSignal) =>
      query(database, db => keptMatchesOne(db, ADMITTED(database, claim)), giveUp),
    /**
     * Counts a lost attempt and gives the lease back. The job as it is then; undefined: lease lost.
     */
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

async function endLease(database: Database, db: Db, jobId: string): Promise<LeaseEnding> {
  const job = await readJob(database, db, jobId);
  if (job === undefined) return { kind: 'unknown' };
  if (isFinal(job)) return { kind: 'final', state: job.state };
  if (job.lease === null) return { kind: 'not-leased' };
  const { holder } = job.lease;
  const claim: Claim = { jobId, holder, fence: job.fence };
  const ended = await matchesOne(heldBy(db, claim).set(FREE));
  if (!ended) throw new OvertakenError(`job ${jobId} changed hands after it was read`);
  return { kind: 'ended', holder };
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
