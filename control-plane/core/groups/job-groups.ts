/**
 * Groups of jobs that a package makes: each has a credit before it is a job, held under the id that
 * the job will have (docs/adr/0054). What takes a `tx` belongs into a transaction of the package,
 * which begins with `takeAccount`.
 */

import { takeAccount } from '@matting/accounts/account-store.ts';
import { requireUnrevoked } from '@matting/accounts/keys/change-api-keys.ts';
import { CapReachedError, countForCap } from '@matting/accounts/keys/key-caps.ts';
import {
  beginReserved,
  readBalances,
  readInFlight,
  reserveAhead,
} from '@matting/accounts/ledger/ledger-writer.ts';
import { type Database, type Db, query, type Schema } from '@matting/database/database.ts';
import { requireInteger, throughIndex } from '@matting/database/statements.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { OPEN_STATES, type PublicJobState, QUEUED_STATES } from '@matting/queue/job.ts';
import { sql, type Transaction } from 'kysely';
import { CANCELLED, jobDeletion } from '../deletion/remove-job.ts';
import { readByIdempotencyKey, readJob } from '../jobs/job-reading.ts';
import { readViewed, selectViewed } from '../jobs/job-rows.ts';
import { needsLook } from '../jobs/looks.ts';
import type { MattingEnds } from '../queue/matting-ends.ts';
import { insertJob, type JobTemplate } from '../queue/matting-submission.ts';

/** Queued jobs of one look. */
const QUEUED_MAX = 100;

const OPEN_JOBS = throughIndex('jobs', 'jobs_lane_state');

interface HeldOrder {
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly keyHasCap: boolean;
  readonly jobIds: readonly string[];
}

interface JobGroup {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly fingerprint: string;
  /** JSON of what its jobs have in common: `template` of core/submission/many-jobs.ts. */
  readonly template: string;
  readonly capWindowStartMs: number | null;
}

interface ComingJob {
  readonly id: string;
  /** Position in the group, from 0. */
  readonly item: number;
  readonly sourceUrl: string;
  readonly reference: string | null;
}

/** Only those that failed, or whose results need a look. */
export type JobsShown = 'failed' | 'look';

export type JobGroups = ReturnType<typeof groupReading> & ReturnType<typeof jobGroups>;

export function groupReading(database: Database) {
  return {
    /** Jobs of a group by what callers see of them. */
    async counts(db: Db, groupId: string): Promise<Record<PublicJobState, number>> {
      const { nowMs } = database;
      const status = sql<PublicJobState>`case
        when state in ('accepted', 'fetching', 'ready') then 'queued'
        when state = 'running' then 'processing'
        when state = 'succeeded' and (deleted_at is not null or expires_at <= ${nowMs}) then 'expired'
        else state end`;
      // At most as many rows as the group has jobs.
      const rows = await db
        .selectFrom('jobs')
        .select(eb => [status.as('status'), eb.fn.countAll<number>().as('jobs')])
        .where('batch_id', '=', groupId)
        .groupBy('status')
        .execute();
      const counted = { queued: 0, processing: 0, succeeded: 0, failed: 0, expired: 0 };
      for (const { status: of, jobs } of rows) counted[of] = requireInteger(jobs);
      return counted;
    },
    /** In the order of their positions, from that one on; all, or some alone. */
    list(db: Db, groupId: string, from: number, limit: number, only?: JobsShown) {
      const jobs = selectViewed(database, db).where('batch_id', '=', groupId);
      const some = only === 'look' ? jobs.where(needsLook(database)) : jobs;
      const asked = only === 'failed' ? jobs.where('state', '=', only) : some;
      const page = only ? asked.limit(limit) : asked.where('batch_item', '<', from + limit);
      return readViewed(db, page.where('batch_item', '>=', from).orderBy('batch_item').execute());
    },
    async hasOpen(db: Db, groupId: string): Promise<boolean> {
      const open = await db
        .selectFrom('jobs')
        .select('id')
        .where('batch_id', '=', groupId)
        .where('finished_at', 'is', null)
        .limit(1)
        .execute();
      return open.length > 0;
    },
  };
}

