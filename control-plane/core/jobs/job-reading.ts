/**
 * Reads of jobs. Each row comes with the database's clock, by which its expiry is judged.
 *
 * Lists go a page at a time: open jobs by their place in the queue, then final ones, the latest
 * first. Each statement walks an index and stops: final jobs in jobs_state_finished or
 * jobs_account_finished or jobs_key_finished, one walk a state; open ones in jobs_queue, OPEN_PAGE
 * of a class at a time, since their number is bounded (core/dispatch/queue-share.ts) and states and
 * accounts lie mixed in it. Those of an account are read at once from jobs_lane_state: it has no
 * more than may be in flight.
 */
import { hash } from 'node:crypto';
import { setImmediate as turnOfTheLoop } from 'node:timers/promises';
import { type CompiledQuery, type NotNull, sql } from 'kysely';
import { type Database, type Db, query, type Schema } from '../../database/database.ts';
import { isAsciiWord, keepStatement, throughIndex } from '../../database/statements.ts';
import { JOB_CLASSES, type Job, type JobClass, type JobState, OPEN_STATES } from './job.ts';
import { type JobRow, jobFromRow } from './job-rows.ts';

/** What callers send as an id or token: anything else matches nothing, and is not asked for. */
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const TOKEN = /^[A-Za-z0-9_-]{1,64}$/;
const HASH = /^[0-9a-f]{64}$/;

const JOBS = sql<Schema['jobs']>`jobs`;
const JOBS_BY_ANY = { sqlite: JOBS.as<'jobs'>(sql`jobs`), mysql: JOBS.as<'jobs'>(sql`jobs`) };

