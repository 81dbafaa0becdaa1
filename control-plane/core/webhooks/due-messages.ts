/**
 * The messages whose time has come and whose receivers have a place. Two ways lead to them, and
 * neither reads more when more of them wait:
 *
 * 1. In the order of their times, the first HEAD_MAX. Nearly always there are fewer, or enough of
 *    them have a place.
 * 2. Where HEAD_MAX and more wait and most of those have none (a receiver that hangs has a backlog
 *    of hours), by lanes. A lane is what waits for one receiver, of one account, under one secrets
 *    key. The walk goes from lane to lane in outbox_lanes by seeks, leaves out those without a
 *    place whatever lies in them, and takes the first few of each other. It goes on where the last
 *    one stopped, so each lane has its turn.
 *
 * Mails go to one server, where few have a place. So their accounts take turns, in the order of
 * their ids: one with a hundred mails, or whose mails come again because the server puts them off,
 * holds up nobody else's by more than one. Where HEAD_MAX wait, the walk comes first.
 */

import { setImmediate as loopTick } from 'node:timers/promises';
import { type Database, query } from '@matting/database/database.ts';
import { keepStatement, requireInteger, throughIndex } from '@matting/database/statements.ts';
import { type FullSlots, roomOutside } from '@matting/http/outgoing/shared-slots.ts';
import { type NotNull, sql } from 'kysely';
import {
  BEFORE_ALL,
  compare,
  DUE_COLUMNS,
  type DueRow,
  LANES_A_TICK,
  type Lane,
  LaneWalk,
  type MessageKind,
  readLaneAfter,
  type Wanted,
} from './lane-walk.ts';

/** A message whose time has come; its body and secret are sealed. tables.ts has its columns. */
export type DueMessage = Awaited<ReturnType<typeof readDue>>[number];

interface DueQuery {
  readonly kind: MessageKind;
  readonly limit: number;
  /** Keys that open secrets here; other webhooks are left to other replicas. Of mails nothing. */
  readonly secretKeyIds: readonly string[];
  readonly full: FullSlots;
}

/** Rows that a listing may ask for, each with a body of about a kilobyte. */
export const DUE_LISTED_MAX = 32;
const HEAD_MAX = 8 * DUE_LISTED_MAX;
const BY_DUE = throughIndex('outbox', 'outbox_due');
/** Lanes searched for rows under other keys: a second or two at a start. */
const SEALED_LANES_MAX = 4096;
/** Rows that are counted; a gauge that shows it says "at least". */
const DUE_COUNTED_MAX = 10_000;

export function dueMessages(database: Database) {
  const walks = {
    webhook: new LaneWalk(database, 'webhook'),
    mail: new LaneWalk(database, 'mail'),
  };
  return {
    async listDue(asked: DueQuery): Promise<DueMessage[]> {
      const { kind, limit } = asked;
      const walk = walks[kind];
      const head = await readHead(database, kind);
      const wanted = wantedOf(asked);
      let rows = head.filter(wanted.row);
      if (kind === 'mail') {
        const met = head.length === HEAD_MAX ? await walk.next(limit, wanted) : [];
        // Kept behind the rows of a walk that met too few accounts with a mail that is due.
        rows = once([...met, ...inRounds(rows, walk.lastAccount)]).slice(0, limit);
        if (met.length === 0) walk.lastAccount = rows.at(-1)?.account_id ?? walk.lastAccount;
      } else if (rows.length < limit && head.length === HEAD_MAX) {
        rows = once([...rows, ...(await walk.next(limit - rows.length, wanted))]);
        rows.sort((a, b) => a.next_attempt_at - b.next_attempt_at);
      }
      return readDue(database, rows.slice(0, limit));
    },
    /** Counts webhooks whose time has come, up to DUE_COUNTED_MAX, and since when. */
    due: () => countDue(database),
    /** Mails that wait, DUE_COUNTED_MAX at most, and since when the oldest was to be sent first. */
    mailsWaiting: () => countMails(database),
    /** Webhooks that none of these keys opens: DUE_COUNTED_MAX at most, of some thousand lanes. */
    countSealedWithOthers: (secretKeyIds: readonly string[]) =>
      countSealedWithOthers(database, secretKeyIds),
  };
}

