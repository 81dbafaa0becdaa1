/**
 * Claim, renew, give back: compare-and-set on the fence (domain/lease.ts has the table). Each is
 * one statement that commits by itself, so nothing is held while a node works.
 */
import { type Kysely, sql, type UpdateQueryBuilder, type UpdateResult } from 'kysely';
import type { Job, JobInput } from '../../domain/job.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { inputColumns } from '../database/rows.ts';
import type { Schema } from '../database/schema.ts';
import { query, readBack } from '../database/transact.ts';
import { readJob } from './job-queries.ts';
import type { Claim, ClaimableJob } from './job-store.ts';

type JobUpdate = UpdateQueryBuilder<Schema, 'jobs', 'jobs', UpdateResult>;

export class JobLeases {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async claim(
    job: Pick<ClaimableJob, 'id' | 'fence'>,
    holder: string,
    leaseMs: number,
  ): Promise<{ claim: Claim; job: Job } | undefined> {
    const { nowMs } = this.#database;
    const won = await this.#update(update =>
      update
        // MySQL assigns from left to right: what looks at the old lease comes before the new one.
        .set({
          takeovers: sql<number>`takeovers + case when lease_holder is null then 0 else 1 end`,
          state: sql<Job['state']>`case when state = 'accepted' then 'fetching' else state end`,
          fence: job.fence + 1,
          lease_holder: holder,
          lease_expires_at: nowPlusMs(nowMs, leaseMs),
        })
        .where('id', '=', job.id)
        .where('fence', '=', job.fence)
        .where('queue_at', 'is not', null)
        .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)])),
    );
    if (!won) return undefined;
    const claim: Claim = { jobId: job.id, holder, fence: job.fence + 1 };
    const claimed = await readBack(this.#database, db => readJob(this.#database, db, job.id));
    // Slower than the lease itself, and somebody else was not.
    if (claimed === undefined || !holds(claimed, claim)) return undefined;
    return { claim, job: claimed };
  }

  renew(claim: Claim, leaseMs: number): Promise<boolean> {
    return this.#update(update =>
      heldBy(update, claim).set({
        lease_expires_at: nowPlusMs(this.#database.nowMs, leaseMs),
      }),
    );
  }

  release(claim: Claim, giveUp?: AbortSignal): Promise<boolean> {
    const free = { lease_holder: null, lease_expires_at: null };
    return this.#update(update => heldBy(update, claim).set(free), giveUp);
  }

  inputStored(claim: Claim, input: JobInput, giveUp?: AbortSignal): Promise<boolean> {
    const round = async (db: Kysely<Schema>) => {
      const stored = await updateOne(db, update =>
        heldBy(update, claim)
          .set({ state: 'ready', ...inputColumns(input) })
          .where('state', '=', 'fetching'),
      );
      if (stored) return true;
      // Perhaps it was, and only the answer was lost.
      const job = await readJob(this.#database, db, claim.jobId);
      return job?.state === 'ready' && holds(job, claim) && job.input?.blob === input.blob;
    };
    return readBack(this.#database, round, giveUp);
  }

  admitted(claim: Claim, giveUp?: AbortSignal): Promise<boolean> {
    const startedAt = sql<number>`coalesce(started_at, ${this.#database.nowMs})`;
    return this.#update(
      update =>
        heldBy(update, claim)
          .set({ state: 'running', started_at: startedAt })
          .where('state', 'in', ['ready', 'running']),
      giveUp,
    );
  }

  attemptLost(claim: Claim, withProcess: boolean, giveUp?: AbortSignal): Promise<Job | undefined> {
    let counted = false;
    const round = async (db: Kysely<Schema>) => {
      counted ||= await updateOne(db, update =>
        heldBy(update, claim).set(eb => ({
          lost_attempts: eb('lost_attempts', '+', 1),
          lost_with_process: eb('lost_with_process', '+', withProcess ? 1 : 0),
          lease_holder: null,
          lease_expires_at: null,
        })),
      );
      return counted ? readJob(this.#database, db, claim.jobId) : undefined;
    };
    return readBack(this.#database, round, giveUp);
  }

  #update(build: (update: JobUpdate) => JobUpdate, giveUp?: AbortSignal): Promise<boolean> {
    return query(this.#database, db => updateOne(db, build), giveUp);
  }
}

/** True when the one row matched. */
async function updateOne(
  db: Kysely<Schema>,
  build: (update: JobUpdate) => JobUpdate,
): Promise<boolean> {
  const { numUpdatedRows } = await build(db.updateTable('jobs')).executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

function heldBy(update: JobUpdate, claim: Claim): JobUpdate {
  return update
    .where('id', '=', claim.jobId)
    .where('fence', '=', claim.fence)
    .where('lease_holder', '=', claim.holder);
}

function holds(job: Job, claim: Claim): boolean {
  return job.fence === claim.fence && job.lease?.holder === claim.holder;
}
