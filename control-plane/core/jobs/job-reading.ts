import { hash } from 'node:crypto';
import { type Database, type Db, query } from '@matting/database/database.ts';
import { keepStatement } from '@matting/database/statements.ts';
import type { CompiledQuery } from 'kysely';
import type { Job } from './job.ts';
import { type JobRow, readJobs, selectJobs } from './job-rows.ts';

/** Callers may send other text, for which no query runs. */
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const TOKEN = /^[A-Za-z0-9_-]{1,64}$/;

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

async function runKept(db: Db, statement: CompiledQuery<JobRow>): Promise<JobRow[]> {
  return (await db.executeQuery(statement)).rows;
}

async function firstJob(db: Db, statement: CompiledQuery<JobRow>): Promise<Job | undefined> {
  return (await readJobs(db, runKept(db, statement)))[0];
}

export async function readJob(database: Database, db: Db, jobId: string): Promise<Job | undefined> {
  return firstJob(db, BY_ID(database, { jobId }));
}

export async function readByIdempotencyKey(
  database: Database,
  db: Db,
  apiKeyId: string,
  hash: string,
): Promise<Job | undefined> {
  return firstJob(db, BY_IDEMPOTENCY_KEY(database, { apiKeyId, hash }));
}

export function jobReading(database: Database) {
  return {
    async find(jobId: string): Promise<Job | undefined> {
      if (!ID.test(jobId)) return undefined;
      return query(database, db => readJob(database, db, jobId));
    },
    async findFinal(jobIds: readonly string[]): Promise<Job[]> {
      const ids = jobIds.filter(id => ID.test(id));
      if (ids.length === 0) return [];
      return query(database, db => {
        const [jobId = ''] = ids;
        if (ids.length === 1) return readJobs(db, runKept(db, FINAL_BY_ID(database, { jobId })));
        const select = selectJobs(database, db).where('id', 'in', ids);
        return readJobs(db, select.where('finished_at', 'is not', null).execute());
      });
    },
    async findForKey(jobId: string, apiKeyId: string): Promise<Job | undefined> {
      if (!ID.test(jobId)) return undefined;
      return query(database, db => firstJob(db, BY_ID_AND_KEY(database, { jobId, apiKeyId })));
    },
    async findByResultToken(token: string): Promise<Job | undefined> {
      if (!TOKEN.test(token)) return undefined;
      const hashed = hash('sha256', token, 'hex');
      return query(database, db => firstJob(db, BY_RESULT_TOKEN(database, { hashed })));
    },
  };
}
