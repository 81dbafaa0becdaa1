/** Reads of jobs. Each row comes with the database's clock, by which its expiry is judged. */
import { hash } from 'node:crypto';
import { type CompiledQuery, type Kysely, sql } from 'kysely';
import type { Job } from '../../domain/job.ts';
import type { Database } from '../database/connect.ts';
import { keepStatement } from '../database/kept-statement.ts';
import type { Schema } from '../database/schema.ts';
import { query, readBack } from '../database/transact.ts';
import { type JobRow, jobFromRow } from './job-rows.ts';
import type { JobStore } from './job-store.ts';

/** What callers send as an id or token: anything else matches nothing, and is not asked for. */
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const TOKEN = /^[A-Za-z0-9_-]{1,64}$/;
const HASH = /^[0-9a-f]{64}$/;

const JOBS = sql<Schema['jobs']>`jobs`;
const JOBS_BY_ANY = { sqlite: JOBS.as<'jobs'>(sql`jobs`), mysql: JOBS.as<'jobs'>(sql`jobs`) };

/** All of a job's columns and `read_at`; `db` is the database or a transaction of it. */
export function selectJobs(database: Database, db: Kysely<Schema>, jobs = JOBS_BY_ANY) {
  return db
    .selectFrom(jobs[database.dialect])
    .selectAll()
    .select(() => database.nowMs.as('read_at'));
}

interface JobRows {
  execute(): Promise<JobRow[]>;
}

/**
 * The rows' jobs. What the outbox says of a notification is asked for in a statement of its own,
 * since few jobs have one: a join made every read take 1.5 times as long (SQLite, 2 cores of an AMD
 * EPYC). The outbox's row comes with the job's final state, so it is there when that was seen.
 */
export async function readJobs(db: Kysely<Schema>, select: JobRows): Promise<Job[]> {
  const rows = await select.execute();
  const notified = rows.filter(row => row.callback_url !== null && row.finished_at !== null);
  if (notified.length === 0) return rows.map(row => jobFromRow(row));
  const notifications = await db
    .selectFrom('webhook_outbox')
    .select([
      'job_id',
      'status',
      'attempts',
      'last_status_code',
      'last_attempt_at',
      'next_attempt_at',
    ])
    .where(
      'job_id',
      'in',
      notified.map(row => row.id),
    )
    .execute();
  const byJob = new Map(notifications.map(row => [row.job_id, row]));
  return rows.map(row => jobFromRow(row, byJob.get(row.id)));
}

/** What a job and its callers ask most, compiled once. */
const BY_ID = keepStatement<{ jobId: string }, JobRow>((database, { jobId }) =>
  selectJobs(database, database.kysely).where('id', '=', jobId),
);
const BY_ID_AND_KEY = keepStatement<{ jobId: string; apiKeyId: string }, JobRow>(
  (database, { jobId, apiKeyId }) =>
    selectJobs(database, database.kysely)
      .where('id', '=', jobId)
      .where('api_key_id', '=', apiKeyId),
);
const FINAL_BY_ID = keepStatement<{ jobId: string }, JobRow>((database, { jobId }) =>
  selectJobs(database, database.kysely)
    .where('id', '=', jobId)
    .where('finished_at', 'is not', null),
);
const BY_IDEMPOTENCY_KEY = keepStatement<{ apiKeyId: string; hash: string }, JobRow>(
  (database, { apiKeyId, hash }) =>
    selectJobs(database, database.kysely)
      .where('api_key_id', '=', apiKeyId)
      .where('idempotency_key_hash', '=', hash),
);
const BY_RESULT_TOKEN = keepStatement<{ hashed: string }, JobRow>((database, { hashed }) =>
  selectJobs(database, database.kysely).where('result_token', '=', hashed),
);

/** A kept statement as `readJobs` takes it. */
function kept(db: Kysely<Schema>, statement: CompiledQuery<JobRow>): JobRows {
  return { execute: async () => (await db.executeQuery(statement)).rows };
}

async function firstJob(
  db: Kysely<Schema>,
  statement: CompiledQuery<JobRow>,
): Promise<Job | undefined> {
  return (await readJobs(db, kept(db, statement)))[0];
}

export async function readJob(
  database: Database,
  db: Kysely<Schema>,
  jobId: string,
): Promise<Job | undefined> {
  return firstJob(db, BY_ID(database, { jobId }));
}

export async function readByIdempotencyKey(
  database: Database,
  db: Kysely<Schema>,
  apiKeyId: string,
  hash: string,
): Promise<Job | undefined> {
  return firstJob(db, BY_IDEMPOTENCY_KEY(database, { apiKeyId, hash }));
}

export function jobQueries(
  database: Database,
): Pick<
  JobStore,
  'find' | 'findFinal' | 'findForKey' | 'findByIdempotencyKey' | 'findByResultToken'
> {
  return {
    async find(jobId) {
      if (!ID.test(jobId)) return undefined;
      return query(database, db => readJob(database, db, jobId));
    },
    async findFinal(jobIds) {
      const ids = jobIds.filter(id => ID.test(id));
      if (ids.length === 0) return [];
      return query(database, db => {
        const [jobId = ''] = ids;
        if (ids.length === 1) return readJobs(db, kept(db, FINAL_BY_ID(database, { jobId })));
        const select = selectJobs(database, db).where('id', 'in', ids);
        return readJobs(db, select.where('finished_at', 'is not', null));
      });
    },
    async findForKey(jobId, apiKeyId) {
      if (!ID.test(jobId)) return undefined;
      return query(database, db => firstJob(db, BY_ID_AND_KEY(database, { jobId, apiKeyId })));
    },
    async findByIdempotencyKey(apiKeyId, hash) {
      if (!HASH.test(hash)) return undefined;
      return readBack(database, db => readByIdempotencyKey(database, db, apiKeyId, hash));
    },
    async findByResultToken(token) {
      if (!TOKEN.test(token)) return undefined;
      const hashed = hash('sha256', token, 'hex');
      return query(database, db => firstJob(db, BY_RESULT_TOKEN(database, { hashed })));
    },
  };
}
