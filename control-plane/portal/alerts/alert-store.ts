/**
 * Notices of low balances, and the state of each threshold. A notice commits with its threshold's
 * row and with its event and mails in the outbox, by compare-and-set: of all replicas only one
 * queues it.
 *
 * | threshold | entered by                                | left by                              |
 * |-----------|-------------------------------------------|--------------------------------------|
 * | armed     | an owner sets it; the balance is above it | available <= threshold: notice       |
 * | notified  | a message of the notice is in the outbox  | available > threshold, and credits   |
 * |           |                                           | were added, or an hour has passed    |
 *
 * If the account's daily quota withholds the whole notice, the threshold stays armed. If it
 * withholds a part, the threshold is notified with a rest (`withheld_at`, `withheld_rest`). The next
 * day (UTC) the rest is sent if the balance is still low.
 *
 * The second condition exists because failed jobs return credits: without it, an account whose jobs
 * fail at a threshold would get a notice for each. Credits were certainly added if available plus
 * reserved exceed their sum at the notice.
 */

import { selectAccounts } from '@matting/accounts/account-store.ts';
import type { Balances } from '@matting/accounts/ledger/ledger.ts';
import { readMessages } from '@matting/core/webhooks/outbox-listing.ts';
import type { AccountEventRow, NewMail } from '@matting/core/webhooks/outbox-store.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { matchesOne, startOfDay } from '@matting/database/statements.ts';
import { removeOldCounts } from '../mails/messages.ts';
import {
  EVERYTHING,
  isWithheldToday,
  type QueuedNotice,
  type Rest,
  writeNotice,
} from './notices.ts';

export interface AlertCursor {
  readonly accountId: string;
  readonly threshold: number;
}

export const FIRST_ALERT: AlertCursor = { accountId: '', threshold: -1 };

export type SeenAlert = Awaited<ReturnType<typeof readAlerts>>[number];

export interface LowBalanceNotice {
  readonly alert: SeenAlert;
  readonly eventId: string;
  readonly event?: AccountEventRow | undefined;
  readonly mails: readonly NewMail[];
  readonly messagesMax: number;
}

const OWNERS_NOTIFIED_MAX = 20;

export type AlertStore = ReturnType<typeof createAlertStore>;

export function createAlertStore(database: Database) {
  return {
    readPage: (after: AlertCursor, limit: number) => readAlerts(database, after, limit),
    owners: (accountId: string) => query(database, db => readOwners(db, accountId)),
    removeOldCounts: (limit: number) => removeOldCounts(database, limit),
    /** Undefined: another replica queued the notice, or the balance has risen since it was read. */
    queue: (notice: LowBalanceNotice) =>
      transact(database, tx => queueNotice(database, tx, notice)),
    arm: ({ accountId, threshold, notified }: SeenAlert) =>
      query(database, db =>
        matchesOne(
          db
            .updateTable('balance_alerts')
            .set({ told_at: null, told_credits: null, told_event: null })
            .set({ withheld_at: null, withheld_rest: null })
            .where('account_id', '=', accountId)
            .where('threshold', '=', threshold)
            .where('told_at', '=', notified?.atMs ?? -1),
        ),
      ),
  };
}

async function readAlerts(database: Database, after: AlertCursor, limit: number) {
  const rows = await query(database, db => {
    const page = db
      .selectFrom('balance_alerts')
      .selectAll()
      .where('account_id', '>=', after.accountId)
      .where(eb =>
        eb.or([eb('account_id', '>', after.accountId), eb('threshold', '>', after.threshold)]),
      )
      .orderBy('account_id')
      .orderBy('threshold')
      .limit(limit);
    // With an inner join a server may start with all accounts.
    return db
      .selectFrom(page.as('alert'))
      .leftJoin(selectAccounts(db).as('account'), 'account.id', 'alert.account_id')
      .select(['alert.account_id', 'alert.threshold', 'alert.told_at', 'alert.told_credits'])
      .select(['alert.withheld_at', 'alert.withheld_rest'])
      .select(['account.name', 'account.available', 'account.reserved'])
      .select(() => database.nowMs.as('seen_at'))
      .orderBy('alert.account_id')
      .orderBy('alert.threshold')
      .execute();
  });
  return rows.flatMap(({ name, available, reserved, ...row }) => {
    // An account that was removed by hand has no owner.
    if (name === null || available === null || reserved === null) return [];
    const notified: AlertState['notified'] =
      row.told_at === null ? null : { atMs: row.told_at, credits: row.told_credits ?? 0 };
    return {
      accountId: row.account_id,
      accountName: name,
      threshold: row.threshold,
      notified,
      rest: row.withheld_rest,
      isWithheldToday: isWithheldToday(row, row.seen_at),
      balances: { available, reserved },
      seenAtMs: row.seen_at,
    };
  });
}

/** Owners who can get a mail. A null language means that they chose none. */
function readOwners(db: Db, accountId: string) {
  return db
    .selectFrom('members')
    .innerJoin('users', 'users.id', 'members.user_id')
    .select(['users.mail', 'users.language'])
    .where('members.account_id', '=', accountId)
    .where('members.role', '=', 'owner')
    .where('users.disabled_at', 'is', null)
    .orderBy('members.user_id')
    .limit(OWNERS_NOTIFIED_MAX)
    .execute();
}

