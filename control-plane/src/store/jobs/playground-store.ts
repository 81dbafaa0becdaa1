/**
 * Jobs of the playground: an account's allowance of a day in place of a credit (docs/adr/0022). No
 * ledger entry is written and no balance moves. The order of statements is that of a submission
 * (job-submission.ts), with the allowance's row in place of the account's: it serialises an
 * account's playground over all replicas.
 */
import { type Kysely, sql, type Transaction } from 'kysely';
import {
  DAY_MS,
  PLAYGROUND_ACCOUNT_OPEN_MAX,
  PLAYGROUND_OPEN_MAX,
} from '../../domain/playground.ts';
import { createApiKeyToken, hashSecret } from '../accounts/api-key-token.ts';
import { startOfDay } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import type { Schema } from '../database/schema.ts';
import { throughIndex } from '../database/through-index.ts';
import { OvertakenError, query, readBack, transact } from '../database/transact.ts';
import { requireInteger } from '../database/values.ts';
import { readJob } from './job-queries.ts';
import type { NewJob, SubmittedJob } from './job-store.ts';
import { findTwin, newJobRow, requireOneSource } from './job-submission.ts';
import { PLAYGROUND_QUEUE_AT } from './queue-range.ts';

export interface PlaygroundLimits {
  /** Pictures of an account a day; 0: none. */
  readonly imagesMax: number;
}

export type PlaygroundOutcome =
  | SubmittedJob
  /** The account's pictures of this day are used. */
  | { readonly kind: 'allowance-used' }
  /** It has PLAYGROUND_ACCOUNT_OPEN_MAX jobs open. */
  | { readonly kind: 'too-many-open' };

export interface PlaygroundStore {
  /**
   * The key that the jobs of the account's playground are of, made when it is first asked for. It
   * cannot authenticate: its secret is forgotten as it is made. The account must exist.
   */
  internalKey(accountId: string): Promise<string>;
  /** Undefined: the account has not used its playground yet. */
  findKey(accountId: string): Promise<string | undefined>;
  /** Pictures that the account has used today, and when the next day begins. */
  usage(accountId: string): Promise<{ readonly used: number; readonly resetsAtMs: number }>;
  /**
   * One transaction: counts the picture and inserts the job, of `internalKey`, whose image is
   * stored. A job that fails by no fault of its picture gives it back, where it is still that day.
   */
  submit(job: NewJob, limits: PlaygroundLimits): Promise<PlaygroundOutcome>;
  /** Open jobs of all playgrounds, counted up to PLAYGROUND_OPEN_MAX. */
  openJobs(): Promise<number>;
}

export function createPlaygroundStore(database: Database): PlaygroundStore {
  return {
    internalKey: accountId => internalKey(database, accountId),
    findKey: accountId => findKey(database, accountId),
    async usage(accountId) {
      const row = await query(database, db =>
        db
          .selectNoFrom([
            startOfDay(database.nowMs).as('day'),
            db
              .selectFrom('playgrounds')
              .select('used')
              .where('account_id', '=', accountId)
              .where('day_at', '=', startOfDay(database.nowMs))
              .as('used'),
          ])
          .executeTakeFirstOrThrow(),
      );
      return { used: row.used ?? 0, resetsAtMs: row.day + DAY_MS };
    },
    async submit(job, limits) {
      requireOneSource(job);
      if (job.input === null) throw new Error('a job of the playground has its image');
      return readBack(database, db => submit(database, db, job, limits));
    },
    async openJobs() {
      const row = await query(database, db =>
        db
          .selectFrom(eb =>
            eb
              .selectFrom('jobs')
              .select('id')
              .where('queue_at', '=', PLAYGROUND_QUEUE_AT)
              .limit(sql.lit(PLAYGROUND_OPEN_MAX))
              .as('open'),
          )
          .select(eb => eb.fn.countAll<number>().as('jobs'))
          .executeTakeFirstOrThrow(),
      );
      return requireInteger(row.jobs);
    },
  };
}

/** Of all its jobs: nobody's request waits for one. */
const MODE = 'async' as const;

const OPEN_JOBS = throughIndex('jobs', 'jobs_queue_lanes');

