/**
 * Empty databases for tests: the same suite runs on SQLite and on a real MySQL or MariaDB server.
 *
 *     onDatabases(test, 'the store', (test, dialect) => {
 *       const databases = useTestDatabase(test, dialect);
 *       test('...', async t => { const database = await databases.open(); ... });
 *     });
 *
 * `onStores` of control-plane/core/test/fixtures.ts opens it and its stores, too.
 *
 * `MATTING_TEST_DATABASE_URL=mysql://user:password@host:port/any` takes that server instead of a
 * private MariaDB; its user must be allowed to create and drop databases named `matting_test_*`.
 */
import { randomBytes } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { migrationsOf } from '@matting/core/test/internals.ts';
import { openDatabase } from '@matting/database/connect.ts';
import type { Database, StoreLog } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { type MigrationSeries, migrate } from '@matting/database/migrate.ts';
import type { ExecutionContext, SerialFn } from 'ava';
import { sql } from 'kysely';
import mysql, { type Connection, format, type RowDataPacket } from 'mysql2/promise';
import { findMariadb, startMariadb } from './mariadb-server.ts';

/** test/databases names one if the other is tested elsewhere. */
export const DIALECTS = (['sqlite', 'mysql'] as const).filter(
  dialect => dialect === (process.env.MATTING_TEST_DIALECT ?? dialect),
);

export function skipReason(dialect: DatabaseDialect): string | false {
  if (dialect === 'sqlite' || process.env.MATTING_TEST_DATABASE_URL || findMariadb()) return false;
  return 'no MariaDB here: install mariadb-server, or set MATTING_TEST_DATABASE_URL=mysql://...';
}

export interface GroupTest {
  (title: string, body: (t: ExecutionContext) => unknown): void;
  before(hook: () => unknown): void;
  readonly after: { always(hook: () => unknown): void };
}

export interface OnDatabases {
  /** SQLite is enough, except with `MATTING_TEST_ALL_DATABASES=1`, which `.ci/run` sets. */
  readonly serverInCi?: boolean;
}

/** Names tests `<name> on <dialect> › <title>`; skips them if the database is missing. */
export function onDatabases(
  test: SerialFn,
  name: string,
  group: (test: GroupTest, dialect: DatabaseDialect) => void,
  { serverInCi = false }: OnDatabases = {},
): void {
  const isFew = serverInCi && !process.env.MATTING_TEST_ALL_DATABASES;
  for (const dialect of isFew ? DIALECTS.slice(0, 1) : DIALECTS) {
    group(groupIf(skipReason(dialect) === false, test, `${name} on ${dialect}`), dialect);
  }
}

/** Names tests `<name> › <title>`. If their condition is false, no hook runs either. */
export function groupIf(isHere: boolean, test: SerialFn, name: string): GroupTest {
  const declare = (title: string, body: (t: ExecutionContext) => unknown) =>
    test.runIf(isHere)(`${name} › ${title}`, body);
  const hook = (register: (hook: () => unknown) => void) => (run: () => unknown) => {
    if (isHere) register(run);
  };
  return Object.assign(declare, {
    before: hook(test.before),
    after: { always: hook(test.after.always) },
  });
}

export const SILENT_LOG: StoreLog = { info: () => undefined, warn: () => undefined };

export interface TestDatabase {
  readonly dialect: DatabaseDialect;
  readonly url: string;
  /** As a second replica would; closed with the test database. */
  open(log?: StoreLog): Promise<Database>;
  close(): Promise<void>;
}

export interface TestDatabaseOptions {
  readonly migrated?: boolean;
  /** Default: the core's tables. */
  readonly series?: readonly MigrationSeries[];
  /** A server of the test's own. */
  readonly server?: string;
}

export async function createTestDatabase(
  dialect: DatabaseDialect,
  options: TestDatabaseOptions = {},
): Promise<TestDatabase> {
  const { migrated = true, series = migrationsOf([]), server } = options;
  const template = migrated && server === undefined ? templateOf(dialect, series) : undefined;
  const place = dialect === 'sqlite' ? createFile(template) : await createSchema(server, template);
  const handles: Database[] = [];
  const test: TestDatabase = {
    dialect,
    url: place.url,
    open: async (log = SILENT_LOG) => {
      const database = await openDatabase(place.url, { log, create: true });
      handles.push(database);
      return database;
    },
    close: async () => {
      await Promise.all(handles.map(database => database.close()));
      await place.remove();
    },
  };
  if (migrated && template === undefined) await migrate(await test.open(), series);
  return test;
}