async function queueNotice(
  database: Database,
  tx: Db,
  notice: LowBalanceNotice,
): Promise<QueuedNotice | undefined> {
  const { alert, eventId } = notice;
  const { accountId, threshold, balances, notified, rest: wanted } = alert;
  const { nowMs } = database;
  const isFirst = await matchesOne(
    tx
      .updateTable('balance_alerts')
      .set({ withheld_at: nowMs })
      .where('account_id', '=', accountId)
      .where('threshold', '=', threshold)
      .where('told_at', notified === null ? 'is' : '=', notified?.atMs ?? null)
      .where('withheld_rest', wanted === null ? 'is' : '=', wanted)
      .where(eb =>
        eb.or([eb('withheld_at', 'is', null), eb('withheld_at', '<', startOfDay(nowMs))]),
      )
      .where(eb =>
        eb.exists(
          selectAccounts(tx).where('id', '=', accountId).where('available', '<=', threshold),
        ),
      ),
  );
  if (!isFirst) return queuedBefore(tx, notice);
  const { queued, rest } = await writeNotice(
    database,
    tx,
    { ...notice, accountId },
    wanted ?? EVERYTHING,
  );
  const credits = balances.available + balances.reserved;
  const isTold = rest === null || queued.mails > 0 || queued.event;
  await tx
    .updateTable('balance_alerts')
    .set(isTold ? { told_at: nowMs, told_credits: credits, told_event: eventId } : {})
    .set({ withheld_at: rest === null ? null : nowMs, withheld_rest: rest })
    .where('account_id', '=', accountId)
    .where('threshold', '=', threshold)
    .execute();
  return queued;
}

async function queuedBefore(
  db: Db,
  { alert, eventId, mails }: LowBalanceNotice,
): Promise<QueuedNotice | undefined> {
  const row = await db
    .selectFrom('balance_alerts')
    .select('told_event')
    .where('account_id', '=', alert.accountId)
    .where('threshold', '=', alert.threshold)
    .executeTakeFirst();
  if (row?.told_event !== eventId) return undefined;
  const written = await readMessages(db, [eventId, ...mails.map(({ id }) => id)]);
  const sent = written.filter(({ kind }) => kind === 'mail').length;
  return { mails: sent, event: sent < written.length, withheld: [] };
}

export const THRESHOLDS_MAX = 5;
const THRESHOLD_CREDITS_MAX = 1_000_000_000;
/** Wait between two notices if credits were not certainly added. */
const NOTICE_AGAIN_MS = 3_600_000;

interface AlertState {
  readonly threshold: number;
  readonly notified: { readonly atMs: number; readonly credits: number } | null;
  readonly rest: Rest | null;
  /** Today's quota withheld something, so the next try is tomorrow. */
  readonly isWithheldToday: boolean;
}

type AlertStep = 'notify' | 'arm' | 'none';

export function alertStep(
  { threshold, notified, rest, isWithheldToday }: AlertState,
  { available, reserved }: Balances,
  nowMs: number,
): AlertStep {
  if (available <= threshold) {
    const isDue = notified === null || rest !== null;
    return isDue && !isWithheldToday ? 'notify' : 'none';
  }
  if (notified === null) return 'none';
  const added = available + reserved > notified.credits;
  return added || nowMs - notified.atMs >= NOTICE_AGAIN_MS ? 'arm' : 'none';
}

/** In falling order, each once. Undefined: not whole numbers of credits, or too many. */
export function thresholdsOf(texts: readonly string[]): number[] | undefined {
  const given = texts.map(text => text.trim()).filter(text => text !== '');
  const thresholds = [...new Set(given.map(thresholdOf))];
  if (thresholds.length > THRESHOLDS_MAX) return undefined;
  if (thresholds.some(threshold => threshold === undefined)) return undefined;
  return (thresholds as number[]).sort((one, other) => other - one);
}

function thresholdOf(text: string): number | undefined {
  const credits = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  return credits <= THRESHOLD_CREDITS_MAX ? credits : undefined;
}

type AccountEvent = 'account.balance_low' | 'account.webhook_test';

export interface LowBalance {
  readonly accountId: string;
  readonly accountName: string;
  readonly threshold: number;
  readonly balances: Balances;
  readonly atMs: number;
}

/** The body of account.balance_low. @param eventId the message's, which may arrive twice */
export function lowBalanceBody(eventId: string, low: LowBalance): string {
  const { accountId, accountName, threshold, balances, atMs } = low;
  const { available, reserved } = balances;
  return JSON.stringify({
    type: 'account.balance_low' satisfies AccountEvent,
    timestamp: new Date(atMs).toISOString(),
    event_id: eventId,
    data: {
      account_id: accountId,
      account: accountName,
      threshold,
      credits: { available, reserved },
    },
  });
}

export function webhookTestBody(
  eventId: string,
  account: { readonly id: string; readonly name: string },
  atMs: number,
): string {
  return JSON.stringify({
    type: 'account.webhook_test' satisfies AccountEvent,
    timestamp: new Date(atMs).toISOString(),
    event_id: eventId,
    data: { account_id: account.id, account: account.name },
  });
}
