/** What the operator asks of the outbox: to see it, and to have one notification sent again. */
import type { Selectable } from 'kysely';
import type { Database } from './connect.ts';
import { isAsciiWord } from './rows.ts';
import type { WebhookOutboxTable } from './schema.ts';
import { query, transact } from './transact.ts';
import type {
  NotificationFilter,
  NotificationSummary,
  RetryOutcome,
} from './webhook-outbox-store.ts';

const SUMMARY_COLUMNS = [
  'job_id',
  'account_id',
  'receiver',
  'status',
  'attempts',
  'last_status_code',
  'last_attempt_at',
  'next_attempt_at',
  'created_at',
  'finished_at',
  'secret_erase_at',
] as const satisfies readonly (keyof WebhookOutboxTable)[];

export async function listNotifications(
  database: Database,
  { jobId, status, limit }: NotificationFilter,
): Promise<NotificationSummary[]> {
  if (jobId !== undefined && !isAsciiWord(jobId)) return [];
  const rows = await query(database, db => {
    let select = db.selectFrom('webhook_outbox').select(SUMMARY_COLUMNS);
    if (jobId !== undefined) select = select.where('job_id', '=', jobId);
    if (status !== undefined) select = select.where('status', '=', status);
    return select.orderBy('created_at', 'desc').orderBy('job_id').limit(limit).execute();
  });
  return rows.map(summaryOf);
}

function summaryOf(
  row: Pick<Selectable<WebhookOutboxTable>, (typeof SUMMARY_COLUMNS)[number]>,
): NotificationSummary {
  return {
    jobId: row.job_id,
    accountId: row.account_id,
    receiver: row.receiver,
    status: row.status,
    attempts: row.attempts,
    lastStatusCode: row.last_status_code,
    lastAttemptAtMs: row.last_attempt_at,
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
export async function retryNotification(database: Database, jobId: string): Promise<RetryOutcome> {
  if (!isAsciiWord(jobId)) return 'absent';
  const { nowMs } = database;
  return transact(database, async tx => {
    await tx
      .updateTable('webhook_outbox')
      .set({ status: 'pending', finished_at: null, next_attempt_at: nowMs })
      .where('job_id', '=', jobId)
      .where('status', 'in', ['pending', 'failed'])
      .where('secret_erase_at', '>', nowMs)
      .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]))
      .execute();
    const row = await tx
      .selectFrom('webhook_outbox')
      .select(['status', 'secret_erase_at'])
      .select(() => nowMs.as('read_at'))
      .where('job_id', '=', jobId)
      .executeTakeFirst();
    if (row === undefined) return 'absent';
    if (row.status === 'delivered') return 'delivered';
    const { secret_erase_at: eraseAtMs, read_at: nowAtMs } = row;
    return eraseAtMs !== null && eraseAtMs > nowAtMs ? 'retried' : 'secret-erased';
  });
}
