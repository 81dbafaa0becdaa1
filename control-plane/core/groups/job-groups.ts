/**
 * Groups of jobs of a package. A job's credit is reserved under its id before the job has a row
 * (docs/adr/0054). Methods with a `tx` run in a transaction that began with `takeAccount`.
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

/** In one call of `cancel`. */
const CANCELLED_MAX = 100;

const OPEN_JOBS = throughIndex('jobs', 'jobs_lane_state');

interface CreditHold {
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
  /** JSON of the jobs' common fields: `template` of core/submission/many-jobs.ts. */
  readonly template: string;
  readonly capWindowStartMs: number | null;
}

interface GroupItem {
  readonly id: string;
  readonly item: number;
  readonly sourceUrl: string;
  readonly reference: string | null;
}

export type JobsShown = 'failed' | 'look';

interface GroupPage {
  /** The page's first position. */
  readonly from: number;
  /** Number of positions to read; with `only`, of jobs. */
  readonly limit: number;
  readonly only?: JobsShown | undefined;
}

export type JobGroups = ReturnType<typeof groupReading> & ReturnType<typeof jobGroups>;

export function groupReading(database: Database) {
  return {
    async counts(db: Db, groupId: string): Promise<Record<PublicJobState, number>> {
      const { nowMs } = database;
      const status = sql<PublicJobState>`case
        when state in ('accepted', 'fetching', 'ready') then 'queued'
        when state = 'running' then 'processing'
        when state = 'succeeded' and (deleted_at is not null or expires_at <= ${nowMs}) then 'expired'
        else state end`;
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
    list(db: Db, groupId: string, { from, limit, only }: GroupPage) {
      const jobs = selectViewed(database, db).where('batch_id', '=', groupId);
      const toReview = only === 'look' ? jobs.where(needsLook(database)) : jobs;
      const shown = only === 'failed' ? jobs.where('state', '=', only) : toReview;
      const page = only ? shown.limit(limit) : shown.where('batch_item', '<', from + limit);
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
    async jobOf(tx: Db, apiKeyId: string, idempotencyKeyHash: string): Promise<string | undefined> {
      return (await readByIdempotencyKey(database, tx, apiKeyId, idempotencyKeyHash))?.id;
    },
    /** Undefined: not enough credits. @throws ContractError KEY_CAP_REACHED */
    hold: (tx: Transaction<Schema>, request: CreditHold) => hold(database, tx, request),
    /** Counts the jobs that the account's groups may add. */
    async room(
      tx: Db,
      accountId: string,
      { jobsInFlightMax, ofGroupsMax }: Readonly<Record<'jobsInFlightMax' | 'ofGroupsMax', number>>,
    ): Promise<number> {
      const ofGroups = ofGroupsMax - (await openOfGroups(database, tx, accountId));
      return Math.min(ofGroups, jobsInFlightMax - (await readInFlight(tx, accountId)));
    },
    /** @returns the caller runs it after the commit */
    begin: (
      tx: Transaction<Schema>,
      group: JobGroup,
      items: readonly GroupItem[],
      { isCancelled }: { readonly isCancelled: boolean },
    ) => begin({ database, ends, tx }, group, items, isCancelled),
    /** @returns ids of the cancelled jobs, CANCELLED_MAX at most */
    async cancel({ id, apiKeyId }: Pick<JobGroup, 'id' | 'apiKeyId'>): Promise<string[]> {
      const queued = await readQueued(database, id);
      for (const jobId of queued) await deletion.remove(jobId, apiKeyId, { keepReference: true });
      return queued;
    },
  };
}

async function hold(
  database: Database,
  tx: Transaction<Schema>,
  { accountId, apiKeyId, keyHasCap, jobIds }: CreditHold,
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

/** The account's jobs in flight are bounded. */
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

interface GroupTransaction {
  readonly database: Database;
  readonly ends: MattingEnds;
  readonly tx: Transaction<Schema>;
}

async function begin(
  { database, ends, tx }: GroupTransaction,
  { id: groupId, accountId, template, capWindowStartMs, ...group }: JobGroup,
  items: readonly GroupItem[],
  isCancelled: boolean,
): Promise<() => void> {
  const common = { ...(JSON.parse(template) as JobTemplate), ...group, accountId };
  const jobs = items.map(({ item, reference, ...one }) => ({
    ...{ ...common, ...one, idempotencyKeyHash: null, class: 'async' as const, input: null },
    ...{ reference: reference ?? undefined, group: { id: groupId, item } },
  }));
  for (const job of jobs) await insertJob(database, tx, job, { capWindowStartMs });
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
      .limit(CANCELLED_MAX)
      .execute();
    return rows.map(({ id }) => id);
  });
}
