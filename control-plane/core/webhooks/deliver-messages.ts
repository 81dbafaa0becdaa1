/**
 * Delivers messages of one kind: the loop behind every callback_url, and that of mails. A row of
 * the outbox is claimed under a lease when there is a place for its receiver, sent, and its
 * attempt's end written. So it arrives at least once whatever dies, and twice only where a process
 * died, or the database stayed away, between the receiver's answer and the row.
 *
 * | state    | entered by     | left by                                                             |
 * |----------|----------------|---------------------------------------------------------------------|
 * | idle     | construction   | start                                                               |
 * | running  | start          | stop                                                                |
 * | stopping | stop           | the last attempt ends; at the limit or on `hurry` they are cut off  |
 * |          |                | and given back                                                      |
 *
 * It reads the outbox when a job that ended here left a webhook, when a place became free and rows
 * are known to wait, when an attempt is due again before the next poll, and at each poll for what
 * other replicas left (database/round-loop.ts).
 */

import { setImmediate as loopTick } from 'node:timers/promises';
import { type Database, query, type Schema } from '@matting/database/database.ts';
import { pollingLoop, type RoundLoop } from '@matting/database/round-loop.ts';
import { requireInteger, throughIndex } from '@matting/database/statements.ts';
import {
  type FullSlots,
  roomOutside,
  SharedSlots,
  type SlotLimits,
  type SlotUse,
} from '@matting/http/outgoing/shared-slots.ts';
import type { NotNull } from 'kysely';
import type { Logger } from 'pino';

export interface MessageClaim {
  readonly id: string;
  readonly holder: string;
  readonly fence: number;
}

export interface AttemptEnd {
  /** null: there was no answer, or it was no HTTP. */
  readonly statusCode: number | null;
  /** Why it did not deliver; absent where it did. */
  readonly error?: string | undefined;
  readonly durationMs: number;
}

/** Each is false, and changes nothing, where the claim was lost. `giveUp`: as in JobStore. */
export interface MessageLeases {
  /** False: somebody else has it, or its time is not now. */
  claim(claim: MessageClaim, leaseMs: number): Promise<boolean>;
  /** Gives it back: its time is still now. */
  release(claim: MessageClaim, giveUp?: AbortSignal): Promise<boolean>;
  delivered(claim: MessageClaim, end: AttemptEnd, giveUp?: AbortSignal): Promise<boolean>;
  retryLater(
    claim: MessageClaim,
    end: AttemptEnd,
    waitMs: number,
    giveUp?: AbortSignal,
  ): Promise<boolean>;
  failed(
    claim: MessageClaim,
    end: AttemptEnd,
    how: { readonly eraseSecret: boolean },
    giveUp?: AbortSignal,
  ): Promise<boolean>;
}

export interface ClaimedMessage {
  readonly message: DueMessage;
  readonly claim: MessageClaim;
  /** When `message` was read, by performance.now(): no later than the answer came. */
  readonly listedAtMs: number;
}

export interface AttemptResult {
  /** No answer came, or late; undefined: unknown. */
  readonly slow: boolean | undefined;
  readonly nextInMs: number | undefined;
}

interface MessageWay {
  readonly kind: MessageKind;
  /** A message of another replica waits this long at most before it is seen here. */
  readonly pollMs: number;
  /** The longest an attempt takes, and time to write its end. */
  readonly leaseMs: number;
  readonly places: SlotLimits;
  /** Keys that open here what is to be sent; nothing is asked of mails. */
  readonly secretKeyIds: readonly string[];
  /**
   * Sends it and writes the attempt's end. Rejects where the database stays away, or for a bug: the
   * lease runs out, and it is sent again.
   * @param cutOff aborts: give it back
   */
  attempt(claimed: ClaimedMessage, cutOff: AbortSignal): Promise<AttemptResult>;
  unreadable(err: unknown): void;
  left(err: unknown, id: string): void;
}

export interface DeliveryParts {
  readonly outbox: Pick<ReturnType<typeof dueMessages>, 'listDue'> & MessageLeases;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly holder: string;
  readonly random?: () => number;
  readonly pollMs?: number;
}

type OnDue = (wake: () => void) => () => void;

export class MessageDelivery {
  readonly #parts: DeliveryParts;
  readonly #way: MessageWay;
  readonly #onDue: OnDue | undefined;
  readonly #places: SharedSlots;
  readonly #running = new Set<Promise<void>>();
  readonly #cutOff = new AbortController();
  /** Attempts due again before the next poll; at most one a row that failed in that time. */
  readonly #wakes = new Set<NodeJS.Timeout>();
  readonly #loop: RoundLoop;
  #unsubscribe: (() => void) | undefined;
  #waiting = false;