/** All of a job's columns and `read_at`; `db` is the database or a transaction of it. */
function selectJobs(database: Database, db: Db, jobs = JOBS_BY_ANY) {
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
async function readJobs(db: Db, select: JobRows): Promise<Job[]> {
  const rows = await select.execute();
  const notified = rows.filter(row => row.callback_url !== null && row.finished_at !== null);
  if (notified.length === 0) return rows.map(row => jobFromRow(row));
  const notifications = await db
    .selectFrom('outbox')
    .select(['id', 'status', 'attempts', 'last_status_code', 'last_attempt_at', 'next_attempt_at'])
    .where(
      'id',
      'in',
      notified.map(row => row.id),
    )
    .execute();
  const byJob = new Map(notifications.map(row => [row.id, row]));
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
function kept(db: Db, statement: CompiledQuery<JobRow>): JobRows {
  return { execute: async () => (await db.executeQuery(statement)).rows };
}

async function firstJob(db: Db, statement: CompiledQuery<JobRow>): Promise<Job | undefined> {
  return (await readJobs(db, kept(db, statement)))[0];
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

/** Which jobs are wanted, for the operator or an account. */
export interface JobFilter {
  /** open: by their place in the queue. final: the latest to end first. */
  readonly states: readonly JobState[];
  readonly accountId?: string | undefined;
  /** Of this key alone; only with its account. */
  readonly apiKeyId?: string | undefined;
  /** How long ago final jobs may have ended. */
  readonly endedWithinMs: number;
  readonly limit: number;
  /** `cursor` of the last job of the page before; absent: from the beginning. */
  readonly after?: string | undefined;
}

export type OpenJob = Pick<Job, 'id' | 'state' | 'createdAtMs'>;

export interface ListedJob extends Job {
  /** Its place in the list: `JobFilter.after` goes on behind it, whatever became of it since. */
  readonly cursor: string;
}

export function jobReading(database: Database) {
  return {
    async find(jobId: string): Promise<Job | undefined> {
      if (!ID.test(jobId)) return undefined;
      return query(database, db => readJob(database, db, jobId));
    },
    /** Those among them that are final. */
    async findFinal(jobIds: readonly string[]): Promise<Job[]> {
      const ids = jobIds.filter(id => ID.test(id));
      if (ids.length === 0) return [];
      return query(database, db => {
        const [jobId = ''] = ids;
        if (ids.length === 1) return readJobs(db, kept(db, FINAL_BY_ID(database, { jobId })));
        const select = selectJobs(database, db).where('id', 'in', ids);
        return readJobs(db, select.where('finished_at', 'is not', null));
      });
    },
    /** Undefined also for another key's job. */
    async findForKey(jobId: string, apiKeyId: string): Promise<Job | undefined> {
      if (!ID.test(jobId)) return undefined;
      return query(database, db => firstJob(db, BY_ID_AND_KEY(database, { jobId, apiKeyId })));
    },
    async findByIdempotencyKey(apiKeyId: string, hash: string): Promise<Job | undefined> {
      if (!HASH.test(hash)) return undefined;
      return query(database, db => readByIdempotencyKey(database, db, apiKeyId, hash));
    },
    /** By the link's token; expired ones too. */
    async findByResultToken(token: string): Promise<Job | undefined> {
      if (!TOKEN.test(token)) return undefined;
      const hashed = hash('sha256', token, 'hex');
      return query(database, db => firstJob(db, BY_RESULT_TOKEN(database, { hashed })));
    },
    openOf: (accountId: string, limit: number) => openOf(database, accountId, limit),
    /** Open jobs in the order of the queue, then final ones, the latest first. */
    async list(filter: JobFilter): Promise<ListedJob[]> {
      const open = filter.states.filter(isOpen);
      const final = filter.states.filter(state => !isOpen(state));
      const after = placeOf(filter.after ?? '');
      const begun = after?.part === 'ended' ? [] : await listOpen(database, open, filter, after);
      if (final.length === 0 || begun.length === filter.limit) return begun;
      const room = { ...filter, limit: filter.limit - begun.length };
      const since = after?.part === 'ended' ? after : undefined;
      return [...begun, ...(await listFinal(database, final, room, since))];
    },
  };
}

/** Entries of the index that are looked at: of more open jobs than that, any of them. */
const LOOKED_AT_MAX = 200;

/** Open jobs of an account, the oldest first; where it has hundreds, of some of them. */
async function openOf(database: Database, accountId: string, limit: number): Promise<OpenJob[]> {
  if (!isAsciiWord(accountId)) return [];
  const rows = await query(database, db =>
    db
      .selectFrom(JOBS_BY_LANE[database.dialect])
      .select(['id', 'state', 'created_at as createdAtMs'])
      .where('account_id', '=', accountId)
      .where('state', 'in', OPEN_STATES)
      .limit(LOOKED_AT_MAX)
      .execute(),
  );
  return rows.sort((one, other) => one.createdAtMs - other.createdAtMs).slice(0, limit);
}

/** Rows of the queue that one statement reads: about a millisecond on SQLite. */
const OPEN_PAGE = 500;
const JOBS_BY_END = throughIndex('jobs', 'jobs_state_finished');
const JOBS_BY_ACCOUNT_AND_END = throughIndex('jobs', 'jobs_account_finished');
const JOBS_BY_KEY_AND_END = throughIndex('jobs', 'jobs_key_finished');
const JOBS_BY_LANE = throughIndex('jobs', 'jobs_lane_state');
/** Jobs read whole in one statement. */
const READ_MAX = 100;

/** The parts of a list in their order: what is paid for, the playground, what has ended. */
const PARTS = ['open', 'unpaid', 'ended'] as const;
const CURSOR = /^(open|unpaid|ended)-(\d{1,15})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

interface Place {
  readonly part: (typeof PARTS)[number];
  /** queue_at, or finished_at of an ended one. */
  readonly atMs: number;
  readonly id: string;
}

/** True for what `ListedJob.cursor` may be. */
export function isJobCursor(text: string): boolean {
  return CURSOR.test(text);
}

function placeOf(cursor: string): Place | undefined {
  const [, part, atMs, id] = CURSOR.exec(cursor) ?? [];
  return id === undefined ? undefined : { part: part as Place['part'], atMs: Number(atMs), id };
}

function cursorOf({ part, atMs, id }: Place): string {
  return `${part}-${atMs}-${id}`;
}

type EndedJob = Job & { readonly finishedAtMs: number };

function hasEnded(job: Job): job is EndedJob {
  return job.finishedAtMs !== null;
}

function isOpen(state: JobState): boolean {
  return (OPEN_STATES as readonly JobState[]).includes(state);
}

async function listOpen(
  database: Database,
  states: readonly JobState[],
  filter: JobFilter,
  after: Place | undefined,
): Promise<ListedJob[]> {
  const { accountId, limit } = filter;
  if (accountId !== undefined) {
    const places = await openOfAccount(database, states, { ...filter, accountId });
    const rest = places.filter(place => after === undefined || comparePlaces(place, after) > 0);
    return readOpen(database, rest.slice(0, limit));
  }
  const found: Place[] = [];
  let last = after;
  while (states.length > 0 && found.length < limit) {
    const page = await openPage(database, last);
    found.push(...page.filter(row => states.includes(row.state)));
    const end = page.at(-1);
    if (end === undefined || page.length < OPEN_PAGE) break;
    last = end;
    await turnOfTheLoop();
  }
  return readOpen(database, found.slice(0, limit));
}

/** The first of all classes by their places. */
async function openPage(database: Database, after: Place | undefined): Promise<OpenRow[]> {
  const rows: OpenRow[] = [];
  for (const jobClass of JOB_CLASSES) rows.push(...(await classPage(database, jobClass, after)));
  return rows.sort(comparePlaces).slice(0, OPEN_PAGE);
}

function partOf(jobClass: JobClass): Place['part'] {
  return jobClass === 'playground' ? 'unpaid' : 'open';
}

function comparePlaces(a: Place, b: Place): number {
  const byPart = PARTS.indexOf(a.part) - PARTS.indexOf(b.part);
  return byPart || a.atMs - b.atMs || (a.id === b.id ? 0 : a.id < b.id ? -1 : 1);
}

/** In the queue's order. */
async function openOfAccount(
  database: Database,
  states: readonly JobState[],
  { accountId, apiKeyId }: JobFilter & { readonly accountId: string },
): Promise<Place[]> {
  if (states.length === 0) return [];
  const rows = await query(database, db => {
    const open = db
      .selectFrom(JOBS_BY_LANE[database.dialect])
      .select(['id', 'class', 'queue_at'])
      .where('state', 'in', states)
      .where('account_id', '=', accountId)
      .where('queue_at', 'is not', null);
    const some = apiKeyId === undefined ? open : open.where('api_key_id', '=', apiKeyId);
    return some.$narrowType<{ queue_at: NotNull }>().execute();
  });
  return rows
    .map(row => ({ part: partOf(row.class), atMs: row.queue_at, id: row.id }))
    .sort(comparePlaces);
}

interface OpenRow extends Place {
  readonly state: JobState;
}

async function classPage(database: Database, jobClass: JobClass, after: Place | undefined) {
  const part = partOf(jobClass);
  if (after?.part === 'unpaid' && part === 'open') return [];
  const { atMs, id } = after?.part === part ? after : BEFORE_ALL;
  const rows = await query(database, db =>
    db
      .selectFrom('jobs')
      .select(['id', 'queue_at as atMs', 'state'])
      .where('class', '=', jobClass)
      // "is not null" would keep SQLite from walking the index in order.
      .where('queue_at', '>=', atMs)
      .where(eb => eb.or([eb('queue_at', '>', atMs), eb('id', '>', id)]))
      .orderBy('queue_at')
      .orderBy('id')
      .limit(OPEN_PAGE)
      .$narrowType<{ atMs: NotNull }>()
      .execute(),
  );
  return rows.map(row => ({ ...row, part }));
}

const BEFORE_ALL = { atMs: 0, id: '' };

/** Those that have ended meanwhile are listed as they are now. */
async function readOpen(database: Database, places: readonly Place[]): Promise<ListedJob[]> {
  const jobs = new Map<string, Job>();
  for (let from = 0; from < places.length; from += READ_MAX) {
    const ids = places.slice(from, from + READ_MAX).map(({ id }) => id);
    const read = await query(database, db =>
      readJobs(db, selectJobs(database, db).where('id', 'in', ids)),
    );
    for (const job of read) jobs.set(job.id, job);
    await turnOfTheLoop();
  }
  return places.flatMap(place => {
    const job = jobs.get(place.id);
    return job === undefined ? [] : [{ ...job, cursor: cursorOf(place) }];
  });
}

async function listFinal(
  database: Database,
  states: readonly JobState[],
  filter: JobFilter,
  after: Place | undefined,
): Promise<ListedJob[]> {
  const jobs: EndedJob[] = [];
  for (const state of states) jobs.push(...(await listEnded(database, state, filter, after)));
  jobs.sort((a, b) => b.finishedAtMs - a.finishedAtMs || (a.id < b.id ? 1 : -1));
  return jobs.slice(0, filter.limit).map(job => ({ ...job, cursor: cursorOf(endOf(job)) }));
}

/**
 * Its end is found by the program: a lower bound in the statement as well makes the two indexes
 * look alike to SQLite where it has no statistics.
 */
async function listEnded(
  database: Database,
  state: JobState,
  { accountId, apiKeyId, endedWithinMs, limit }: JobFilter,
  after: Place | undefined,
): Promise<EndedJob[]> {
  const found: EndedJob[] = [];
  let last = after;
  while (found.length < limit) {
    const take = Math.min(READ_MAX, limit - found.length);
    const page = await query(database, db => {
      const ofAll = accountId === undefined ? JOBS_BY_END : JOBS_BY_ACCOUNT_AND_END;
      const jobs = apiKeyId === undefined ? ofAll : JOBS_BY_KEY_AND_END;
      let select = selectJobs(database, db, jobs).where('state', '=', state);
      if (apiKeyId !== undefined) select = select.where('api_key_id', '=', apiKeyId);
      if (accountId !== undefined) select = select.where('account_id', '=', accountId);
      if (last !== undefined) {
        const { atMs, id } = last;
        select = select
          .where('finished_at', '<=', atMs)
          .where(eb => eb.or([eb('finished_at', '<', atMs), eb('id', '<', id)]));
      }
      return readJobs(db, select.orderBy('finished_at', 'desc').orderBy('id', 'desc').limit(take));
    });
    const ended = page.filter(hasEnded);
    const within = ended.filter(job => job.finishedAtMs > job.readAtMs - endedWithinMs);
    found.push(...within);
    const end = ended.at(-1);
    if (end === undefined || within.length < take) break;
    last = endOf(end);
    await turnOfTheLoop();
  }
  return found;
}

function endOf({ finishedAtMs, id }: EndedJob): Place {
  return { part: 'ended', atMs: finishedAtMs, id };
}