export function useTestDatabase(
  test: Pick<GroupTest, 'before' | 'after'>,
  dialect: DatabaseDialect,
  options: TestDatabaseOptions = {},
): Pick<TestDatabase, 'open' | 'dialect'> & { url(): string } {
  let opened: TestDatabase | undefined;
  const require = () => {
    if (opened === undefined) throw new Error('the test database is there only while tests run');
    return opened;
  };
  test.before(async () => {
    // Ava runs hooks even if all tests are skipped.
    if (skipReason(dialect)) return;
    opened = await createTestDatabase(dialect, options);
  });
  test.after.always(() => opened?.close());
  return { dialect, url: () => require().url, open: log => require().open(log) };
}

interface Place {
  readonly url: string;
  remove(): Promise<void>;
}

function createFile(template: string | undefined): Place {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-sqlite-'));
  const file = path.join(directory, 'test.sqlite');
  if (template !== undefined) copyFileSync(template, file);
  return {
    url: `sqlite:${file}`,
    remove: async () => rmSync(directory, { recursive: true, force: true }),
  };
}

async function createSchema(
  given: string | undefined,
  template: string | undefined,
): Promise<Place> {
  const server = given ?? (await serverUrl());
  const name = `matting_test_${randomBytes(8).toString('hex')}`;
  const url = new URL(server);
  url.pathname = `/${name}`;
  if (template !== undefined) {
    const script = readFileSync(template, 'utf8');
    await runScript(server, `create database ${name}; use ${name}; ${script}`);
  } else await onServer(server, `create database ${name}`);
  return {
    url: url.href,
    remove: () => onServer(server, `drop database ${name}`),
  };
}

function templateOf(
  dialect: DatabaseDialect,
  series: readonly MigrationSeries[],
): string | undefined {
  const directory = process.env.MATTING_TEST_TEMPLATES;
  const file = directory && path.join(directory, templateName(dialect, series));
  return file && existsSync(file) ? file : undefined;
}

function templateName(dialect: DatabaseDialect, series: readonly MigrationSeries[]): string {
  const names = series.map(one => one.package ?? 'core').join('+');
  return `${names}.${dialect === 'sqlite' ? 'sqlite' : 'sql'}`;
}

export async function writeTemplates(
  directory: string,
  series: readonly MigrationSeries[],
): Promise<void> {
  for (const dialect of DIALECTS.filter(one => skipReason(one) === false)) {
    const file = path.join(directory, templateName(dialect, series));
    // If one package alone has tables, its series equals that of all packages.
    if (existsSync(file)) continue;
    const template = await createTestDatabase(dialect, { series });
    const { kysely } = await template.open();
    if (dialect === 'sqlite') await sql`vacuum into ${file}`.execute(kysely);
    else writeFileSync(file, await scriptOf(template.url));
    await template.close();
  }
}

async function scriptOf(url: string): Promise<string> {
  const connection = await connectTo(url);
  const script = ['set foreign_key_checks = 0'];
  const [tables] = await connection.query<RowDataPacket[]>('show tables');
  for (const name of tables.flatMap(row => Object.values(row) as string[])) {
    const [[made]] = await connection.query<RowDataPacket[]>('show create table ??', [name]);
    const [rows] = await connection.query<RowDataPacket[]>('select * from ??', [name]);
    script.push(
      made?.['Create Table'],
      ...rows.map(row => format('insert into ?? set ?', [name, row])),
    );
  }
  await connection.end();
  return script.join(';\n');
}

async function runScript(url: string, script: string): Promise<void> {
  const connection = await connectTo(url);
  await connection.query(script);
  await connection.end();
}

function connectTo(url: string): Promise<Connection> {
  const { username, password, hostname, port, pathname, searchParams } = new URL(url);
  const socketPath = searchParams.get('socket');
  return mysql.createConnection({
    user: decodeURIComponent(username),
    password: decodeURIComponent(password),
    database: pathname.slice(1),
    multipleStatements: true,
    ...(socketPath ? { socketPath } : { host: hostname, port: Number(port || 3306) }),
  });
}

async function serverUrl(): Promise<string> {
  const given = process.env.MATTING_TEST_DATABASE_URL;
  if (given) return given;
  const socket = await startMariadb();
  return `mysql://root@localhost/mysql?socket=${encodeURIComponent(socket)}`;
}

async function onServer(server: string, statement: string): Promise<void> {
  const database = await openDatabase(server, { log: SILENT_LOG });
  try {
    await sql.raw(statement).execute(database.kysely);
  } finally {
    await database.close();
  }
}
