import { type AuditEntry, requireAuthority } from '@matting/accounts/audit-log.ts';
import {
  type Database,
  type Db,
  query,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import { isFree } from '@matting/database/leases.ts';
import { isAsciiWord, matchesOne, nowPlusMs, throughIndex } from '@matting/database/statements.ts';
import type { Selection } from 'kysely';
import { type CallbackStatus, callbackFailureOf } from '../jobs/job-callback.ts';
import { loggedAttempts } from './attempt-log.ts';

/** Names the receiver, never the URL. */
export type NotificationSummary = ReturnType<typeof summaryOf>;

export interface NotificationFilter {
  readonly jobId?: string | undefined;
  readonly accountId?: string | undefined;
  readonly status?: CallbackStatus | undefined;
  readonly limit: number;
  readonly after?: { readonly createdAtMs: number; readonly jobId: string } | undefined;
}

type RetryOutcome = 'retried' | 'absent' | 'delivered' | 'secret-erased';

const SUMMARY_COLUMNS = [
  'id as jobId',
  // The type of an account's event, which `jobId` then identifies; null: the end of a job.
  'event',
  'account_id as accountId',
  'receiver',
  'status',
  'attempts',
  'last_status_code as lastStatusCode',
  'last_error',
  'last_attempt_at as lastAttemptAtMs',
  'last_duration_ms as lastDurationMs',
  'attempt_log',
  'next_attempt_at as nextAttemptAtMs',
  'created_at as createdAtMs',
  'finished_at as finishedAtMs',
  // The message can be sent again until then; null: its secret is erased.
  'secret_erase_at as secretEraseAtMs',
] as const;

type SummaryRow = Selection<Schema, 'outbox', (typeof SUMMARY_COLUMNS)[number]>;

export const NOTIFICATION_STATUSES = [
  'pending',
  'delivered',
  'failed',
] as const satisfies readonly CallbackStatus[];

export function outboxListing(database: Database) {
  return {
    list: (filter: NotificationFilter) => listNotifications(database, filter),
    retry: async (id: string): Promise<RetryOutcome> => {
      const { outcome } = await retryNotification(database, id);
      return outcome;
    },
    /** too-soon: the last attempt began within `everyMs`, or is under way. */
    resend: async (
      id: string,
      audit: AuditEntry,
      everyMs: number,
    ): Promise<RetryOutcome | 'too-soon'> => {
      const { outcome, isDue } = await retryNotification(database, id, { audit, everyMs });
      return outcome === 'retried' && !isDue ? 'too-soon' : outcome;
    },
  };
}

/** Leaves out unknown ids. */
export async function readMessages(db: Db, ids: readonly string[]) {
  if (ids.length === 0) return [];
  const rows = await db
    .selectFrom('outbox')
    .select([
      'id',
      'kind',
      'status',
      'attempts',
      'last_status_code as lastStatusCode',
      'last_error',
    ])
    .select('created_at as createdAtMs')
    .where('id', 'in', ids)
    .execute();
  return rows.map(({ last_error, ...row }) => ({
    ...row,
    lastFailure: callbackFailureOf(last_error),
  }));
}

const BY_ACCOUNT = throughIndex('outbox', 'outbox_account');

/** Reads the index outbox_age or outbox_account, once for each status. */
async function listNotifications(
  database: Database,
  { jobId, accountId, status, limit, after }: NotificationFilter,
): Promise<NotificationSummary[]> {
  if (jobId !== undefined && !isAsciiWord(jobId)) return [];
  const rows: SummaryRow[] = [];
  for (const one of status === undefined ? NOTIFICATION_STATUSES : [status]) {
    const some = await query(database, db => {
      const ofAll = db.selectFrom('outbox').select(SUMMARY_COLUMNS).where('kind', '=', 'webhook');
      if (jobId !== undefined) {
        return ofAll.where('id', '=', jobId).where('status', '=', one).execute();
      }
      const select =
        accountId === undefined
          ? ofAll
          : db
              .selectFrom(BY_ACCOUNT[database.dialect])
              .select(SUMMARY_COLUMNS)
              .where('account_id', '=', accountId)
              .where('kind', '=', 'webhook');
      const older =
        after === undefined
          ? select
          : select
              .where('created_at', '<=', after.createdAtMs)
              .where(eb =>
                eb.or([eb('created_at', '<', after.createdAtMs), eb('id', '<', after.jobId)]),
              );
      return older
        .where('status', '=', one)
        .orderBy('created_at', 'desc')
        .orderBy('id', 'desc')
        .limit(limit)
        .execute();
    });
    rows.push(...some);
  }
  rows.sort((a, b) => b.createdAtMs - a.createdAtMs || (a.jobId < b.jobId ? 1 : -1));
  return rows.slice(0, limit).map(summaryOf);
}

function summaryOf({ attempt_log, last_error, ...row }: SummaryRow) {
  const lastFailure = callbackFailureOf(last_error);
  return { ...row, lastFailure, log: loggedAttempts(attempt_log) };
}

/** Grants one more attempt. Does not touch one in progress. */
async function retryNotification(
  database: Database,
  id: string,
  by?: { readonly audit: AuditEntry; readonly everyMs: number },
): Promise<{ readonly outcome: RetryOutcome; readonly isDue: boolean }> {
  if (!isAsciiWord(id)) return { outcome: 'absent', isDue: false };
  const { nowMs } = database;
  return transact(database, async tx => {
    const audit = by?.audit;
    const change = audit && (await requireAuthority(database, tx, { ...audit, entryId: audit.id }));
    const update = tx
      .updateTable('outbox')
      .set({ status: 'pending', finished_at: null, next_attempt_at: nowMs })
      .where('id', '=', id)
      .where('kind', '=', 'webhook')
      .where('status', 'in', ['pending', 'failed'])
      .where('secret_erase_at', '>', nowMs)
      .where(isFree(database));
    const rested = nowPlusMs(nowMs, -(by?.everyMs ?? 0));
    const isDue = await matchesOne(
      by === undefined
        ? update
        : update.where(eb =>
            eb.or([eb('last_attempt_at', 'is', null), eb('last_attempt_at', '<=', rested)]),
          ),
    );
    const row = await tx
      .selectFrom('outbox')
      .select(['status', 'secret_erase_at'])
      .select(() => nowMs.as('read_at'))
      .where('id', '=', id)
      .where('kind', '=', 'webhook')
      .executeTakeFirst();
    if (row === undefined) return { outcome: 'absent', isDue };
    if (row.status === 'delivered') return { outcome: 'delivered', isDue };
    const { secret_erase_at: eraseAtMs, read_at: nowAtMs } = row;
    const isErased = eraseAtMs === null || eraseAtMs <= nowAtMs;
    if (isErased) return { outcome: 'secret-erased', isDue };
    if (isDue && audit) {
      const { action, subject } = audit;
      await change?.log({ action, subject });
    }
    return { outcome: 'retried', isDue };
  });
}