async function internalKey(database: Database, accountId: string): Promise<string> {
  const known = await findKey(database, accountId);
  if (known !== undefined) return known;
  const made = createApiKeyToken();
  try {
    await transact(database, async tx => {
      const playground = { account_id: accountId, api_key_id: made.id, day_at: 0, used: 0 };
      await tx.insertInto('playgrounds').values(playground).execute();
      await tx
        .insertInto('api_keys')
        .values({
          id: made.id,
          account_id: accountId,
          name: 'playground',
          secret_hash: hashSecret(made.secret),
          purpose: 'playground',
          created_at: database.nowMs,
        })
        .execute();
    });
  } catch (error) {
    // Another replica was faster, or this one and the answer was lost.
    if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const key = await findKey(database, accountId);
  if (key === undefined) throw new Error(`the playground of account ${accountId} has no key`);
  return key;
}

async function findKey(database: Database, accountId: string): Promise<string | undefined> {
  const row = await readBack(database, db =>
    db
      .selectFrom('playgrounds')
      .select('api_key_id')
      .where('account_id', '=', accountId)
      .executeTakeFirst(),
  );
  return row?.api_key_id;
}

async function submit(
  database: Database,
  db: Kysely<Schema>,
  job: NewJob,
  limits: PlaygroundLimits,
): Promise<PlaygroundOutcome> {
  let refused: PlaygroundOutcome | undefined;
  try {
    refused = await db.transaction().execute(tx => insertJob(database, tx, job, limits));
    if (refused.kind === 'created') return refused;
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const outcome = (await findTwin(database, db, job)) ?? refused;
  if (outcome !== undefined) return outcome;
  throw new OvertakenError(`a twin of job ${job.id} freed its key after it was in the way`);
}

async function insertJob(
  database: Database,
  tx: Transaction<Schema>,
  job: NewJob,
  { imagesMax }: PlaygroundLimits,
): Promise<PlaygroundOutcome> {
  const dayMs = await takeImage(database, tx, job.accountId, imagesMax);
  if (dayMs === undefined) return { kind: 'allowance-used' };
  if ((await countOpen(database, tx, job)) >= PLAYGROUND_ACCOUNT_OPEN_MAX) {
    await giveImageBack(tx, job.accountId, dayMs);
    return { kind: 'too-many-open' };
  }
  const place = { mode: MODE, queue_at: PLAYGROUND_QUEUE_AT, playground_day: dayMs };
  const row = { ...newJobRow(database, job), ...place };
  await tx.insertInto('jobs').values(row).execute();
  const created = await readJob(database, tx, job.id);
  if (created === undefined) throw new Error(`job ${job.id} is gone before its commit`);
  return { kind: 'created', job: created };
}

/** The day it is counted in; undefined: there is none left. A clock set back begins no day anew. */
async function takeImage(
  database: Database,
  tx: Transaction<Schema>,
  accountId: string,
  imagesMax: number,
): Promise<number | undefined> {
  if (imagesMax < 1) return undefined;
  const day = startOfDay(database.nowMs);
  const { numUpdatedRows } = await tx
    .updateTable('playgrounds')
    // MySQL assigns from left to right: what reads the old day comes before the new one.
    .set({
      used: sql<number>`case when day_at < ${day} then 1 else used + 1 end`,
      day_at: sql<number>`case when day_at < ${day} then ${day} else day_at end`,
    })
    .where('account_id', '=', accountId)
    .where(eb => eb.or([eb('day_at', '<', day), eb('used', '<', imagesMax)]))
    .executeTakeFirstOrThrow();
  const row = await tx
    .selectFrom('playgrounds')
    .select('day_at')
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  if (row === undefined) throw new Error(`account ${accountId} has no playground`);
  return numUpdatedRows === 1n ? row.day_at : undefined;
}

/** Does nothing once another day is counted. */
export async function giveImageBack(
  tx: Transaction<Schema>,
  accountId: string,
  dayMs: number,
): Promise<void> {
  await tx
    .updateTable('playgrounds')
    .set(eb => ({ used: eb('used', '-', 1) }))
    .where('account_id', '=', accountId)
    .where('day_at', '=', dayMs)
    .where('used', '>', 0)
    .execute();
}

async function countOpen(
  { dialect }: Database,
  tx: Transaction<Schema>,
  { accountId }: NewJob,
): Promise<number> {
  const row = await tx
    .selectFrom(OPEN_JOBS[dialect])
    .select(eb => eb.fn.countAll<number>().as('jobs'))
    .where('queue_at', '=', PLAYGROUND_QUEUE_AT)
    .where('mode', '=', MODE)
    .where('account_id', '=', accountId)
    .executeTakeFirstOrThrow();
  return requireInteger(row.jobs);
}
