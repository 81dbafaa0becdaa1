/**
 * The notifications whose time has come and whose receivers have a place. Two ways lead to them,
 * and neither reads more when more of them wait:
 *
 * 1. In the order of their times, the first HEAD_MAX. Nearly always there are fewer, or enough of
 *    them have a place.
 * 2. Where HEAD_MAX and more wait and most of those have none (a receiver that hangs has a backlog
 *    of hours), by lanes. A lane is what waits for one receiver, of one account, under one secrets
 *    key. The walk goes from lane to lane in webhook_outbox_lanes by seeks, leaves out those
 *    without a place whatever lies in them, and takes the first few of each other. It goes on
 *    where the last one stopped, so each lane has its turn.
 */
import { setImmediate as turnOfTheLoop } from 'node:timers/promises';
import type { NotNull } from 'kysely';
import { roomOutside } from '../../domain/shared-places.ts';
import type { Database } from '../database/connect.ts';
import { throughIndex } from '../database/through-index.ts';
import { query } from '../database/transact.ts';
import { requireInteger } from '../database/values.ts';
import type { DueNotification, DueQuery, WebhookOutboxStore } from './webhook-outbox-store.ts';

/** Rows that a listing may ask for, each with a body of about a kilobyte. */
export const DUE_LISTED_MAX = 32;
/** Rows read in the order of their times. */
const HEAD_MAX = 8 * DUE_LISTED_MAX;
const OUTBOX_BY_DUE = throughIndex('webhook_outbox', 'webhook_outbox_due');
/** Lanes read for one listing, a seek each: the walk goes round a thousand lanes in two. */
const LANES_MAX = 512;
/** Rows read in a lane: those under way elsewhere come before the others. */
const LANE_READ_MAX = 64;
/** Rows taken from a lane: as many places as an account alone has to a receiver. */
export const LANE_TAKE_MAX = 8;
/** Lanes between two turns of the event loop. */
const LANES_A_TURN = 16;
/** Lanes searched for rows under other keys: a second or two at a start. */
const SEALED_LANES_MAX = 4096;
/** Rows that are counted; a gauge that shows it says "at least". */
export const DUE_COUNTED_MAX = 10_000;

interface Lane {
  readonly receiver: string;
  readonly account_id: string;
  readonly secret_key_id: string;
}

/** What decides whether a row can be begun now. */
interface DueRow {
  readonly job_id: string;
  readonly account_id: string;
  readonly receiver: string;
  readonly secret_key_id: string | null;
  readonly secret_erase_at: number | null;
  readonly lease_expires_at: number | null;
  readonly next_attempt_at: number;
  readonly read_at: number;
}

const DUE_COLUMNS = [
  'job_id',
  'account_id',
  'receiver',
  'secret_key_id',
  'secret_erase_at',
  'lease_expires_at',
  'next_attempt_at',
] as const;

const BEFORE_ALL: Lane = { receiver: '', account_id: '', secret_key_id: '' };

export function dueNotifications(
  database: Database,
): Pick<WebhookOutboxStore, 'listDue' | 'due' | 'countSealedWithOthers'> {
  const walk = new LaneWalk(database);
  return {
    async listDue(asked) {
      const head = await readHead(database);
      const wanted = wantedOf(asked);
      let rows = head.filter(wanted.row);
      if (rows.length < asked.limit && head.length === HEAD_MAX) {
        const room = asked.limit - rows.length;
        rows = mostUrgent([...rows, ...(await walk.next(room, wanted))]);
      }
      return readDue(database, rows.slice(0, asked.limit));
    },
    due: () => countDue(database),
    countSealedWithOthers: keyIds => countSealedWithOthers(database, keyIds),
  };
}

