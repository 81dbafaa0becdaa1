/**
 * The doctor examines the database (whether it answers, is one the store is made for, takes writes,
 * and is up to date) and its contents: what waits, what is late, the ledger's last checks, the key.
 */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { SecretBox } from '@matting/core/secrets/secret-box.ts';
import {
  judgeSecretsKey,
  readSecretsKey,
  SECRETS_KEY_FILE,
} from '@matting/core/secrets/secrets-key.ts';
import type { CoreSettings } from '@matting/core/settings.ts';
import { requireWrites, type StoresWithoutEnds } from '@matting/core/stores.ts';
import { openDatabase } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import { MEMBER_CLOCKS_MS_MAX, requireAgreeingClocks } from '@matting/database/member-clocks.ts';
import {
  ELSEWHERE,
  leavesNoWayBack,
  type MigrationSeries,
  schemaState,
} from '@matting/database/migrate.ts';
import { probeDatabase, readRights } from '@matting/database/probe.ts';
import { type Finding, failure, ok, reasonOf, warning } from '@matting/program/doctor/findings.ts';

const SUBJECT = 'database';
const MIGRATIONS = 'migrations';
const CLOCKS = 'clocks';
const PAGE = 'docs/database.md';
/** One query should take less: replicas and the database belong in one network. */
const ANSWER_MS_WARN = 50;
/** This machine's clock only dates its log and checks certificates. */
const CLOCK_OFF_MS_WARN = 30_000;

/** Each statement proves a right and matches no row. */
const PROOFS = {
  SELECT: 'select id from sweeps where 1 = 0',
  INSERT: 'insert into sweeps (id, fence, walk_part) select id, 0, 0 from sweeps where 1 = 0',
  UPDATE: 'update sweeps set fence = fence where 1 = 0',
  DELETE: 'delete from sweeps where 1 = 0',
};

export interface ExaminedDatabase {
  readonly findings: readonly Finding[];
  /** The caller closes it. Undefined: it cannot be queried. */
  readonly database: Database | undefined;
  readonly current: boolean;
}

/** Opens the database, changes nothing, and makes no file. */
export async function examineDatabase(
  databaseUrl: string,
  packages: readonly MigrationSeries[],
): Promise<ExaminedDatabase> {
  const missing = await missingFile(databaseUrl);
  if (missing !== undefined) {
    const found = `there is no database at ${missing}`;
    return { findings: [failure(SUBJECT, found, ELSEWHERE)], database: undefined, current: false };
  }
  const findings: Finding[] = [];
  const warn = (_: unknown, message?: string) => {
    if (message !== undefined) findings.push(warning(SUBJECT, message, PAGE));
  };
  let database: Database;
  try {
    database = await openDatabase(databaseUrl, { log: { info: () => undefined, warn } });
  } catch (error) {
    const advice =
      'start the database, or correct MATTING_DATABASE_URL; requests get 503 meanwhile';
    return {
      findings: [...findings, failure(SUBJECT, reasonOf(error), advice)],
      database: undefined,
      current: false,
    };
  }
  try {
    findings.push(...(await answerFindings(database)));
    const { findings: ofSchema, current } = await schemaFindings(database, packages);
    findings.push(...ofSchema, ...(await memberFindings(database)));
    if (current) findings.push(...(await writingFindings(database)));
    return { findings, database, current };
  } catch (error) {
    await database.close().catch(() => undefined);
    throw error;
  }
}

export async function missingFile(databaseUrl: string): Promise<string | undefined> {
  if (!databaseUrl.startsWith('sqlite:')) return undefined;
  const file = databaseUrl.slice('sqlite:'.length);
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
    throw error;
  });
  return found === undefined ? file : undefined;
}

async function answerFindings(database: Database): Promise<Finding[]> {
  const { engine, version, answerMs, clockAheadMs } = await probeDatabase(database);
  // The rest of the version names the distribution's build.
  const name = `${engine} ${/^[\d.]+/.exec(version)?.[0] ?? version}`;
  const time = `answers in ${answerMs.toFixed(1)} ms`;
  const findings: Finding[] = [];
  if (answerMs > ANSWER_MS_WARN) {
    const advice =
      'a job makes about ten queries in a row; move the database nearer, or check its load';
    findings.push(warning(SUBJECT, `${name} ${time}`, advice));
  } else {
    findings.push(ok(SUBJECT, `${name} ${time}`));
  }
  const seconds = Math.round(Math.abs(clockAheadMs) / 1000);
  if (Math.abs(clockAheadMs) > CLOCK_OFF_MS_WARN) {
    const side = clockAheadMs > 0 ? 'ahead of' : 'behind';
    const found = `the database's clock is ${seconds} s ${side} this machine's`;
    findings.push(
      warning(CLOCKS, found, 'synchronise both clocks (NTP); leases use the database’s'),
    );
  } else {
    findings.push(ok(CLOCKS, `the database's clock and this machine's differ by ${seconds} s`));
  }
  return findings;
}

