/**
 * Jobs for the operator, a page at a time: open ones by their place in the queue, then final ones,
 * the latest first. Each statement walks an index and stops: final jobs in jobs_state_finished or
 * jobs_account_finished or jobs_key_finished, one walk a state; open ones in jobs_queue_lanes,
 * OPEN_PAGE at a time, since their number is bounded (domain/queue-share.ts) and states and
 * accounts lie mixed in it. Those of an account are read at once from jobs_lane_state: it has no
 * more than may be in flight.
 */
import { setImmediate as turnOfTheLoop } from 'node:timers/promises';
import type { NotNull } from 'kysely';
import { type Job, type JobState, OPEN_STATES } from '../../domain/job.ts';
import type { Database } from '../database/connect.ts';
import { throughIndex } from '../database/through-index.ts';
import { query } from '../database/transact.ts';
import { readJobs, selectJobs } from './job-queries.ts';
import type { JobFilter, JobStore, ListedJob } from './job-store.ts';
import {
  COMPARED_WITH_ZERO,
  positionOf,
  QUEUE_RANGES,
  type QueueRange,
  queueShiftMs,
} from './queue-range.ts';

/** Rows of the queue that one statement reads: about a millisecond on SQLite. */
const OPEN_PAGE = 500;
const JOBS_BY_END = throughIndex('jobs', 'jobs_state_finished');
const JOBS_BY_ACCOUNT_AND_END = throughIndex('jobs', 'jobs_account_finished');
const JOBS_BY_KEY_AND_END = throughIndex('jobs', 'jobs_key_finished');
const JOBS_BY_LANE = throughIndex('jobs', 'jobs_lane_state');
/** Jobs read whole in one statement. */
const READ_MAX = 100;

const CURSOR = /^(open|ended)-(\d{1,15})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

interface Place {
  /** Its place in the queue, or finished_at. */
  readonly atMs: number;
  readonly id: string;
}

/** True for what `ListedJob.cursor` may be. */
export function isJobCursor(text: string): boolean {
  return CURSOR.test(text);
}

export function jobListing(database: Database): Pick<JobStore, 'list'> {
  return {
    async list(filter) {
      const open = filter.states.filter(isOpen);
      const final = filter.states.filter(state => !isOpen(state));
      const [, part, atMs, id] = CURSOR.exec(filter.after ?? '') ?? [];
      const after = id === undefined ? undefined : { atMs: Number(atMs), id };
      const begun = part === 'ended' ? [] : await listOpen(database, open, filter, after);
      if (final.length === 0 || begun.length === filter.limit) return begun;
      const room = { ...filter, limit: filter.limit - begun.length };
      const since = part === 'ended' ? after : undefined;
      return [...begun, ...(await listFinal(database, final, room, since))];
    },
  };
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
    const wanted = page.filter(row => states.includes(row.state));
    found.push(...wanted.map(({ atMs, id }) => ({ atMs, id })));
    const end = page.at(-1);
    if (end === undefined || page.length < OPEN_PAGE) break;
    last = end;
    await turnOfTheLoop();
  }
  return readOpen(database, found.slice(0, limit));
}

/** The first of all ranges of the queue (queue-range.ts) by their places. */
async function openPage(database: Database, after: Place | undefined): Promise<OpenRow[]> {
  const rows: OpenRow[] = [];
  for (const range of QUEUE_RANGES) {
    const page = await rangePage(database, range, after);
    rows.push(...page.map(({ queue_at, ...row }) => ({ ...row, atMs: positionOf(queue_at) })));
  }
  return rows.sort(comparePlaces).slice(0, OPEN_PAGE);
}

function comparePlaces(a: Place, b: Place): number {
  return a.atMs - b.atMs || (a.id === b.id ? 0 : a.id < b.id ? -1 : 1);
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
      .select(['id', 'queue_at'])
      .where('state', 'in', states)
      .where('account_id', '=', accountId)
      .where('queue_at', 'is not', null);
    const some = apiKeyId === undefined ? open : open.where('api_key_id', '=', apiKeyId);
    return some.$narrowType<{ queue_at: NotNull }>().execute();
  });
  return rows.map(({ id, queue_at }) => ({ id, atMs: positionOf(queue_at) })).sort(comparePlaces);
}

interface OpenRow extends Place {
  readonly state: JobState;
}

function rangePage(database: Database, range: QueueRange, after: Place | undefined) {
  return query(database, db => {
    let page = db.selectFrom('jobs').select(['id', 'queue_at', 'state']);
    // "is not null" would keep SQLite from walking the index in order.
    page = page.where('queue_at', COMPARED_WITH_ZERO[range], 0);
    if (after !== undefined) {
      const { id } = after;
      const at = after.atMs + queueShiftMs(range);
      page = page
        .where('queue_at', '>=', at)
        .where(eb => eb.or([eb('queue_at', '>', at), eb('id', '>', id)]));
    }
    page = page.orderBy('queue_at').orderBy('id').limit(OPEN_PAGE);
    return page.$narrowType<{ queue_at: NotNull }>().execute();
  });
}

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
  return places.flatMap(({ atMs, id }) => {
    const job = jobs.get(id);
    return job === undefined ? [] : [{ ...job, cursor: `open-${atMs}-${id}` }];
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
  return jobs
    .slice(0, filter.limit)
    .map(job => ({ ...job, cursor: `ended-${job.finishedAtMs}-${job.id}` }));
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
    last = { atMs: end.finishedAtMs, id: end.id };
    await turnOfTheLoop();
  }
  return found;
}
