/**
 * Mails that wait for the mail server.
 *
 * | status  | entered by                | left by                                             |
 * |---------|---------------------------|-----------------------------------------------------|
 * | pending | what it tells of commits  | an attempt: to sent; to failed after the last, or   |
 * |         |                           | where the server will never take it                 |
 * | sent    | the server took it        | the sweeper, later                                  |
 * | failed  | see above                 | the sweeper, later                                  |
 *
 * One that was withdrawn with what it tells of is removed (mail-rows.ts).
 *
 * An attempt is made under a lease. A claim puts the mail's time off to the lease's end: what is
 * being sent, or was by a process that died, stands in nobody's way, and is due again after it.
 * Which mail is next: mail-turns.ts.
 */
import { type Kysely, sql, type UpdateQueryBuilder, type UpdateResult } from 'kysely';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import type { Schema } from '../database/schema.ts';
import { query, transact } from '../database/transact.ts';
import { matchesOne, requireInteger } from '../database/values.ts';
import { MailTurns } from './mail-turns.ts';
import { removeOldCounts } from './message-counts.ts';

export interface DueMail {
  readonly id: string;
  readonly accountId: string;
  readonly recipient: string;
  readonly subject: string;
  /** Sealed. */
  readonly body: string;
  /** Attempts whose ends were written. */
  readonly attempts: number;
  readonly fence: number;
}

export interface MailClaim {
  readonly id: string;
  readonly holder: string;
  readonly fence: number;
}

/** Rows that are counted; a gauge that shows it says "at least". */
export const MAILS_COUNTED_MAX = 10_000;

/** `giveUp`: as in JobStore. Each of the changing ones is false where the claim was lost. */
export interface MailOutboxStore {
  /** The next ones by the turns of accounts, one of each, but for those accounts. */
  listDue(limit: number, fullAccounts: readonly string[]): Promise<DueMail[]>;
  claim(claim: MailClaim, leaseMs: number): Promise<boolean>;
  /** Its time is now. */
  release(claim: MailClaim, giveUp?: AbortSignal): Promise<boolean>;
  sent(claim: MailClaim, giveUp?: AbortSignal): Promise<boolean>;
  /** @param error a code of the server or of the connection */
  retryLater(
    claim: MailClaim,
    error: string,
    waitMs: number,
    giveUp?: AbortSignal,
  ): Promise<boolean>;
  failed(claim: MailClaim, error: string, giveUp?: AbortSignal): Promise<boolean>;
  /**
   * Those that wait, MAILS_COUNTED_MAX at most, and since when the oldest of them was to be sent,
   * however often it has been tried since.
   */
  waiting(): Promise<{ readonly count: number; readonly oldestMs: number }>;
  /**
   * Makes those due that wait for their next attempt, `limit` at most; how many it found. That
   * attempt is one more than they have. What is being sent stays as it is.
   */
  sendNow(limit: number): Promise<number>;
  /** For the sweeper: mails sent, or given up, so long ago; their number. */
  removeOld(afterMs: number, limit: number): Promise<number>;
  /** For the sweeper: counts of messages (message-counts.ts) of days that are over; their number. */
  removeOldCounts(limit: number): Promise<number>;
}

const FREE = { lease_holder: null, lease_expires_at: null };
/** What it said is not kept: it may be a link that somebody can use. */
const OVER = { due_at: null, body: '' };
const ERROR_LENGTH_MAX = 64;

type MailUpdate = UpdateQueryBuilder<Schema, 'mail_outbox', 'mail_outbox', UpdateResult>;

