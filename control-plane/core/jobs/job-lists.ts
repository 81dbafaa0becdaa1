/**
 * Lists jobs: open ones in the queue's order, then final ones, the latest first. Every statement
 * walks one index:
 *
 * - final jobs: jobs_state_finished, jobs_account_finished or jobs_key_finished, state by state
 * - jobs that need a look: jobs_look
 * - open jobs: jobs_queue, which mixes states and accounts, OPEN_PAGE of a class at a time
 * - open jobs of an account, which are bounded: jobs_lane_state, all at once
 */
import { type Database, query } from '@matting/database/database.ts';
import { isAsciiWord, throughIndex } from '@matting/database/statements.ts';
import { yieldToEventLoop } from '@matting/program/event-loop.ts';
import {
  isFinal,
  JOB_CLASSES,
  type JobClass,
  type JobState,
  OPEN_STATES,
} from '@matting/queue/job.ts';
import type { NotNull } from 'kysely';
import type { Job } from './job.ts';
import { readJobs, selectJobs } from './job-rows.ts';

interface JobFilter {
  readonly states: readonly JobState[];
  /** Only results that need a look. */
  readonly look?: boolean;
  readonly accountId?: string | undefined;
  readonly apiKeyId?: string | undefined;
  readonly endedWithinMs: number;
  readonly limit: number;
  /** `cursor` of the previous page's last job. */
  readonly after?: string | undefined;
}

type OpenJob = Pick<Job, 'id' | 'state' | 'createdAtMs'>;

interface JobWithCursor extends Job {
  readonly cursor: string;
}

export function jobLists(database: Database) {
  return {
    openOf: (accountId: string, limit: number) => openOf(database, accountId, limit),
    async list(filter: JobFilter): Promise<JobWithCursor[]> {
      if (filter.look) return listLooks(database, filter);
      const final = filter.states.filter(state => isFinal({ state }));
      const open = filter.states.filter(state => !isFinal({ state }));
      const after = parseCursor(filter.after ?? '');
      const begun = after?.part === 'ended' ? [] : await listOpen(database, open, filter, after);
      if (final.length === 0 || begun.length === filter.limit) return begun;
      const room = { ...filter, limit: filter.limit - begun.length };
      const since = after?.part === 'ended' ? after : undefined;
      return [...begun, ...(await listFinal(database, final, room, since))];
    },
  };
}

/** If an account has more open jobs, any of them. */
const OPEN_READ_MAX = 200;

async function openOf(database: Database, accountId: string, limit: number): Promise<OpenJob[]> {
  if (!isAsciiWord(accountId)) return [];
  const rows = await query(database, db =>
    db
      .selectFrom(JOBS_BY_LANE[database.dialect])
      .select(['id', 'state', 'created_at as createdAtMs'])
      .where('account_id', '=', accountId)
      .where('state', 'in', OPEN_STATES)
      .limit(OPEN_READ_MAX)
      .execute(),
  );
  return rows.sort((one, other) => one.createdAtMs - other.createdAtMs).slice(0, limit);
}

/** Rows that one statement reads: about a millisecond on SQLite. */
const OPEN_PAGE = 500;
const JOBS_BY_END = throughIndex('jobs', 'jobs_state_finished');
const JOBS_BY_ACCOUNT_AND_END = throughIndex('jobs', 'jobs_account_finished');
const JOBS_BY_KEY_AND_END = throughIndex('jobs', 'jobs_key_finished');
const JOBS_BY_LOOK = throughIndex('jobs', 'jobs_look');
const JOBS_BY_LANE = throughIndex('jobs', 'jobs_lane_state');
const READ_MAX = 100;

const CURSOR = /^(open|ended|look)-(\d{1,15})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

interface Cursor {
  readonly part: 'open' | 'ended' | 'look';
  /** queue_at, finished_at or look_until. */
  readonly atMs: number;
  readonly id: string;
}

export function isJobCursor(text: string): boolean {
  return CURSOR.test(text);
}

function parseCursor(cursor: string): Cursor | undefined {
  const [, part, atMs, id] = CURSOR.exec(cursor) ?? [];
  return id === undefined ? undefined : { part: part as Cursor['part'], atMs: Number(atMs), id };
}

function cursorOf({ part, atMs, id }: Cursor): string {
  return `${part}-${atMs}-${id}`;
}

type EndedJob = Job & { readonly finishedAtMs: number };

async function listOpen(
  database: Database,
  states: readonly JobState[],
  filter: JobFilter,
  after: Cursor | undefined,
): Promise<JobWithCursor[]> {
  const { accountId, limit } = filter;
  if (accountId !== undefined) {
    const cursors = await openOfAccount(database, states, { ...filter, accountId });
    const rest = cursors.filter(cursor => after === undefined || compareCursors(cursor, after) > 0);
    return readOpen(database, rest.slice(0, limit));
  }
  const found: Cursor[] = [];
  let last = after;
  while (states.length > 0 && found.length < limit) {
    const page = await openPage(database, last);
    found.push(...page.filter(row => states.includes(row.state)));
    const end = page.at(-1);
    if (end === undefined || page.length < OPEN_PAGE) break;
    last = end;
    await yieldToEventLoop();
  }
  return readOpen(database, found.slice(0, limit));
}

