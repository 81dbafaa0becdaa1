/**
 * Lists the jobs of an API key, the newest first. A page is one walk along an index over READ_MAX
 * jobs at most, so even a page before the last may have fewer jobs than its limit, or none.
 */
import { type Database, type Db, query } from '@matting/database/database.ts';
import { throughIndex } from '@matting/database/statements.ts';
import { type JobState, type PublicJobState, publicState } from '@matting/queue/job.ts';
import type { Job, ViewedJob } from './job.ts';
import { readViewed, selectViewed } from './job-rows.ts';

export const CALLER_JOBS_MAX = 100;
const READ_MAX = 500;

const STATES: Readonly<Record<PublicJobState, readonly JobState[]>> = {
  queued: ['accepted', 'fetching', 'ready'],
  processing: ['running'],
  succeeded: ['succeeded'],
  failed: ['failed'],
  expired: ['succeeded'],
};
export const LISTED_STATES = Object.keys(STATES) as readonly PublicJobState[];
const ALL = [...new Set(Object.values(STATES).flat())];

export interface CallerJobFilter {
  readonly apiKeyId: string;
  readonly status?: PublicJobState | undefined;
  readonly reference?: string | undefined;
  /** 1 to CALLER_JOBS_MAX. */
  readonly limit: number;
  /** `next` of the previous page; absent: the first page. */
  readonly after?: string | undefined;
}

const CURSOR = /^(\d{1,15})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

export function isCallerCursor(text: string): boolean {
  return CURSOR.test(text);
}

interface JobSearch {
  readonly accountId: string;
  /** Keys whose jobs are searched by reference. */
  readonly apiKeyIds: readonly string[];
  /** A reference, or at least the first eight digits of an id. */
  readonly text: string;
  /** If more jobs match, any of them. */
  readonly limit: number;
}

export function callerJobs(database: Database) {
  return {
    search: (request: JobSearch) => search(database, request),
    async listOfKey(filter: CallerJobFilter) {
      const { status, reference, limit } = filter;
      // The clock decides these states, and a server may ignore trailing spaces in texts.
      const isFiltered = status === 'succeeded' || status === 'expired' || reference !== undefined;
      const readMax = isFiltered ? READ_MAX : limit + 1;
      const newest = await query(database, db => readNewest(database, db, filter, readMax));
      const fits = (job: Pick<Job, 'reference'> & Parameters<typeof publicState>[0]) =>
        (status === undefined || publicState(job) === status) &&
        (reference === undefined || job.reference === reference);
      const found = newest.filter(fits).slice(0, limit);
      const last = found.length === limit ? found.at(-1) : newest.at(-1);
      const isLast = last === newest.at(-1) && newest.length < readMax;
      const jobs = await readAll(database, found);
      return {
        jobs: jobs.filter(fits),
        next: last === undefined || isLast ? null : `${last.createdAtMs}-${last.id}`,
      };
    },
  };
}

const BY_STATE = throughIndex('jobs', 'jobs_key_created');
const BY_REFERENCE = throughIndex('jobs', 'jobs_key_reference');

const ID_BEGINS = /^[0-9a-f]{8}[0-9a-f-]{0,28}$/;

async function search(
  database: Database,
  { accountId, apiKeyIds, text, limit }: JobSearch,
): Promise<ViewedJob[]> {
  const id = text.toLowerCase();
  const byReference = await query(database, db =>
    db
      .selectFrom(BY_REFERENCE[database.dialect])
      .select('id')
      .where('api_key_id', 'in', apiKeyIds)
      .where('reference', '=', text)
      .limit(limit)
      .execute(),
  );
  const byId = ID_BEGINS.test(id) ? await beginningWith(database, id, accountId, limit) : [];
  const found = await readAll(database, [...byId, ...byReference]);
  return found.sort((a, b) => b.createdAtMs - a.createdAtMs).slice(0, limit);
}

/** Filters by account afterwards: SQLite without statistics would not use the primary key. */
async function beginningWith(database: Database, id: string, accountId: string, limit: number) {
  const rows = await query(database, db =>
    db
      .selectFrom('jobs')
      .select(['id', 'account_id as ofAccount'])
      .where('id', '>=', id)
      // `g` sorts after every digit of an id.
      .where('id', '<', `${id}g`)
      .limit(limit)
      .execute(),
  );
  return rows.filter(({ ofAccount }) => ofAccount === accountId);
}

async function readNewest(database: Database, db: Db, filter: CallerJobFilter, readMax: number) {
  const { apiKeyId, status, reference, after = '' } = filter;
  const [, atMs, afterId = ''] = CURSOR.exec(after) ?? [];
  const walk = (state?: JobState) => {
    let jobs = db
      .selectFrom((reference === undefined ? BY_STATE : BY_REFERENCE)[database.dialect])
      .select(['id', 'state', 'reference', 'created_at as createdAtMs'])
      .select(['expires_at as expiresAtMs', 'deleted_at as deletedAtMs'])
      .select(database.nowMs.as('readAtMs'))
      .where('api_key_id', '=', apiKeyId);
    if (state !== undefined) jobs = jobs.where('state', '=', state);
    if (reference !== undefined) jobs = jobs.where('reference', '=', reference);
    if (atMs !== undefined) {
      const at = Number(atMs);
      jobs = jobs
        .where('created_at', '<=', at)
        .where(eb => eb.or([eb('created_at', '<', at), eb('id', '<', afterId)]));
    }
    const first = jobs.orderBy('created_at', 'desc').orderBy('id', 'desc').limit(readMax);
    // SQLite takes no order and limit in a part of a union.
    return db.selectFrom(first.as('newest')).selectAll();
  };
  const states = status === undefined ? ALL : STATES[status];
  const walks = reference === undefined ? states.map(walk) : [walk()];
  const rows = await walks.reduce((union, next) => union.unionAll(next)).execute();
  return rows
    .sort((a, b) => b.createdAtMs - a.createdAtMs || (a.id < b.id ? 1 : -1))
    .slice(0, readMax);
}

async function readAll(database: Database, found: readonly { readonly id: string }[]) {
  const ids = found.map(({ id }) => id);
  if (ids.length === 0) return [];
  const jobs = await query(database, db =>
    readViewed(db, selectViewed(database, db).where('id', 'in', ids).execute()),
  );
  const byId = new Map(jobs.map(job => [job.id, job]));
  return ids.flatMap(id => byId.get(id) ?? []);
}
