/**
 * The statements of a job's lease. Each is a compare-and-set on the fence (lease-rules.ts) that
 * commits by itself, so no transaction is open while a node works.
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
import { sql, type Updateable } from 'kysely';
import { isFinal, type JobState, type QueueJob } from './job.ts';
import type { Claim } from './lease-rules.ts';
import type { JobLeases, Prepared } from './queue.ts';
import type {} from './tables.ts';

const CLAIM = keepStatement<Claim & { fenceBefore: number; leaseMs: number }>(
  (database, { fenceBefore, leaseMs, ...claim }) =>
    database.kysely
      .updateTable('jobs')
      // MySQL assigns from left to right, so expressions that read the old lease precede the new
      // one.
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

export type ReadJob<J> = (db: Db, jobId: string) => Promise<J | undefined>;

type Leased = Pick<QueueJob, 'id' | 'fence' | 'state' | 'lease'>;

export function jobLeases<J extends Leased>(database: Database, reading: ReadJob<J>): JobLeases<J> {
  return {
    async claim(job, holder, leaseMs) {
      const claim: Claim = { jobId: job.id, holder, fence: job.fence + 1 };
      const values = { ...claim, fenceBefore: job.fence, leaseMs };
      const won = await query(database, db => keptMatchesOne(db, CLAIM(database, values)));
      if (!won) return undefined;
      const claimed = await query(database, db => reading(db, job.id));
      // If the answer took longer than the lease, another replica may have claimed the job.
      if (claimed === undefined || !holds(claimed, claim)) return undefined;
      return { claim, job: claimed };
    },
    renew: (claim, leaseMs) =>
      query(database, db => keptMatchesOne(db, RENEW(database, { ...claim, leaseMs }))),
    release: (claim, giveUp) =>
      query(database, db => matchesOne(heldBy(db, claim).set(FREE)), giveUp),
    endLease: jobId => query(database, db => endLease(db, jobId, reading)),
    prepared: (claim, step, giveUp) =>
      query(database, db => prepare(db, claim, step, reading), giveUp),
    admitted: (claim, giveUp) =>
      query(database, db => keptMatchesOne(db, ADMITTED(database, claim)), giveUp),
    attemptLost(claim, withProcess, giveUp) {
      let counted = false;
      const round = async (db: Db) => {
        counted ||= await matchesOne(
          heldBy(db, claim).set(eb => ({
            lost_attempts: eb('lost_attempts', '+', 1),
            lost_with_process: eb('lost_with_process', '+', withProcess ? 1 : 0),
            ...FREE,
          })),
        );
        return counted ? reading(db, claim.jobId) : undefined;
      };
      return query(database, round, giveUp);
    },
  };
}

async function endLease(db: Db, jobId: string, reading: ReadJob<Leased>) {
  const job = await reading(db, jobId);
  if (job === undefined) return { kind: 'unknown' } as const;
  if (isFinal(job)) return { kind: 'final', state: job.state } as const;
  if (job.lease === null) return { kind: 'not-leased' } as const;
  const { holder } = job.lease;
  const claim: Claim = { jobId, holder, fence: job.fence };
  const ended = await matchesOne(heldBy(db, claim).set(FREE));
  if (!ended) throw new OvertakenError(`job ${jobId} changed hands after it was read`);
  return { kind: 'ended', holder } as const;
}

async function prepare<J extends Leased>(
  db: Db,
  claim: Claim,
  { columns, nextHost, happened }: Prepared<J>,
  reading: ReadJob<J>,
): Promise<boolean> {
  const next = nextHost === undefined ? { state: 'ready' as const } : { source_host: nextHost };
  const set: Updateable<Schema['jobs']> = { ...columns, ...next };
  if (await matchesOne(heldBy(db, claim).set(set).where('state', '=', 'fetching'))) return true;
  // An earlier try may have made the change and lost its answer.
  const job = await reading(db, claim.jobId);
  return job !== undefined && !isFinal(job) && holds(job, claim) && happened(job);
}

function heldBy(db: Db, claim: Claim) {
  return db.updateTable('jobs').where('id', '=', claim.jobId).where(isHeldBy(claim));
}

function holds(job: Pick<QueueJob, 'fence' | 'lease'>, claim: Claim): boolean {
  return job.fence === claim.fence && job.lease?.holder === claim.holder;
}