async function memberFindings(database: Database): Promise<Finding[]> {
  if (database.engine.members === 'one') return [];
  try {
    await requireAgreeingClocks(database);
  } catch (error) {
    return [
      failure(CLOCKS, reasonOf(error), 'synchronise them; until then no control plane starts'),
    ];
  }
  const seconds = MEMBER_CLOCKS_MS_MAX / 1000;
  return [ok(CLOCKS, `the clocks of the database's visible members agree within ${seconds} s`)];
}

async function schemaFindings(database: Database, packages: readonly MigrationSeries[]) {
  const { older, pending, unknown } = await schemaState(database, packages);
  if (older !== undefined) {
    return { findings: [failure(MIGRATIONS, older.found, older.advice)], current: false };
  }
  const findings: Finding[] = [];
  const newer = `a newer version made ${unknown.join(', ')}`;
  const final = unknown.some(leavesNoWayBack);
  if (final)
    findings.push(failure(MIGRATIONS, newer, 'run that version, or restore an older backup'));
  if (pending.length > 0) {
    const found = `the database lacks ${pending.join(', ')}`;
    findings.push(failure(MIGRATIONS, found, 'run matting migrate, or start a control plane'));
  }
  const current = findings.length === 0;
  if (current && unknown.length > 0) {
    findings.push(
      warning(
        MIGRATIONS,
        newer,
        'this version works too: the newer one only added to the database',
      ),
    );
  } else if (current) findings.push(ok(MIGRATIONS, 'the database is up to date'));
  return { findings, current };
}

async function writingFindings(database: Database): Promise<Finding[]> {
  try {
    await requireWrites(database);
  } catch (error) {
    const advice =
      'point the address to the primary; on SQLite, check the file’s permissions and disk';
    return [failure(SUBJECT, reasonOf(error), advice)];
  }
  const { missing, tooWide } = await readRights(database, PROOFS);
  if (missing.length > 0) {
    const found = `the user may not ${missing.join(', ')}`;
    return [failure(SUBJECT, found, 'grant it select, insert, update and delete on its database')];
  }
  if (tooWide.length > 0) {
    const found = `the user has ${tooWide.join(', ')} on the whole server`;
    const advice = 'grant it rights only on its own database, so that fail-over protects it';
    return [warning(SUBJECT, found, advice)];
  }
  return [ok(SUBJECT, 'takes writes, and the user has its rights')];
}

/* These findings cover the whole service: what waits, what is late, the ledger's last checks. */

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
  const { jobs, megapixels, oldestAgeMs } = await stores.jobs.queued();
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

/* Whether the key that this control plane would start with opens what the database holds. */

const WORK_FINDINGS_SUBJECT = 'secrets';
const CHANGING = 'docs/operate.md, "Change the secrets key"';

export async function secretsKeyFindings(
  { secretsCanary, outbox }: Pick<StoresWithoutEnds, 'secretsCanary' | 'outbox'>,
  { secretsKey: given, secretsKeyPrevious, dataDir }: CoreSettings,
): Promise<readonly Finding[]> {
  const canary = await secretsCanary.find();
  const key = given ?? (await readSecretsKey(dataDir));
  const file = path.join(dataDir, SECRETS_KEY_FILE);
  if (key === undefined) {
    const found = `no key: neither MATTING_SECRETS_KEY nor ${file}`;
    // The first start makes a key, if no other key has sealed anything.
    if (canary === undefined)
      return [ok(WORK_FINDINGS_SUBJECT, `${found}; the first start creates one`)];
    return [
      failure(WORK_FINDINGS_SUBJECT, found, 'restore the key that this database was used with'),
    ];
  }
  const keys = [key, ...(secretsKeyPrevious === undefined ? [] : [secretsKeyPrevious])];
  const verdict = canary === undefined ? 'same' : judgeSecretsKey(canary, key, secretsKeyPrevious);
  if (verdict === 'other') {
    const found = 'MATTING_SECRETS_KEY is not the key this database was last used with';
    return [
      failure(
        WORK_FINDINGS_SUBJECT,
        found,
        `set the right key; no control plane starts with this one: ${CHANGING}`,
      ),
    ];
  }
  const unopened = await outbox.countSealedWithOthers(keys.map(one => new SecretBox(one).keyId));
  if (unopened > 0) {
    const found = `no key opens the secrets of ${unopened} waiting notifications`;
    return [warning(WORK_FINDINGS_SUBJECT, found, `set MATTING_SECRETS_KEY_PREVIOUS: ${CHANGING}`)];
  }
  return [ok(WORK_FINDINGS_SUBJECT, 'the key opens what the database holds')];
}
