/**
 * A lane holds the messages of one account to one receiver under one secrets key. The walk seeks
 * from lane to lane, so its cost does not grow with the backlog.
 */

import { setImmediate as loopTick } from 'node:timers/promises';
import { type Database, query, type Schema } from '@matting/database/database.ts';
import type { NotNull } from 'kysely';

export type MessageKind = Schema['outbox']['kind'];

/** The maximum of lanes read for one listing, with a seek each. */
const LANES_MAX = 512;
/** The maximum of rows read in a lane. Rows that other replicas are sending come first. */
const LANE_READ_MAX = 64;
/** The maximum of rows taken from a lane: an account's slots to one receiver; for mails, 1. */
export const LANE_TAKE_MAX = 8;
export const LANES_A_TICK = 16;

export interface Lane {
  readonly receiver: string;
  readonly account_id: string;
  readonly secret_key_id: string;
}

export const DUE_COLUMNS = [
  'id',
  'account_id',
  'receiver',
  'secret_key_id',
  'secret_erase_at',
  'lease_expires_at',
  'next_attempt_at',
] as const;

export type DueRow = Pick<Schema['outbox'], (typeof DUE_COLUMNS)[number]> & {
  readonly next_attempt_at: number;
  readonly read_at: number;
};

export const BEFORE_ALL: Lane = { receiver: '', account_id: '', secret_key_id: '' };

/** Sorts after every account's id. */
const PAST_ALL = '~';

export interface Wanted {
  readonly receiver: (receiver: string) => boolean;
  readonly lane: (lane: Lane) => boolean;
  readonly row: (row: DueRow) => boolean;
}

/** Each walk begins where the last one ended. */
export class LaneWalk {
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
      if (lane === undefined || (begin !== undefined && sameLane(lane, begin))) break;
      begin ??= lane;
      if (wanted.lane(lane)) {
        const rows = await readFirstOf(this.#database, this.#kind, lane);
        const takeMax = this.#kind === 'mail' ? 1 : LANE_TAKE_MAX;
        found.push(...rows.filter(wanted.row).slice(0, takeMax));
      }
      // Skips the rest of a receiver that has no slot.
      this.#walkedTo = wanted.receiver(lane.receiver) ? lane : { ...lane, account_id: PAST_ALL };
      if (seen % LANES_A_TICK === 0) await loopTick();
    }
    return found;
  }
}

/** Reads the three ranges after the lane by one statement. */
export async function readLaneAfter(
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

function sameLane(a: Lane, b: Lane): boolean {
  return byLane(a, b) === 0;
}

/** Byte by byte, as the index compares. */
function byLane(a: Lane, b: Lane): number {
  return (
    compare(a.receiver, b.receiver) ||
    compare(a.account_id, b.account_id) ||
    compare(a.secret_key_id, b.secret_key_id)
  );
}

export function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
