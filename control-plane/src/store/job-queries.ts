/** Reads of jobs. Each row comes with the database's clock, by which its expiry is judged. */
import type { Kysely, SelectQueryBuilder } from 'kysely';
import type { Job } from '../domain/job.ts';
import type { Database } from './connect.ts';
import { type JobRow, jobFromRow } from './rows.ts';
import type { Schema } from './schema.ts';
import { query } from './transact.ts';

/** What callers send as an id or token: anything else matches nothing, and is not asked for. */
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const TOKEN = /^[A-Za-z0-9_-]{1,64}$/;
const HASH = /^[0-9a-f]{64}$/;

/** All of a job's columns and `read_at`; `db` is the database or a transaction of it. */
export function selectJobs(database: Database, db: Kysely<Schema>) {
  return db
    .selectFrom('jobs')
    .selectAll()
    .select(() => database.nowMs.as('read_at'));
}

export async function firstJob(
  rows: SelectQueryBuilder<Schema, 'jobs', JobRow>,
): Promise<Job | undefined> {
  const row = await rows.executeTakeFirst();
  return row === undefined ? undefined : jobFromRow(row);
}

export async function readJob(
  database: Database,
  db: Kysely<Schema>,
  jobId: string,
): Promise<Job | undefined> {
  return firstJob(selectJobs(database, db).where('id', '=', jobId));
}

export class JobQueries {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async find(jobId: string): Promise<Job | undefined> {
    if (!ID.test(jobId)) return undefined;
    return query(this.#database, db => readJob(this.#database, db, jobId));
  }

  async findForKey(jobId: string, apiKeyId: string): Promise<Job | undefined> {
    if (!ID.test(jobId)) return undefined;
    return query(this.#database, db =>
      firstJob(
        selectJobs(this.#database, db).where('id', '=', jobId).where('api_key_id', '=', apiKeyId),
      ),
    );
  }

  async findByIdempotencyKey(apiKeyId: string, hash: string): Promise<Job | undefined> {
    if (!HASH.test(hash)) return undefined;
    return query(this.#database, db =>
      firstJob(
        selectJobs(this.#database, db)
          .where('api_key_id', '=', apiKeyId)
          .where('idempotency_key_hash', '=', hash),
      ),
    );
  }

  async findByResultToken(token: string): Promise<Job | undefined> {
    if (!TOKEN.test(token)) return undefined;
    return query(this.#database, db =>
      firstJob(selectJobs(this.#database, db).where('result_token', '=', token)),
    );
  }
}