async function countDue(database: Database): Promise<{ count: number; oldestMs: number }> {
  const { nowMs } = database;
  const rows = await query(database, db =>
    db
      .selectFrom(OUTBOX_BY_DUE[database.dialect])
      .select('next_attempt_at')
      .select(() => nowMs.as('read_at'))
      .where('next_attempt_at', '<=', nowMs)
      .orderBy('next_attempt_at')
      .limit(1)
      .$narrowType<{ next_attempt_at: NotNull }>()
      .execute(),
  );
  const oldest = rows[0];
  if (oldest === undefined) return { count: 0, oldestMs: 0 };
  const due = database.kysely
    .selectFrom(OUTBOX_BY_DUE[database.dialect])
    .select('next_attempt_at')
    .where('next_attempt_at', '<=', nowMs)
    .limit(DUE_COUNTED_MAX);
  const { count } = await query(database, db =>
    db
      .selectFrom(due.as('due'))
      .select(eb => eb.fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow(),
  );
  return { count: requireInteger(count), oldestMs: oldest.read_at - oldest.next_attempt_at };
}

/** @param lanesMax lanes that are searched; SEALED_LANES_MAX but in tests */
export async function countSealedWithOthers(
  database: Database,
  keyIds: readonly string[],
  lanesMax = SEALED_LANES_MAX,
): Promise<number> {
  let count = 0;
  let lane = await readLaneAfter(database, BEFORE_ALL);
  for (let seen = 1; lane !== undefined && count < DUE_COUNTED_MAX; seen += 1) {
    if (seen > lanesMax) break;
    if (!keyIds.includes(lane.secret_key_id)) {
      count += await countLane(database, lane, DUE_COUNTED_MAX - count);
    }
    if (seen % LANES_A_TURN === 0) await turnOfTheLoop();
    lane = await readLaneAfter(database, lane);
  }
  return count;
}

/** From lane to lane, each walk from where the last one stopped. */
class LaneWalk {
  readonly #database: Database;
  /** The lane that was seen last. */
  #walkedTo: Lane = BEFORE_ALL;

  constructor(database: Database) {
    this.#database = database;
  }

  async next(limit: number, wanted: Wanted): Promise<DueRow[]> {
    const found: DueRow[] = [];
    let begin: Lane | undefined;
    for (let seen = 1; seen <= LANES_MAX && found.length < limit; seen += 1) {
      const lane =
        (await readLaneAfter(this.#database, this.#walkedTo)) ??
        (await readLaneAfter(this.#database, BEFORE_ALL));
      // None, or all of them were seen.
      if (lane === undefined || (begin !== undefined && sameLane(lane, begin))) break;
      begin ??= lane;
      if (wanted.lane(lane)) {
        const rows = await readFirstOf(this.#database, lane);
        found.push(...rows.filter(wanted.row).slice(0, LANE_TAKE_MAX));
      }
      // Behind the whole receiver where it has no place, behind this lane otherwise.
      this.#walkedTo = wanted.receiver(lane.receiver) ? lane : { ...lane, account_id: PAST_ALL };
      if (seen % LANES_A_TURN === 0) await turnOfTheLoop();
    }
    return found;
  }
}

function readHead(database: Database): Promise<DueRow[]> {
  const { nowMs } = database;
  return query(database, db =>
    db
      .selectFrom(OUTBOX_BY_DUE[database.dialect])
      .select(DUE_COLUMNS)
      .select(() => nowMs.as('read_at'))
      .where('next_attempt_at', '<=', nowMs)
      .orderBy('next_attempt_at')
      .limit(HEAD_MAX)
      .$narrowType<{ next_attempt_at: NotNull }>()
      .execute(),
  );
}

/** In one statement: the first of each of three ranges, of which the first that has one counts. */
async function readLaneAfter(
  database: Database,
  { receiver, account_id, secret_key_id }: Lane,
): Promise<Lane | undefined> {
  const { kysely } = database;
  const pending = () =>
    kysely
      .selectFrom('webhook_outbox')
      .select(['receiver', 'account_id', 'secret_key_id'])
      .where('status', '=', 'pending')
      .orderBy('receiver')
      .orderBy('account_id')
      .orderBy('secret_key_id')
      .limit(1);
  const key = pending()
    .where('receiver', '=', receiver)
    .where('account_id', '=', account_id)
    .where('secret_key_id', '>', secret_key_id);
  const account = pending().where('receiver', '=', receiver).where('account_id', '>', account_id);
  const other = pending().where('receiver', '>', receiver);
  const rows = await query(database, () =>
    kysely
      .selectFrom(key.as('same_account'))
      .selectAll()
      .unionAll(kysely.selectFrom(account.as('same_receiver')).selectAll())
      .unionAll(kysely.selectFrom(other.as('another')).selectAll())
      .execute(),
  );
  const lanes = rows.map(row => ({ ...row, secret_key_id: row.secret_key_id ?? '' }));
  return lanes.sort(byLane)[0];
}

function readFirstOf(database: Database, lane: Lane): Promise<DueRow[]> {
  const { nowMs } = database;
  return query(database, db =>
    db
      .selectFrom('webhook_outbox')
      .select(DUE_COLUMNS)
      .select(() => nowMs.as('read_at'))
      .where('status', '=', 'pending')
      .where('receiver', '=', lane.receiver)
      .where('account_id', '=', lane.account_id)
      .where('secret_key_id', '=', lane.secret_key_id)
      .where('next_attempt_at', '<=', nowMs)
      .orderBy('next_attempt_at')
      .limit(LANE_READ_MAX)
      .$narrowType<{ next_attempt_at: NotNull }>()
      .execute(),
  );
}

async function countLane(database: Database, lane: Lane, max: number): Promise<number> {
  const some = database.kysely
    .selectFrom('webhook_outbox')
    .select('next_attempt_at')
    .where('status', '=', 'pending')
    .where('receiver', '=', lane.receiver)
    .where('account_id', '=', lane.account_id)
    .where('secret_key_id', '=', lane.secret_key_id)
    .limit(max);
  const { count } = await query(database, db =>
    db
      .selectFrom(some.as('lane'))
      .select(eb => eb.fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow(),
  );
  return requireInteger(count);
}

/** What is to be sent; a row that was claimed or ended meanwhile fails its claim. */
async function readDue(database: Database, rows: readonly DueRow[]): Promise<DueNotification[]> {
  if (rows.length === 0) return [];
  const { nowMs } = database;
  const ids = rows.map(row => row.job_id);
  const read = await query(database, db =>
    db
      .selectFrom('webhook_outbox')
      // An account's event has no job.
      .leftJoin('jobs', 'jobs.id', 'webhook_outbox.job_id')
      .select(['webhook_outbox.account_id', 'webhook_outbox.fence', 'webhook_outbox.created_at'])
      .select(['webhook_outbox.callback_url', 'job_id', 'receiver', 'body', 'attempts'])
      .select(['secret', 'secret_key_id'])
      .select(() => nowMs.as('read_at'))
      .select('trace_context')
      .where('job_id', 'in', ids)
      .execute(),
  );
  const byId = new Map(read.map(row => [row.job_id, row]));
  return ids.flatMap(id => {
    const row = byId.get(id);
    if (row === undefined || row.secret === null || row.secret_key_id === null) return [];
    return {
      jobId: row.job_id,
      accountId: row.account_id,
      callbackUrl: row.callback_url,
      receiver: row.receiver,
      body: row.body,
      secret: row.secret,
      secretKeyId: row.secret_key_id,
      attempts: row.attempts,
      fence: row.fence,
      createdAtMs: row.created_at,
      readAtMs: row.read_at,
      traceContext: row.trace_context,
    };
  });
}

/** Behind every account's id. */
const PAST_ALL = '~';

interface Wanted {
  readonly receiver: (receiver: string) => boolean;
  readonly lane: (lane: Lane) => boolean;
  readonly row: (row: DueRow) => boolean;
}

function wantedOf({ secretKeyIds, full }: DueQuery): Wanted {
  const room = roomOutside(full);
  const lane = (one: Pick<DueRow, 'receiver' | 'account_id' | 'secret_key_id'>) =>
    one.secret_key_id !== null &&
    secretKeyIds.includes(one.secret_key_id) &&
    room.forUse({ accountId: one.account_id, destination: one.receiver });
  return {
    receiver: room.toDestination,
    lane,
    row: row =>
      lane(row) &&
      (row.lease_expires_at === null || row.lease_expires_at <= row.read_at) &&
      // Past that it is the sweeper's, which may come a minute later.
      (row.secret_erase_at ?? 0) > row.read_at,
  };
}

/** Each once, in the order of their times. */
function mostUrgent(rows: readonly DueRow[]): DueRow[] {
  const once = new Map(rows.map(row => [row.job_id, row]));
  return [...once.values()].sort((a, b) => a.next_attempt_at - b.next_attempt_at);
}

function sameLane(a: Lane, b: Lane): boolean {
  return byLane(a, b) === 0;
}

/** As the index has them: byte by byte. */
function byLane(a: Lane, b: Lane): number {
  return (
    compare(a.receiver, b.receiver) ||
    compare(a.account_id, b.account_id) ||
    compare(a.secret_key_id, b.secret_key_id)
  );
}

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