export function jobGroups(database: Database, ends: MattingEnds) {
  const deletion = jobDeletion(database, ends);
  return {
    takeAccount: (tx: Db, accountId: string) => takeAccount(database, tx, accountId),
    /** @throws ContractError INVALID_API_KEY: the key was revoked, which ended its groups */
    requireKey: requireUnrevoked,
    /** The job of this Idempotency-Key. */
    async jobOf(tx: Db, apiKeyId: string, idempotencyKeyHash: string): Promise<string | undefined> {
      return (await readByIdempotencyKey(database, tx, apiKeyId, idempotencyKeyHash))?.id;
    },
    /** Undefined: not enough credits. @throws ContractError KEY_CAP_REACHED */
    hold: (tx: Transaction<Schema>, order: HeldOrder) => hold(database, tx, order),
    /** How many jobs the account may have more; of groups at most `ofGroupsMax`. */
    async room(
      tx: Db,
      accountId: string,
      { jobsInFlightMax, ofGroupsMax }: Readonly<Record<'jobsInFlightMax' | 'ofGroupsMax', number>>,
    ): Promise<number> {
      const ofGroups = ofGroupsMax - (await openOfGroups(database, tx, accountId));
      return Math.min(ofGroups, jobsInFlightMax - (await readInFlight(tx, accountId)));
    },
    /** @returns what to call once the transaction is committed */
    begin: (
      tx: Transaction<Schema>,
      group: JobGroup,
      coming: readonly ComingJob[],
      { isCancelled }: { readonly isCancelled: boolean },
    ) => begin({ database, ends }, tx, group, coming, isCancelled),
    /** Ends jobs that no node has begun, some at a time. @returns their ids */
    async cancel({ id, apiKeyId }: Pick<JobGroup, 'id' | 'apiKeyId'>): Promise<string[]> {
      const queued = await readQueued(database, id);
      for (const jobId of queued) await deletion.remove(jobId, apiKeyId, { keepReference: true });
      return queued;
    },
  };
}

/** The account's row is taken, so nothing changes between a statement and the next. */
async function hold(
  database: Database,
  tx: Transaction<Schema>,
  { accountId, apiKeyId, keyHasCap, jobIds }: HeldOrder,
): Promise<{ readonly capWindowStartMs: number | null } | undefined> {
  const { available = 0 } = (await readBalances(tx, accountId)) ?? {};
  if (available < jobIds.length) return undefined;
  try {
    const cap = keyHasCap ? await countForCap(database, tx, apiKeyId, jobIds.length) : null;
    await reserveAhead(database, tx, accountId, jobIds);
    return { capWindowStartMs: cap };
  } catch (error) {
    if (!(error instanceof CapReachedError)) throw error;
    throw new ContractError('KEY_CAP_REACHED', error.detail);
  }
}

/** An account has no more open jobs than may be in flight. */
async function openOfGroups(database: Database, tx: Db, accountId: string): Promise<number> {
  const { jobs } = await tx
    .selectFrom(OPEN_JOBS[database.dialect])
    .select(eb => eb.fn.countAll<number>().as('jobs'))
    .where('state', 'in', OPEN_STATES)
    .where('account_id', '=', accountId)
    .where('batch_id', 'is not', null)
    .executeTakeFirstOrThrow();
  return requireInteger(jobs);
}

async function begin(
  { database, ends }: { readonly database: Database; readonly ends: MattingEnds },
  tx: Transaction<Schema>,
  { id: groupId, accountId, template, capWindowStartMs, ...group }: JobGroup,
  coming: readonly ComingJob[],
  isCancelled: boolean,
): Promise<() => void> {
  const common = { ...(JSON.parse(template) as JobTemplate), ...group, accountId };
  const jobs = coming.map(({ item, reference, ...one }) => ({
    ...{ ...common, ...one, idempotencyKeyHash: null, class: 'async' as const, input: null },
    ...{ reference: reference ?? undefined, group: { id: groupId, item } },
  }));
  for (const job of jobs) await insertJob(database, tx, job, capWindowStartMs);
  await beginReserved(tx, accountId, jobs.length);
  const ended: (() => void)[] = [];
  for (const { id } of isCancelled ? jobs : []) {
    const job = await readJob(database, tx, id);
    if (job !== undefined) ended.push(await ends.cancelIn(tx, job, CANCELLED));
  }
  return () => {
    for (const note of ended) note();
  };
}

function readQueued(database: Database, groupId: string): Promise<string[]> {
  return query(database, async db => {
    const rows = await db
      .selectFrom('jobs')
      .select('id')
      .where('batch_id', '=', groupId)
      .where('finished_at', 'is', null)
      .where('state', 'in', QUEUED_STATES)
      .limit(QUEUED_MAX)
      .execute();
    return rows.map(({ id }) => id);
  });
}
