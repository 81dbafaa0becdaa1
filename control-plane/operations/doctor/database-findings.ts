/**
 * The doctor examines the database: whether it answers, is one the store is made for, takes writes,
 * and is up to date.
 */
import { stat } from 'node:fs/promises';
import { createStores } from '@matting/core/stores.ts';
import { openDatabase, parseMysqlUrl } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import { isFull } from '@matting/database/engines.ts';
import {
  ELSEWHERE,
  leavesNoWayBack,
  type MigrationSeries,
  schemaState,
} from '@matting/database/migrate.ts';
import { probeDatabase } from '@matting/database/probe.ts';
import { type Finding, failure, ok, reasonOf, warning } from '@matting/program/doctor/findings.ts';
import { unlessMissing } from './disk-findings.ts';

const SUBJECT = 'database';
const MIGRATIONS = 'migrations';
const CLOCKS = 'clocks';
const PAGE = 'docs/database.md';
/** One query should take less: replicas and the database belong in one network. */
const ANSWER_MS_WARN = 50;
/** The clock of this machine only dates its log and checks certificates. */
const CLOCK_OFF_MS_WARN = 30_000;

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
    const found = reasonOf(error);
    return {
      findings: [...findings, failure(SUBJECT, found, adviceOf(found, (error as Error).cause))],
      database: undefined,
      current: false,
    };
  }
  try {
    findings.push(...(await answerFindings(database, databaseUrl)));
    const { findings: ofSchema, current } = await schemaFindings(database, packages);
    findings.push(...ofSchema);
    if (current) findings.push(...(await writingFindings(database)));
    return { findings, database, current };
  } catch (error) {
    await database.close().catch(() => undefined);
    throw error;
  }
}

/** The server's message has the user and the host that it sees, and no password. */
function adviceOf(found: string, cause: unknown): string {
  const [, user] = /Access denied for user ('[^']*'@'[^']*')/.exec(found) ?? [];
  if (user !== undefined) {
    return `create the user ${user}, or correct the password in MATTING_DATABASE_URL; see docs/security.md`;
  }
  const { errno } = (cause ?? {}) as { errno?: unknown };
  if (isFull(errno)) {
    return 'let the user open more connections, or set connection-limit in MATTING_DATABASE_URL';
  }
  if (typeof errno === 'number' && errno > 0)
    return `the server runs: change what it refuses; see ${PAGE}`;
  return 'start the database, or correct MATTING_DATABASE_URL; requests get 503 meanwhile';
}

function connectionOf({ dialect }: Database, databaseUrl: string): string {
  if (dialect === 'sqlite') return '';
  return parseMysqlUrl(databaseUrl).ssl === undefined ? ', without TLS' : ', with TLS';
}

async function missingFile(databaseUrl: string): Promise<string | undefined> {
  if (!databaseUrl.startsWith('sqlite:')) return undefined;
  const file = databaseUrl.slice('sqlite:'.length);
  const found = await stat(file).catch(unlessMissing);
  return found === undefined ? file : undefined;
}

async function answerFindings(database: Database, databaseUrl: string): Promise<Finding[]> {
  const { engine, version, answerMs, clockAheadMs } = await probeDatabase(database);
  // The rest of the version names the distribution's build.
  const name = `${engine} ${/^[\d.]+/.exec(version)?.[0] ?? version}`;
  const time = `answers in ${answerMs.toFixed(1)} ms${connectionOf(database, databaseUrl)}`;
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
  const stores = createStores(database);
  try {
    await stores.check();
  } catch (error) {
    const advice =
      'point the address to the primary; on SQLite, check the file’s permissions and disk';
    return [failure(SUBJECT, reasonOf(error), advice)];
  }
  const { missing, tooWide } = await stores.rights();
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
