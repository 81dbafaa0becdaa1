/** What waits, what is late, and what the last checks of the ledger said: of the whole service. */

import path from 'node:path';
import { type Finding, failure, ok, warning } from '#program/doctor/findings.ts';
import { SecretBox } from '../../core/secrets/secret-box.ts';
import {
  judgeSecretsKey,
  readSecretsKey,
  SECRETS_KEY_FILE,
} from '../../core/secrets/secrets-key.ts';
import type { CoreSettings } from '../../core/settings.ts';
import type { StoresWithoutEnds } from '../../core/stores.ts';

const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
/** As the alerts have them: MattingQueueOld, MattingWebhooksLate, MattingMailsLate, … */
const QUEUE_MS_MAX = 60 * SECOND_MS;
const WEBHOOKS_MS_MAX = 60 * SECOND_MS;
const MAILS_MS_MAX = 600 * SECOND_MS;
const SWEEP_MS_MAX = HOUR_MS;
const AUDIT_MS_MAX = 48 * HOUR_MS;

export async function queueFindings(stores: StoresWithoutEnds): Promise<readonly Finding[]> {
  const { jobs, oldestAgeMs } = await stores.jobs.queued();
  const found =
    jobs === 0
      ? 'nothing waits'
      : `${jobs} jobs wait, the oldest for ${Math.round(oldestAgeMs / SECOND_MS)} s`;
  if (oldestAgeMs <= QUEUE_MS_MAX) return [ok('queue', found)];
  return [warning('queue', found, 'add nodes, or see why none takes them: matting jobs list')];
}

export async function deliveryFindings(stores: StoresWithoutEnds): Promise<readonly Finding[]> {
  const webhooks = await stores.outbox.due();
  const mails = await stores.outbox.mailsWaiting();
  return [
    lateness('webhooks', webhooks, WEBHOOKS_MS_MAX, 'matting webhooks list --status pending'),
    lateness('mails', mails, MAILS_MS_MAX, 'see the mail server, and the lines of the log'),
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
  const found = `what expires is removed within ${Math.round(lateMs / SECOND_MS)} s`;
  const advice = 'see the lines "swept" and "a sweep step failed" of the control planes';
  if (lateMs > SWEEP_MS_MAX) return [warning('sweeper', found, advice)];
  if (walkMs === null) return [ok('sweeper', `${found}; it has not walked the storage yet`)];
  return [ok('sweeper', found)];
}

export async function ledgerFindings(stores: StoresWithoutEnds): Promise<readonly Finding[]> {
  const audits = await stores.ledger.lastAudits();
  const problems = audits.reduce((sum, audit) => sum + audit.problems, 0);
  if (problems > 0) {
    const found = `the last check found ${problems} problems`;
    return [failure('ledger', found, 'matting credits check --full names them')];
  }
  const advice = 'matting credits check, once a day (a cron job or a timer)';
  if (audits.length === 0) return [warning('ledger', 'it was never checked', advice)];
  const ageMs = Math.min(...audits.map(audit => audit.ageMs));
  const found = `checked ${Math.round(ageMs / HOUR_MS)} hours ago, and every balance agreed`;
  return [ageMs > AUDIT_MS_MAX ? warning('ledger', found, advice) : ok('ledger', found)];
}

/* Whether the key that this control plane would start with opens what the database holds. */

const SUBJECT = 'secrets';
const CHANGING = 'docs/operations.md, "Changing the secrets key"';

export async function secretsKeyFindings(
  { secretsCanary, outbox }: Pick<StoresWithoutEnds, 'secretsCanary' | 'outbox'>,
  { secretsKey: given, secretsKeyPrevious, dataDir }: CoreSettings,
): Promise<readonly Finding[]> {
  const canary = await secretsCanary.find();
  const key = given ?? (await readSecretsKey(dataDir));
  const file = path.join(dataDir, SECRETS_KEY_FILE);
  if (key === undefined) {
    const found = `there is no key: neither MATTING_SECRETS_KEY nor ${file}`;
    // The first start makes one, where nothing was sealed with another.
    if (canary === undefined) return [ok(SUBJECT, `${found}; the first start makes one`)];
    return [failure(SUBJECT, found, 'bring back the one this database was used with')];
  }
  const keys = [key, ...(secretsKeyPrevious === undefined ? [] : [secretsKeyPrevious])];
  const verdict = canary === undefined ? 'same' : judgeSecretsKey(canary, key, secretsKeyPrevious);
  if (verdict === 'other') {
    const found = 'MATTING_SECRETS_KEY is not the key this database was last used with';
    return [failure(SUBJECT, found, `no control plane starts with it: ${CHANGING}`)];
  }
  const unopened = await outbox.countSealedWithOthers(keys.map(one => new SecretBox(one).keyId));
  if (unopened > 0) {
    const found = `${unopened} notifications wait whose secrets no key here opens`;
    return [warning(SUBJECT, found, `set MATTING_SECRETS_KEY_PREVIOUS: ${CHANGING}`)];
  }
  return [ok(SUBJECT, 'the key opens what the database holds')];
}