  /** @param onDue what says that a message was written here */
  constructor(parts: DeliveryParts, way: MessageWay, onDue?: OnDue) {
    this.#parts = parts;
    this.#way = way;
    this.#onDue = onDue;
    this.#places = new SharedSlots(way.places);
    const unreadable = (err: unknown) => way.unreadable(err);
    this.#loop = pollingLoop(way.pollMs, () => this.#round(), unreadable);
  }

  start(): void {
    this.#unsubscribe = this.#onDue?.(() => this.#loop.wake());
    this.#loop.start();
  }

  get inFlight(): number {
    return this.#running.size;
  }

  /** Begins what a job's end just left, claims nothing more, gives back the rest at the limit. */
  async stop(limitMs = 0): Promise<void> {
    await this.#loop.roundUnderWay();
    this.#unsubscribe?.();
    for (const wake of this.#wakes) clearTimeout(wake);
    await this.#loop.stop();
    const limit = setTimeout(() => this.hurry(), limitMs);
    await Promise.all(this.#running);
    clearTimeout(limit);
  }

  /** What is under way is given back now. */
  hurry(): void {
    void this.#loop.stop();
    this.#cutOff.abort();
  }

  async #round(): Promise<void> {
    this.#waiting = false;
    while (!this.#loop.stopping && (await this.#beginSome()));
  }

  /** True: there may be more that can be begun. */
  async #beginSome(): Promise<boolean> {
    const { kind, secretKeyIds } = this.#way;
    const limit = Math.min(DUE_LISTED_MAX, this.#places.free);
    if (limit <= 0) {
      this.#waiting = true;
      return false;
    }
    // Rows without a place are not listed: no backlog of one receiver hides another's row.
    const full = this.#places.full();
    const { destinations, accounts, uses, slow } = full;
    this.#waiting = [destinations, accounts, uses, slow.accounts].some(some => some.length > 0);
    const due = await this.#parts.outbox.listDue({ kind, limit, secretKeyIds, full });
    const listedAtMs = performance.now();
    const placed = due.filter(message => this.#places.take(useOf(message)));
    this.#waiting ||= placed.length < due.length;
    // Claimed before the next list, or it would find the same rows again.
    const claims = await Promise.allSettled(placed.map(one => this.#claim(one, listedAtMs)));
    const failed = claims.find(claim => claim.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    const begun = claims.some(claim => claim.status === 'fulfilled' && claim.value);
    return due.length === limit && begun;
  }

  /** Begins the attempt if the claim is won; the place is given back otherwise. */
  async #claim(message: DueMessage, listedAtMs: number): Promise<boolean> {
    const { outbox, holder } = this.#parts;
    const claim: MessageClaim = { id: message.id, holder, fence: message.fence + 1 };
    let won = false;
    try {
      won = await outbox.claim(claim, this.#way.leaseMs);
    } finally {
      if (!won) this.#places.end(useOf(message), undefined);
    }
    if (!won) return false;
    const run = this.#deliver({ message, claim, listedAtMs }).finally(() => {
      this.#running.delete(run);
      if (this.#waiting) this.#loop.wake();
    });
    this.#running.add(run);
    return true;
  }

  /** Never rejects. */
  async #deliver(claimed: ClaimedMessage): Promise<void> {
    let slow: boolean | undefined;
    try {
      const attempt = await this.#way.attempt(claimed, this.#cutOff.signal);
      slow = attempt.slow;
      if (attempt.nextInMs !== undefined) this.#wakeIn(attempt.nextInMs);
    } catch (err) {
      this.#way.left(err, claimed.claim.id);
      this.#loop.fault();
    } finally {
      this.#places.end(useOf(claimed.message), slow);
    }
  }

  #wakeIn(waitMs: number): void {
    if (waitMs > this.#way.pollMs || this.#loop.stopping) return;
    const wake = setTimeout(() => {
      this.#wakes.delete(wake);
      this.#loop.wake();
    }, waitMs);
    this.#wakes.add(wake);
  }
}

function useOf({ accountId, receiver }: DueMessage): SlotUse {
  return { accountId, destination: receiver };
}

/*
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

export type MessageKind = Schema['outbox']['kind'];

/** A message whose time has come; its body and secret are sealed. tables.ts has its columns. */
export type DueMessage = Awaited<ReturnType<typeof readDue>>[number];

export interface DueQuery {
  readonly kind: MessageKind;
  readonly limit: number;
  /** Keys that open secrets here; other webhooks are left to other replicas. Of mails nothing. */
  readonly secretKeyIds: readonly string[];
  readonly full: FullSlots;
}

/** Rows that a listing may ask for, each with a body of about a kilobyte. */
const DUE_LISTED_MAX = 32;
export const HEAD_MAX = 8 * DUE_LISTED_MAX;
const BY_DUE = throughIndex('outbox', 'outbox_due');
/** Lanes read for one listing, a seek each: the walk goes round a thousand lanes in two. */
const LANES_MAX = 512;
/** Rows read in a lane: those under way elsewhere come before the others. */
const LANE_READ_MAX = 64;
/** Rows taken from a lane: as many places as an account alone has to a receiver; of mails one. */
export const LANE_TAKE_MAX = 8;
/** Lanes between two ticks of the event loop. */
const LANES_A_TICK = 16;
/** Lanes searched for rows under other keys: a second or two at a start. */
const SEALED_LANES_MAX = 4096;
/** Rows that are counted; a gauge that shows it says "at least". */
export const DUE_COUNTED_MAX = 10_000;

interface Lane {
  readonly receiver: string;
  readonly account_id: string;
  readonly secret_key_id: string;
}

const DUE_COLUMNS = [
  'id',
  'account_id',
  'receiver',
  'secret_key_id',
  'secret_erase_at',
  'lease_expires_at',
  'next_attempt_at',
] as const;

type DueRow = Pick<Schema['outbox'], (typeof DUE_COLUMNS)[number]> & {
  readonly next_attempt_at: number;
  readonly read_at: number;
};

const BEFORE_ALL: Lane = { receiver: '', account_id: '', secret_key_id: '' };

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
        // Behind those of a walk that met too few accounts with a mail that is due.
        rows = once([...met, ...inRounds(rows, walk.lastAccount)]).slice(0, limit);
        if (met.length === 0) walk.lastAccount = rows.at(-1)?.account_id ?? walk.lastAccount;
      } else if (rows.length < limit && head.length === HEAD_MAX) {
        rows = once([...rows, ...(await walk.next(limit - rows.length, wanted))]);
        rows.sort((a, b) => a.next_attempt_at - b.next_attempt_at);
      }
      return readDue(database, rows.slice(0, limit));
    },
    /** Webhooks whose time has come, DUE_COUNTED_MAX at most, and since when. */
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

/** From lane to lane, each walk from where the last one stopped. */
class LaneWalk {
  readonly #database: Database;
  readonly #kind: MessageKind;
  #walkedTo: Lane = BEFORE_ALL;

  constructor(database: Database, kind: MessageKind) {
    this.#database = database;
    this.#kind = kind;
  }

  get lastAccount(): string {
    return this.#walkedTo.account_id;
  }

  set lastAccount(accountId: string) {
    this.#walkedTo = { ...BEFORE_ALL, account_id: accountId };
  }

  async next(limit: number, wanted: Wanted): Promise<DueRow[]> {
    const found: DueRow[] = [];
    let begin: Lane | undefined;
    for (let seen = 1; seen <= LANES_MAX && found.length < limit; seen += 1) {
      const lane =
        (await readLaneAfter(this.#database, this.#kind, this.#walkedTo)) ??
        (await readLaneAfter(this.#database, this.#kind, BEFORE_ALL));
      // None, or all of them were seen.
      if (lane === undefined || (begin !== undefined && sameLane(lane, begin))) break;
      begin ??= lane;
      if (wanted.lane(lane)) {
        const rows = await readFirstOf(this.#database, this.#kind, lane);
        const takeMax = this.#kind === 'mail' ? 1 : LANE_TAKE_MAX;
        found.push(...rows.filter(wanted.row).slice(0, takeMax));
      }
      // Behind the whole receiver where it has no place, behind this lane otherwise.
      this.#walkedTo = wanted.receiver(lane.receiver) ? lane : { ...lane, account_id: PAST_ALL };
      if (seen % LANES_A_TICK === 0) await loopTick();
    }
    return found;
  }
}

function readHead(database: Database, kind: MessageKind): Promise<DueRow[]> {
  const { nowMs } = database;
  return query(database, db =>
    db
      .selectFrom(BY_DUE[database.dialect])
      .select(DUE_COLUMNS)
      .select(() => nowMs.as('read_at'))
      .where('kind', '=', kind)
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
  kind: MessageKind,
  { receiver, account_id, secret_key_id }: Lane,
): Promise<Lane | undefined> {
  const { kysely } = database;
  const pending = () =>
    kysely
      .selectFrom('outbox')
      .select(['receiver', 'account_id', 'secret_key_id'])
      .where('kind', '=', kind)
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

function readFirstOf(database: Database, kind: MessageKind, lane: Lane): Promise<DueRow[]> {
  const { nowMs } = database;
  return query(database, db =>
    db
      .selectFrom('outbox')
      .select(DUE_COLUMNS)
      .select(() => nowMs.as('read_at'))
      .where('kind', '=', kind)
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

/** What is to be sent; a row that was claimed or ended meanwhile fails its claim. */
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

/** Behind every account's id. */
const PAST_ALL = '~';

interface Wanted {
  readonly receiver: (receiver: string) => boolean;
  readonly lane: (lane: Lane) => boolean;
  readonly row: (row: DueRow) => boolean;
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