async function openPage(database: Database, after: Cursor | undefined) {
  const rows: Awaited<ReturnType<typeof classPage>> = [];
  for (const jobClass of JOB_CLASSES) rows.push(...(await classPage(database, jobClass, after)));
  return rows.sort(compareCursors).slice(0, OPEN_PAGE);
}

function compareCursors(a: Cursor, b: Cursor): number {
  return a.atMs - b.atMs || (a.id === b.id ? 0 : a.id < b.id ? -1 : 1);
}

async function openOfAccount(
  database: Database,
  states: readonly JobState[],
  { accountId, apiKeyId }: JobFilter & { readonly accountId: string },
): Promise<Cursor[]> {
  if (states.length === 0) return [];
  const rows = await query(database, db => {
    const open = db
      .selectFrom(JOBS_BY_LANE[database.dialect])
      .select(['id', 'queue_at'])
      .where('state', 'in', states)
      .where('account_id', '=', accountId)
      .where('queue_at', 'is not', null);
    const some = apiKeyId === undefined ? open : open.where('api_key_id', '=', apiKeyId);
    return some.$narrowType<{ queue_at: NotNull }>().execute();
  });
  return rows
    .map(row => ({ part: 'open' as const, atMs: row.queue_at, id: row.id }))
    .sort(compareCursors);
}

async function classPage(database: Database, jobClass: JobClass, after: Cursor | undefined) {
  const { atMs, id } = after ?? { atMs: 0, id: '' };
  const rows = await query(database, db =>
    db
      .selectFrom('jobs')
      .select(['id', 'queue_at as atMs', 'state'])
      .where('class', '=', jobClass)
      // With "is not null" SQLite would not walk the index in order.
      .where('queue_at', '>=', atMs)
      .where(eb => eb.or([eb('queue_at', '>', atMs), eb('id', '>', id)]))
      .orderBy('queue_at')
      .orderBy('id')
      .limit(OPEN_PAGE)
      .$narrowType<{ atMs: NotNull }>()
      .execute(),
  );
  return rows.map(row => ({ ...row, part: 'open' as const }));
}

async function readOpen(database: Database, cursors: readonly Cursor[]): Promise<JobWithCursor[]> {
  const jobs = new Map<string, Job>();
  for (let from = 0; from < cursors.length; from += READ_MAX) {
    const ids = cursors.slice(from, from + READ_MAX).map(({ id }) => id);
    const read = await query(database, db =>
      readJobs(db, selectJobs(database, db).where('id', 'in', ids).execute()),
    );
    for (const job of read) jobs.set(job.id, job);
    await yieldToEventLoop();
  }
  return cursors.flatMap(cursor => {
    const job = jobs.get(cursor.id);
    return job === undefined ? [] : [{ ...job, cursor: cursorOf(cursor) }];
  });
}

async function listFinal(
  database: Database,
  states: readonly JobState[],
  filter: JobFilter,
  after: Cursor | undefined,
): Promise<JobWithCursor[]> {
  const jobs: EndedJob[] = [];
  for (const state of states) jobs.push(...(await listEnded(database, state, filter, after)));
  jobs.sort((a, b) => b.finishedAtMs - a.finishedAtMs || (a.id < b.id ? 1 : -1));
  return jobs.slice(0, filter.limit).map(job => ({ ...job, cursor: cursorOf(endOf(job)) }));
}

async function listLooks(
  database: Database,
  { accountId = '', apiKeyId, limit, after: cursor = '' }: JobFilter,
): Promise<JobWithCursor[]> {
  const after = parseCursor(cursor);
  const jobs = await query(database, db => {
    let select = selectJobs(database, db, JOBS_BY_LOOK)
      .where('account_id', '=', accountId)
      .where('look_until', '>', database.nowMs);
    if (apiKeyId !== undefined) select = select.where('api_key_id', '=', apiKeyId);
    if (after !== undefined) {
      const { atMs, id } = after;
      select = select
        .where('look_until', '<=', atMs)
        .where(eb => eb.or([eb('look_until', '<', atMs), eb('id', '<', id)]));
    }
    const ordered = select.orderBy('look_until', 'desc').orderBy('id', 'desc');
    return readJobs(db, ordered.limit(limit).execute());
  });
  return jobs.map(job => {
    return { ...job, cursor: cursorOf({ part: 'look', atMs: job.lookUntilMs ?? 0, id: job.id }) };
  });
}

/** With a lower bound in the statement, SQLite without statistics would take another index. */
async function listEnded(
  database: Database,
  state: JobState,
  { accountId, apiKeyId, endedWithinMs, limit }: JobFilter,
  after: Cursor | undefined,
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
      const ordered = select.orderBy('finished_at', 'desc').orderBy('id', 'desc');
      return readJobs(db, ordered.limit(take).execute());
    });
    const ended = page.filter((job): job is EndedJob => job.finishedAtMs !== null);
    const within = ended.filter(job => job.finishedAtMs > job.readAtMs - endedWithinMs);
    found.push(...within);
    const end = ended.at(-1);
    if (end === undefined || within.length < take) break;
    last = endOf(end);
    await yieldToEventLoop();
  }
  return found;
}

function endOf({ finishedAtMs, id }: Pick<EndedJob, 'finishedAtMs' | 'id'>): Cursor {
  return { part: 'ended', atMs: finishedAtMs, id };
}