async function countDue(database: Database): Promise<{ count: number; oldestMs: number }> {
  const { nowMs } = database;
  const rows = await query(database, db =>
    db
      .selectFrom(BY_DUE[database.dialect])
      .select('next_attempt_at')
      .select(() => nowMs.as('read_at'))
      .where('kind', '=', 'webhook')
      .where('next_attempt_at', '<=', nowMs)
      .orderBy('next_attempt_at')
      .limit(1)
      .$narrowType<{ next_attempt_at: NotNull }>()
      .execute(),
  );
  const oldest = rows[0];
  if (oldest === undefined) return { count: 0, oldestMs: 0 };
  const due = database.kysely
    .selectFrom(BY_DUE[database.dialect])
    .select('next_attempt_at')
    .where('kind', '=', 'webhook')
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

async function countMails(database: Database): Promise<{ count: number; oldestMs: number }> {
  const { nowMs } = database;
  const waiting = database.kysely
    .selectFrom(BY_DUE[database.dialect])
    .select('created_at')
    .where('kind', '=', 'mail')
    .where('next_attempt_at', 'is not', null)
    .orderBy('next_attempt_at')
    .limit(DUE_COUNTED_MAX);
  const { count, first, now } = await query(database, db =>
    db
      .selectFrom(waiting.as('waiting'))
      .select(eb => [
        eb.fn.countAll<number>().as('count'),
        eb.fn.min<number | null>('created_at').as('first'),
        nowMs.as('now'),
      ])
      .executeTakeFirstOrThrow(),
  );
  return { count: requireInteger(count), oldestMs: first === null ? 0 : Math.max(0, now - first) };
}

export async function countSealedWithOthers(
  database: Database,
  keyIds: readonly string[],
  lanesMax = SEALED_LANES_MAX,
): Promise<number> {
  let count = 0;
  let lane = await readLaneAfter(database, 'webhook', BEFORE_ALL);
  for (let seen = 1; lane !== undefined && count < DUE_COUNTED_MAX; seen += 1) {
    if (seen > lanesMax) break;
    if (!keyIds.includes(lane.secret_key_id)) {
      count += await countLane(database, lane, DUE_COUNTED_MAX - count);
    }
    if (seen % LANES_A_TICK === 0) await loopTick();
    lane = await readLaneAfter(database, 'webhook', lane);
  }
  return count;
}

const HEAD = keepStatement<{ kind: MessageKind }, DueRow>(({ kysely, dialect, nowMs }, { kind }) =>
  kysely
    .selectFrom(BY_DUE[dialect])
    .select(DUE_COLUMNS)
    .select(() => nowMs.as('read_at'))
    .where('kind', '=', kind)
    .where('next_attempt_at', '<=', nowMs)
    .orderBy('next_attempt_at')
    .limit(sql.lit(HEAD_MAX))
    .$narrowType<{ next_attempt_at: NotNull }>(),
);

async function readHead(database: Database, kind: MessageKind): Promise<DueRow[]> {
  return (await query(database, db => db.executeQuery(HEAD(database, { kind })))).rows;
}

async function countLane(database: Database, lane: Lane, max: number): Promise<number> {
  const some = database.kysely
    .selectFrom('outbox')
    .select('next_attempt_at')
    .where('kind', '=', 'webhook')
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

/** Reads what is to be sent; a row that was claimed or ended meanwhile fails its claim. */
async function readDue(database: Database, rows: readonly DueRow[]) {
  if (rows.length === 0) return [];
  const { nowMs } = database;
  const ids = rows.map(row => row.id);
  const read = await query(database, db =>
    db
      .selectFrom('outbox')
      // An account's event and a mail have no job.
      .leftJoin('jobs', 'jobs.id', 'outbox.id')
      .select(['outbox.id', 'outbox.account_id as accountId', 'outbox.fence'])
      .select(['address', 'receiver', 'subject', 'body', 'attempts', 'secret'])
      .select(['secret_key_id as secretKeyId', 'outbox.created_at as createdAtMs'])
      .select(['trace_context as traceContext', nowMs.as('readAtMs')])
      .where('outbox.id', 'in', ids)
      .execute(),
  );
  const byId = new Map(read.map(row => [row.id, row]));
  return ids.flatMap(id => {
    const row = byId.get(id);
    // Null: its end was written since.
    const secretKeyId = row?.secretKeyId ?? null;
    return row === undefined || secretKeyId === null ? [] : { ...row, secretKeyId };
  });
}

function once(rows: readonly DueRow[]): DueRow[] {
  return [...new Map(rows.map(row => [row.id, row])).values()];
}

/** The first of each account, from the one behind `place` around to it; then the second of each. */
function inRounds(rows: readonly DueRow[], place: string): DueRow[] {
  const seen = new Map<string, number>();
  const turns = rows.map(row => {
    const turn = seen.get(row.account_id) ?? 0;
    seen.set(row.account_id, turn + 1);
    return { row, turn, waits: row.account_id <= place };
  });
  turns.sort(
    (a, b) =>
      a.turn - b.turn ||
      Number(a.waits) - Number(b.waits) ||
      compare(a.row.account_id, b.row.account_id),
  );
  return turns.map(({ row }) => row);
}

function wantedOf({ kind, secretKeyIds, full }: DueQuery): Wanted {
  const room = roomOutside(full);
  const lane = (one: Pick<DueRow, 'receiver' | 'account_id' | 'secret_key_id'>) =>
    one.secret_key_id !== null &&
    (kind === 'mail' || secretKeyIds.includes(one.secret_key_id)) &&
    room.forUse({ accountId: one.account_id, destination: one.receiver });
  return {
    receiver: room.toDestination,
    lane,
    row: row =>
      lane(row) &&
      (row.lease_expires_at === null || row.lease_expires_at <= row.read_at) &&
      // Past that a webhook is the sweeper's, which may come a minute later.
      (kind === 'mail' || (row.secret_erase_at ?? 0) > row.read_at),
  };
}