export function createMailOutboxStore(database: Database): MailOutboxStore {
  const { nowMs } = database;
  const turns = new MailTurns(database);
  const end = (
    claim: MailClaim,
    set: (update: MailUpdate) => MailUpdate,
    giveUp: AbortSignal | undefined,
  ) => query(database, db => matchesOne(set(heldBy(db, claim)).set(FREE)), giveUp);
  const attempted = (error: string | null) => ({
    attempts: sql<number>`attempts + 1`,
    last_error: error?.replaceAll(/[^\x21-\x7e]/g, '_').slice(0, ERROR_LENGTH_MAX) ?? null,
    last_attempt_at: nowMs,
  });
  return {
    listDue: async (limit, fullAccounts) =>
      readMails(database, await turns.next(limit, fullAccounts)),
    claim: ({ id, holder, fence }, leaseMs) =>
      query(database, db =>
        matchesOne(
          db
            .updateTable('mail_outbox')
            .set({
              fence,
              lease_holder: holder,
              lease_expires_at: nowPlusMs(nowMs, leaseMs),
              due_at: nowPlusMs(nowMs, leaseMs),
            })
            .where('id', '=', id)
            .where('fence', '=', fence - 1)
            .where('due_at', '<=', nowMs),
        ),
      ),
    release: (claim, giveUp) => end(claim, mail => mail.set({ due_at: nowMs }), giveUp),
    sent: (claim, giveUp) => {
      const columns = { ...OVER, status: 'sent', finished_at: nowMs } as const;
      return end(claim, mail => mail.set({ ...attempted(null), ...columns }), giveUp);
    },
    retryLater: (claim, error, waitMs, giveUp) => {
      const columns = { due_at: nowPlusMs(nowMs, waitMs) };
      return end(claim, mail => mail.set({ ...attempted(error), ...columns }), giveUp);
    },
    failed: (claim, error, giveUp) => {
      const columns = { ...OVER, status: 'failed', finished_at: nowMs } as const;
      return end(claim, mail => mail.set({ ...attempted(error), ...columns }), giveUp);
    },
    waiting: () => countWaiting(database),
    sendNow: limit => sendNow(database, limit),
    removeOld: (afterMs, limit) => removeOld(database, afterMs, limit),
    removeOldCounts: limit => removeOldCounts(database, limit),
  };
}

function heldBy(db: Kysely<Schema>, { id, holder, fence }: MailClaim): MailUpdate {
  return db
    .updateTable('mail_outbox')
    .where('id', '=', id)
    .where('fence', '=', fence)
    .where('lease_holder', '=', holder);
}

/** In the order of the ids. */
async function readMails(database: Database, ids: readonly string[]): Promise<DueMail[]> {
  if (ids.length === 0) return [];
  const rows = await query(database, db =>
    db
      .selectFrom('mail_outbox')
      .select(['id', 'account_id', 'recipient', 'subject', 'body', 'attempts', 'fence'])
      .where('id', 'in', ids)
      .execute(),
  );
  return rows
    .map(({ account_id: accountId, ...mail }) => ({ ...mail, accountId }))
    .sort((one, other) => ids.indexOf(one.id) - ids.indexOf(other.id));
}

async function countWaiting(database: Database) {
  const { nowMs } = database;
  const waiting = database.kysely
    .selectFrom('mail_outbox')
    .select('created_at')
    .where('due_at', 'is not', null)
    .orderBy('due_at')
    .limit(MAILS_COUNTED_MAX);
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

async function sendNow(database: Database, limit: number): Promise<number> {
  const { nowMs } = database;
  const rows = await query(database, db =>
    db
      .selectFrom('mail_outbox')
      .select('id')
      .where('due_at', '>', nowMs)
      .where('attempts', '>', 0)
      .where('lease_holder', 'is', null)
      .orderBy('due_at')
      .limit(limit)
      .execute(),
  );
  // In one order everywhere, as below.
  const ids = rows.map(row => row.id).sort();
  if (ids.length > 0) {
    await query(database, db =>
      db
        .updateTable('mail_outbox')
        .set({ due_at: nowMs, attempts: sql<number>`attempts - 1` })
        .where('id', 'in', ids)
        .where('attempts', '>', 0)
        .where('due_at', '>', nowMs)
        .where('lease_holder', 'is', null)
        .execute(),
    );
  }
  return ids.length;
}

async function removeOld(database: Database, afterMs: number, limit: number): Promise<number> {
  const rows = await query(database, db =>
    db
      .selectFrom('mail_outbox')
      .select('id')
      .where('finished_at', '<=', nowPlusMs(database.nowMs, -afterMs))
      .orderBy('finished_at')
      .limit(limit)
      .execute(),
  );
  // In one order everywhere: two sweepers then wait for each other and never in a circle.
  const ids = rows.map(row => row.id).sort();
  if (ids.length === 0) return 0;
  return transact(database, async tx => {
    const { numDeletedRows } = await tx
      .deleteFrom('mail_outbox')
      .where('id', 'in', ids)
      .where('finished_at', 'is not', null)
      .executeTakeFirstOrThrow();
    return Number(numDeletedRows);
  });
}
