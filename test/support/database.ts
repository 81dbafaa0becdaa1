/**
 * Empty databases for tests: the same suite runs on SQLite and on a real MySQL or MariaDB server.
 *
 *     describeOnDatabases('the store', dialect => {
 *       const databases = useTestDatabase(dialect);
 *       it('...', async () => { const database = await databases.open(); ... });
 *     });
 *
 * `describeStores` of control-plane/test/store/fixtures.ts opens it and its stores, too.
 *
 * `MATTING_TEST_DATABASE_URL=mysql://user:password@host:port/any` takes that server instead of a
 * private MariaDB; its user must be allowed to create and drop databases named `matting_test_*`.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import mysql, { type RowDataPacket } from 'mysql2/promise';
import type { DatabaseDialect } from '../../control-plane/src/store/database/clock.ts';
import {
  type Database,
  openDatabase,
  type StoreLog,
} from '../../control-plane/src/store/database/connect.ts';
import { type Engine, GALERA } from '../../control-plane/src/store/database/engines.ts';
import { migrate } from '../../control-plane/src/store/database/migrate.ts';
import { findMariadb, startMariadb } from './mariadb-server.ts';

/** Of an address that leads to one member alone; one of three would have been met long before. */
const KNOWN_IN_A_ROW = 24;
const KNOWN_POLL_MS = 50;
const KNOWN_TRIES_MAX = 200;

/** `MATTING_TEST_ONLY_SERVER=1`: SQLite has been tested elsewhere (test/databases). */
export const DIALECTS: readonly DatabaseDialect[] = process.env.MATTING_TEST_ONLY_SERVER
  ? ['mysql']
  : ['sqlite', 'mysql'];

/** False: it runs. */
export function skipReason(dialect: DatabaseDialect): string | false {
  if (dialect === 'sqlite' || process.env.MATTING_TEST_DATABASE_URL || findMariadb()) return false;
  return 'no MariaDB here: install mariadb-server, or set MATTING_TEST_DATABASE_URL=mysql://...';
}

/**
 * A group of tests for each database, named `<name> on <dialect>`. The group of a database that is
 * not here is skipped, and the reporter says why.
 */
export function describeOnDatabases(name: string, group: (dialect: DatabaseDialect) => void): void {
  for (const dialect of DIALECTS) {
    describe(`${name} on ${dialect}`, { skip: skipReason(dialect) }, () => group(dialect));
  }
}

export const SILENT_LOG: StoreLog = { info: () => undefined, warn: () => undefined };

export interface TestDatabase {
  readonly dialect: DatabaseDialect;
  /** For a process of its own. */
  readonly url: string;
  /** One more handle, as a replica has one; closed with the test database. */
  open(log?: StoreLog): Promise<Database>;
  /** Closes the handles and removes the database. */
  close(): Promise<void>;
}

export interface TestDatabaseOptions {
  readonly migrated?: boolean;
  /** The URL of a server that the test has for itself. */
  readonly server?: string;
}

/** An empty database, migrated unless told otherwise. */
export async function createTestDatabase(
  dialect: DatabaseDialect,
  options: TestDatabaseOptions = {},
): Promise<TestDatabase> {
  const place = dialect === 'sqlite' ? createFile() : await createSchema(options.server);
  const handles: Database[] = [];
  const test: TestDatabase = {
    dialect,
    url: place.url,
    open: async (log = SILENT_LOG) => {
      const database = await openDatabase(place.url, { log });
      handles.push(database);
      return database;
    },
    close: async () => {
      await Promise.all(handles.map(database => database.close()));
      await place.remove();
    },
  };
  if (options.migrated !== false) await migrate(await test.open());
  return test;
}

/** Within a describe: made before its first test, removed after its last. */
export function useTestDatabase(
  dialect: DatabaseDialect,
  options: TestDatabaseOptions = {},
): Pick<TestDatabase, 'open' | 'dialect'> & { url(): string } {
  let test: TestDatabase | undefined;
  const require = () => {
    if (test === undefined) throw new Error('the test database is there only while tests run');
    return test;
  };
  before(async () => {
    test = await createTestDatabase(dialect, options);
  });
  after(() => test?.close());
  return { dialect, url: () => require().url, open: log => require().open(log) };
}

interface Place {
  readonly url: string;
  remove(): Promise<void>;
}

function createFile(): Place {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-sqlite-'));
  return {
    url: `sqlite:${path.join(directory, 'test.sqlite')}`,
    remove: async () => rmSync(directory, { recursive: true, force: true }),
  };
}

async function createSchema(given: string | undefined): Promise<Place> {
  const server = given ?? (await serverUrl());
  const name = `matting_test_${randomBytes(8).toString('hex')}`;
  const engine = await onServer(server, `create database ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  if (engine.members === 'several') await untilKnown(url.href, engine);
  return {
    url: url.href,
    remove: async () => void (await onServer(server, `drop database ${name}`)),
  };
}

async function serverUrl(): Promise<string> {
  const given = process.env.MATTING_TEST_DATABASE_URL;
  if (given) return given;
  const socket = await startMariadb();
  return `mysql://root@localhost/mysql?socket=${encodeURIComponent(socket)}`;
}

/**
 * A member that lags behind does not know the database yet. Others connect at the same time, so
 * that members are counted: a turn of the address may be anybody’s.
 */
async function untilKnown(url: string, engine: Engine): Promise<void> {
  const knowing = new Set<string>();
  let inARow = 0;
  for (let tries = 0; inARow < KNOWN_IN_A_ROW; tries += 1) {
    try {
      const { name, members } = await memberOf(url, engine);
      if (knowing.add(name).size >= members) return;
      inARow += 1;
    } catch (error) {
      if (tries >= KNOWN_TRIES_MAX) throw error;
      inARow = 0;
      await delay(KNOWN_POLL_MS);
    }
  }
}

/** Each a number, as `size`. */
const CLUSTER_SIZE = `select variable_value as size from information_schema.global_status
  where variable_name = 'wsrep_cluster_size'`;
const GROUP_SIZE = 'select count(*) as size from performance_schema.replication_group_members';

/** Which member a new connection comes to, one that cannot be written to too, and of how many. */
async function memberOf(url: string, engine: Engine): Promise<{ name: string; members: number }> {
  const connection = await mysql.createConnection(url);
  try {
    const size = engine === GALERA ? CLUSTER_SIZE : GROUP_SIZE;
    const [rows] = await connection.query<RowDataPacket[]>(
      `select @@port as name, (${size}) as size`,
    );
    return { name: String(rows[0]?.name), members: Number(rows[0]?.size) };
  } finally {
    connection.destroy();
  }
}

/** @returns what kind of server the address leads to */
async function onServer(server: string, statement: string): Promise<Engine> {
  const database = await openDatabase(server, { log: SILENT_LOG });
  try {
    await sql.raw(statement).execute(database.kysely);
    return database.engine;
  } finally {
    await database.close();
  }
}
