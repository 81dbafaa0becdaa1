/**
 * The statements of a job's lease. Each is a compare-and-set on the fence (the table of lease-rules.ts) that
 * commits by itself, so nothing is held while a node works.
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
import { FREE, isFree, isHeldBy, takenBy } from '@matting/database/leases.ts';
import {
  keepStatement,
  keptMatchesOne,
  matchesOne,
  nowPlusMs,
} from '@matting/database/statements.ts';
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import { sql, type Updateable, type UpdateQueryBuilder, type UpdateResult } from 'kysely';
import { isFinal, type JobState, type QueueJob } from './job.ts';
import type { ClaimableJob } from './job-queue.ts';
import { readJob } from './job-reading.ts';
import type { JobInput, JobRequest } from './job-request.ts';
import { inputColumn, inputColumns, sourceHostOf } from './job-rows.ts';
import type { Claim } from './lease-rules.ts';
import { queuedFramePixels } from './queue-bound.ts';

interface InputStoredOptions {
  readonly giveUp?: AbortSignal | undefined;
  /** The job's: it counts in the queue by what that makes of this input. */
  readonly finishing?: Finishing | null;
  /** The job downloads this next, and stays fetching. */
  readonly backgroundUrl?: string | undefined;
}

type JobUpdate = UpdateQueryBuilder<Schema, 'jobs', 'jobs', UpdateResult>;

const CLAIM = keepStatement<Claim & { fenceBefore: number; leaseMs: number }>(
  (database, { fenceBefore, leaseMs, ...claim }) =>
    database.kysely
      .updateTable('jobs')
      // MySQL assigns from left to right: what reads the old lease comes before the new one.
      .set({
        takeovers: sql<number>`takeovers + case when lease_holder is null then 0 else 1 end`,
        state: sql<JobState>`case when state = 'accepted' then 'fetching' else state end`,
        ...takenBy(database, claim, leaseMs),
      })
      .where('id', '=', claim.jobId)
      .where('fence', '=', fenceBefore)
      .where('queue_at', 'is not', null)
      .where(isFree(database)),
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

export type JobLeases = ReturnType<typeof jobLeases>;

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
    /** The holder finds out with its next write or renewal. */
    endLease: (jobId: string) => query(database, db => endLease(database, db, jobId)),
    /** Moves the job from fetching to ready. False: lost; the row may still name the blob. */
    inputStored(claim: Claim, input: JobInput, options: InputStoredOptions = {}) {
      const { giveUp, backgroundUrl, finishing = null } = options;
      const next =
        backgroundUrl === undefined
          ? { state: 'ready' as const }
          : { source_url: backgroundUrl, source_host: sourceHostOf(backgroundUrl) };
      const frame = { frame_pixels: queuedFramePixels(finishing, input) };
      const columns = { ...next, ...inputColumns(input), ...frame };
      const happened = (job: JobRequest) => job.input?.blob === input.blob;
      return query(database, db => store(database, db, { claim, columns, happened }), giveUp);
    },
    /** Follows the input: fetching -> ready. It works as inputStored. */
    backgroundStored(claim: Claim, background: JobInput, giveUp?: AbortSignal) {
      const columns = { state: 'ready' as const, background: inputColumn(background) };
      const happened = (job: JobRequest) => job.background?.input?.blob === background.blob;
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
  /** Finds whether this very call wrote a row that this holder has. */
  readonly happened: (job: JobRequest) => boolean;
}

/** Writes what a download brought, while the job is fetching. False: the lease is lost. */
async function store(database: Database, db: Db, storing: Storing): Promise<boolean> {
  const { claim, columns, happened } = storing;
  const stored = await matchesOne(heldBy(db, claim).set(columns).where('state', '=', 'fetching'));
  if (stored) return true;
  // Perhaps it was, and only the answer was lost.
  const job = await readJob(database, db, claim.jobId);
  return job !== undefined && !isFinal(job) && holds(job, claim) && happened(job);
}

function heldBy(db: Db, claim: Claim): JobUpdate {
  return db.updateTable('jobs').where('id', '=', claim.jobId).where(isHeldBy(claim));
}

function holds(job: Pick<QueueJob, 'fence' | 'lease'>, claim: Claim): boolean {
  return job.fence === claim.fence && job.lease?.holder === claim.holder;
}
