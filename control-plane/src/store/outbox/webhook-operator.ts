/** What the operator asks of the outbox: to see it, and to have one notification sent again. */
import type { Selectable } from 'kysely';
import type { CallbackStatus } from '../../domain/job.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import type { WebhookOutboxTable } from '../database/schema.ts';
import { query, transact } from '../database/transact.ts';
import { isAsciiWord, matchesOne } from '../database/values.ts';
import { type AuditEntry, insertAuditEntry } from '../people/audit.ts';
import { requireAuthority } from '../people/authority.ts';
import { loggedAttempts } from './attempt-log.ts';
import type {
  NotificationFilter,
  NotificationSummary,
  RetryOutcome,
  WebhookOutboxStore,
} from './webhook-outbox-store.ts';

const SUMMARY_COLUMNS = [
  'job_id',
  'event',
  'account_id',
  'receiver',
  'status',
  'attempts',
  'last_status_code',
  'last_attempt_at',
  'last_duration_ms',
  'attempt_log',
  'next_attempt_at',
  'created_at',
  'finished_at',
  'secret_erase_at',
] as const satisfies readonly (keyof WebhookOutboxTable)[];

type SummaryRow = Pick<Selectable<WebhookOutboxTable>, (typeof SUMMARY_COLUMNS)[number]>;

const STATUSES = ['pending', 'delivered', 'failed'] as const satisfies readonly CallbackStatus[];

export function notificationListing(
  database: Database,
): Pick<WebhookOutboxStore, 'list' | 'retry' | 'resend'> {
  return {
    list: filter => listNotifications(database, filter),
    retry: async jobId => {
      const { outcome } = await retryNotification(database, jobId);
      return outcome;
    },
    resend: async (jobId, audit, everyMs) => {
      const { outcome, isDue } = await retryNotification(database, jobId, { audit, everyMs });
      return outcome === 'retried' && !isDue ? 'too-soon' : outcome;
    },
  };
}

/** Along webhook_outbox_age, one walk a status. */
async function listNotifications(
  database: Database,
  { jobId, status, limit, after }: NotificationFilter,
): Promise<NotificationSummary[]> {
  if (jobId !== undefined && !isAsciiWord(jobId)) return [];
  const rows: SummaryRow[] = [];
  for (const one of status === undefined ? STATUSES : [status]) {
    const some = await query(database, db => {
      const select = db.selectFrom('webhook_outbox').select(SUMMARY_COLUMNS);
      if (jobId !== undefined) {
        return select.where('job_id', '=', jobId).where('status', '=', one).execute();
      }
      const older =
        after === undefined
          ? select
          : select
              .where('created_at', '<=', after.createdAtMs)
              .where(eb =>
                eb.or([eb('created_at', '<', after.createdAtMs), eb('job_id', '<', after.jobId)]),
              );
      return older
        .where('status', '=', one)
        .orderBy('created_at', 'desc')
        .orderBy('job_id', 'desc')
        .limit(limit)
        .execute();
    });
    rows.push(...some);
  }
  rows.sort((a, b) => b.created_at - a.created_at || (a.job_id < b.job_id ? 1 : -1));
  return rows.slice(0, limit).map(summaryOf);
}

function summaryOf(row: SummaryRow): NotificationSummary {
  return {
    jobId: row.job_id,
    event: row.event,
    accountId: row.account_id,
    receiver: row.receiver,
    status: row.status,
    attempts: row.attempts,
    lastStatusCode: row.last_status_code,
    lastAttemptAtMs: row.last_attempt_at,
    lastDurationMs: row.last_duration_ms,
    log: loggedAttempts(row.attempt_log),
    nextAttemptAtMs: row.next_attempt_at,
    createdAtMs: row.created_at,
    finishedAtMs: row.finished_at,
    secretEraseAtMs: row.secret_erase_at,
  };
}

/**
 * Makes the next attempt due now, of a failed notification too: it then has one attempt more. One
 * that is being sent at this moment is left to that attempt, which answers for it.
 */
async function retryNotification(
  database: Database,
  jobId: string,
  by?: { readonly audit: AuditEntry; readonly everyMs: number },
): Promise<{ readonly outcome: RetryOutcome; readonly isDue: boolean }> {
  if (!isAsciiWord(jobId)) return { outcome: 'absent', isDue: false };
  const { nowMs } = database;
  return transact(database, async tx => {
    const audit = by?.audit;
    const actor = audit && (await requireAuthority(database, tx, { ...audit, entryId: audit.id }));
    const update = tx
      .updateTable('webhook_outbox')
      .set({ status: 'pending', finished_at: null, next_attempt_at: nowMs })
      .where('job_id', '=', jobId)
      .where('status', 'in', ['pending', 'failed'])
      .where('secret_erase_at', '>', nowMs)
      .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]));
    const rested = nowPlusMs(nowMs, -(by?.everyMs ?? 0));
    const isDue = await matchesOne(
      by === undefined
        ? update
        : update.where(eb =>
            eb.or([eb('last_attempt_at', 'is', null), eb('last_attempt_at', '<=', rested)]),
          ),
    );
    const row = await tx
      .selectFrom('webhook_outbox')
      .select(['status', 'secret_erase_at'])
      .select(() => nowMs.as('read_at'))
      .where('job_id', '=', jobId)
      .executeTakeFirst();
    if (row === undefined) return { outcome: 'absent', isDue };
    if (row.status === 'delivered') return { outcome: 'delivered', isDue };
    const { secret_erase_at: eraseAtMs, read_at: nowAtMs } = row;
    const isErased = eraseAtMs === null || eraseAtMs <= nowAtMs;
    if (isErased) return { outcome: 'secret-erased', isDue };
    if (isDue && audit && actor) await insertAuditEntry(database, tx, { ...audit, actor });
    return { outcome: 'retried', isDue };
  });
}
