/**
 * Lists due messages whose receivers have a free slot, at a cost that does not grow with the
 * backlog. The first HEAD_MAX rows by due time nearly always suffice. If they do not (a receiver
 * that hangs has a backlog of hours), it walks over lanes (lane-walk.ts), from where the last walk
 * stopped.
 *
 * All mails go to one server with few slots. So accounts take turns by id, and none delays
 * another's mail by more than one; with HEAD_MAX waiting mails, the walk comes first.
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

/** Body and secret are sealed. */
export type DueMessage = Awaited<ReturnType<typeof readDue>>[number];

interface DueQuery {
  readonly kind: MessageKind;
  readonly limit: number;
  /** Ids of the keys that open secrets here; mails need none. */
  readonly secretKeyIds: readonly string[];
  readonly full: FullSlots;
}

/** The maximum of rows in one listing, each with a body of about 1 KB. */
export const DUE_LISTED_MAX = 32;
const HEAD_MAX = 8 * DUE_LISTED_MAX;
const BY_DUE = throughIndex('outbox', 'outbox_due');
/** To read so many lanes takes a second or two. */
const SEALED_LANES_MAX = 4096;
/** A gauge with this value means "at least". */
const DUE_COUNTED_MAX = 10_000;

export function dueMessages(database: Database) {
  const walks = {
    webhook: new LaneWalk(database, 'webhook'),
    mail: new LaneWalk(database, 'mail'),
  };
  return {
    async listDue(filter: DueQuery): Promise<DueMessage[]> {
      const { kind, limit } = filter;
      const walk = walks[kind];
      const head = await readHead(database, kind);
      const wanted = wantedOf(filter);
      let rows = head.filter(wanted.row);
      if (kind === 'mail') {
        const met = head.length === HEAD_MAX ? await walk.next(limit, wanted) : [];
        // If the walk finds too few accounts with due mail, the oldest due rows follow.
        rows = once([...met, ...inRounds(rows, walk.lastAccount)]).slice(0, limit);
        if (met.length === 0) walk.lastAccount = rows.at(-1)?.account_id ?? walk.lastAccount;
      } else if (rows.length < limit && head.length === HEAD_MAX) {
        rows = once([...rows, ...(await walk.next(limit - rows.length, wanted))]);
        rows.sort((a, b) => a.next_attempt_at - b.next_attempt_at);
      }
      return readDue(database, rows.slice(0, limit));
    },
    /** Due webhooks, at most DUE_COUNTED_MAX, and how long the oldest has been due. */
    due: () => countDue(database),
    /** Waiting mails, at most DUE_COUNTED_MAX, and the age of the oldest. */
    mailsWaiting: () => countMails(database),
    /** Webhooks, at most DUE_COUNTED_MAX, in the first SEALED_LANES_MAX lanes. */
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

/** Rows may be claimed or end meanwhile; then their claim fails. */
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
    const secretKeyId = row?.secretKeyId ?? null;
    return row === undefined || secretKeyId === null ? [] : { ...row, secretKeyId };
  });
}

function once(rows: readonly DueRow[]): DueRow[] {
  return [...new Map(rows.map(row => [row.id, row])).values()];
}

/** One row of each account by id, beginning after `lastAccount`; then the second of each. */
function inRounds(rows: readonly DueRow[], lastAccount: string): DueRow[] {
  const seen = new Map<string, number>();
  const ranked = rows.map(row => {
    const round = seen.get(row.account_id) ?? 0;
    seen.set(row.account_id, round + 1);
    return { row, round, waits: row.account_id <= lastAccount };
  });
  ranked.sort(
    (a, b) =>
      a.round - b.round ||
      Number(a.waits) - Number(b.waits) ||
      compare(a.row.account_id, b.row.account_id),
  );
  return ranked.map(({ row }) => row);
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
      // Webhooks whose secret is due to be erased are not sent; the sweeper ends them.
      (kind === 'mail' || (row.secret_erase_at ?? 0) > row.read_at),
  };
}
