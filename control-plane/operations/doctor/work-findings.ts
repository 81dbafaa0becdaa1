/** The doctor looks at the service's work: what waits, what is late, the ledger's last checks. */
import type { StoresWithoutEnds } from '@matting/core/stores.ts';
import { type Finding, failure, ok, warning } from '@matting/program/doctor/findings.ts';

const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
/** The bounds are those of the alerts: MattingQueueOld, MattingWebhooksLate, MattingMailsLate, … */
const QUEUE_MS_MAX = 60 * SECOND_MS;
const WEBHOOKS_MS_MAX = 60 * SECOND_MS;
const MAILS_MS_MAX = 600 * SECOND_MS;
const SWEEP_MS_MAX = HOUR_MS;
const AUDIT_MS_MAX = 48 * HOUR_MS;

/** @param megapixelsMax MATTING_QUEUE_MEGAPIXELS_MAX; undefined: not known */
export async function queueFindings(
  stores: StoresWithoutEnds,
  megapixelsMax = Number.POSITIVE_INFINITY,
): Promise<readonly Finding[]> {
  const { jobs, megapixels, oldestAgeMs } = await stores.queue.queued();
  if (megapixels >= megapixelsMax) {
    const full = `the queue is full: ${jobs} jobs of ${Math.round(megapixels)} megapixels wait`;
    const advice = 'add nodes; callers with more than their share of the queue get 503 meanwhile';
    return [warning('queue', full, advice)];
  }
  const found =
    jobs === 0
      ? 'no jobs wait'
      : `${jobs} jobs wait, the oldest for ${Math.round(oldestAgeMs / SECOND_MS)} s`;
  if (oldestAgeMs <= QUEUE_MS_MAX) return [ok('queue', found)];
  return [warning('queue', found, 'add nodes, or see why none takes them with matting jobs list')];
}

export async function deliveryFindings(stores: StoresWithoutEnds): Promise<readonly Finding[]> {
  const webhooks = await stores.outbox.due();
  const mails = await stores.outbox.mailsWaiting();
  return [
    lateness('webhooks', webhooks, WEBHOOKS_MS_MAX, 'run matting webhooks list --status pending'),
    lateness('mails', mails, MAILS_MS_MAX, 'check the mail server and the log'),
  ];
}

function lateness(
  subject: string,
  { count, oldestMs }: { readonly count: number; readonly oldestMs: number },
  msMax: number,
  advice: string,
): Finding {
  if (count === 0) return ok(subject, 'none is overdue');
  const found = `${count} wait, the oldest for ${Math.round(oldestMs / SECOND_MS)} s`;
  return oldestMs > msMax ? warning(subject, found, advice) : ok(subject, found);
}

export async function sweepFindings(
  stores: StoresWithoutEnds,
  jobRetentionMs: number,
): Promise<readonly Finding[]> {
  const { walkMs, ...backlog } = await stores.sweeps.backlog(jobRetentionMs);
  const lateMs = Math.max(...Object.values(backlog));
  const found = `removes expired data within ${Math.round(lateMs / SECOND_MS)} s`;
  const advice = 'see "swept" and "a sweep step failed" in the logs of the control planes';
  if (lateMs > SWEEP_MS_MAX) return [warning('sweeper', found, advice)];
  if (walkMs === null) return [ok('sweeper', `${found}; has not walked the storage yet`)];
  return [ok('sweeper', found)];
}

export async function ledgerFindings(stores: StoresWithoutEnds): Promise<readonly Finding[]> {
  const audits = (await stores.ledger.lastAudits()).filter(({ kind }) => kind !== 'none');
  const problems = audits.reduce((sum, audit) => sum + audit.problems, 0);
  if (problems > 0) {
    const found = `the last check found ${problems} problems`;
    return [failure('ledger', found, 'to list them, run matting credits check')];
  }
  const advice = 'run matting credits check once a day (cron job or timer)';
  if (audits.length === 0) return [warning('ledger', 'never checked', advice)];
  const ageMs = Math.min(...audits.map(audit => audit.ageMs));
  const found = `checked ${Math.round(ageMs / HOUR_MS)} hours ago, and every balance agreed`;
  return [ageMs > AUDIT_MS_MAX ? warning('ledger', found, advice) : ok('ledger', found)];
}
