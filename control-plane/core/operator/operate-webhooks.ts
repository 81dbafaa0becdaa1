import type { AuditEntry } from '@matting/accounts/audit-log.ts';
import { isoTime } from '@matting/program/iso-time.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { CallbackStatus } from '../jobs/job-callback.ts';
import type { StoresWithoutEnds } from '../stores.ts';
import type { NotificationFilter, NotificationSummary } from '../webhooks/outbox-listing.ts';

export const NOTIFICATIONS_LISTED_MAX = 1000;
export const NOTIFICATIONS_LISTED_DEFAULT = 50;

/** Minimum time between attempts that people request. Protects a receiver that refuses. */
const RESEND_EVERY_MS = 60_000;

export type OperatorNotification = ReturnType<typeof viewNotification>;

interface NotificationQuestion {
  readonly jobId?: string | undefined;
  readonly accountId?: string | undefined;
  readonly status?: CallbackStatus | undefined;
  readonly limit: number;
  readonly after?: string | undefined;
}

type ResendOutcome = 'retried' | 'no-job' | 'no-callback' | 'open' | 'delivered' | 'secret-erased';

export class OperateWebhooks {
  readonly #stores: Pick<StoresWithoutEnds, 'outbox' | 'jobs'>;

  constructor(stores: Pick<StoresWithoutEnds, 'outbox' | 'jobs'>) {
    this.#stores = stores;
  }

  async list(question: NotificationQuestion): Promise<OperatorNotification[]> {
    const { after, limit, status, accountId } = question;
    const jobId = question.jobId?.toLowerCase();
    const place = after === undefined ? undefined : parseCursor(after);
    const found = await this.#stores.outbox.list({ jobId, accountId, status, limit, after: place });
    return found.map(viewNotification);
  }

  async retry(jobId: string): Promise<ResendOutcome> {
    const id = jobId.toLowerCase();
    const retried = await this.#stores.outbox.retry(id);
    return retried === 'absent' ? this.#whyAbsent(id) : retried;
  }

  /** too-soon: within RESEND_EVERY_MS of the last attempt. */
  async resend(jobId: string, audit: AuditEntry): Promise<ResendOutcome | 'too-soon'> {
    const resent = await this.#stores.outbox.resend(jobId, audit, RESEND_EVERY_MS);
    return resent === 'absent' ? this.#whyAbsent(jobId) : resent;
  }

  async #whyAbsent(id: string): Promise<'no-job' | 'no-callback' | 'open'> {
    const found = await this.#stores.jobs.find(id);
    if (found === undefined) return 'no-job';
    return found.callback === null ? 'no-callback' : 'open';
  }
}

const CURSOR = /^(\d{1,15})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

export function notificationCursor(last: OperatorNotification): string {
  return `${Date.parse(last.created_at)}-${last.job_id}`;
}

function parseCursor(text: string): NotificationFilter['after'] {
  const [, createdAtMs, jobId] = CURSOR.exec(text) ?? [];
  if (jobId === undefined) {
    const fieldErrors = [{ field: 'after', detail: 'must be the cursor of a listed notification' }];
    throw new ContractError('INVALID_REQUEST', 'The query is not valid. Correct after.', {
      fieldErrors,
    });
  }
  return { createdAtMs: Number(createdAtMs), jobId };
}

function viewNotification(notification: NotificationSummary) {
  return {
    job_id: notification.jobId,
    event: notification.event,
    account_id: notification.accountId,
    receiver: notification.receiver,
    status: notification.status,
    attempts: notification.attempts,
    last_status_code: notification.lastStatusCode,
    last_failure: notification.lastFailure,
    last_attempt_at: isoTime(notification.lastAttemptAtMs),
    last_duration_ms: notification.lastDurationMs,
    next_attempt_at: isoTime(notification.nextAttemptAtMs),
    created_at: isoTime(notification.createdAtMs),
    finished_at: isoTime(notification.finishedAtMs),
    secret_erase_at: isoTime(notification.secretEraseAtMs),
  };
}
