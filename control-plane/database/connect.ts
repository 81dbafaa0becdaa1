/**
 * Opens the database a URL names. SQLite is one file that any number of processes on this machine
 * share; MySQL and MariaDB take any number of machines. Everything above sees one `Database`.
 */

import { dirname } from 'node:path';
import { Kysely, sql } from 'kysely';
import { makeDirectory } from '#program/make-directory.ts';
import { type Database, RequestShares, type Schema, type StoreLog } from './database.ts';
import { type DatabaseDialect, SQLITE } from './engines.ts';
import { requireAgreeingClocks } from './member-clocks.ts';
import { type MigrationSeries, migrate, requireCurrentSchema } from './migrate.ts';
import type { Member } from './mysql.ts';
import { COMMITTED_TOGETHER_MAX, NodeSqliteDialect } from './sqlite.ts';
import { databaseNowMs } from './statements.ts';

/** An account alone has half of them: as many as are committed together. */
const SQLITE_REQUESTS_MAX = 2 * COMMITTED_TOGETHER_MAX;

/**
 * The database cannot be used as configured; the message is for the operator and holds no secret.
 */
export class DatabaseOpenError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'DatabaseOpenError';
  }
}

interface OpenDatabaseOptions {
  readonly log: StoreLog;
  /** Time for one statement on a server; for tests. */
  readonly statementMsMax?: number;
}

/**
 * @param databaseUrl `sqlite:<path>` or `mysql://user:password@host:port/database?...`
 * (mysql.ts).
 * @throws DatabaseOpenError when it cannot be reached or used. Runs no migrations.
 */
export async function openDatabase(
  databaseUrl: string,
  options: OpenDatabaseOptions,
): Promise<Database> {
  const dialect: DatabaseDialect = databaseUrl.startsWith('sqlite:') ? 'sqlite' : 'mysql';
  const { kysely, requestsMax, member, newMember } =
    dialect === 'sqlite'
      ? openSqlite(databaseUrl.slice('sqlite:'.length))
      : await openMysql(databaseUrl, options);
  const database: Database = {
    kysely,
    dialect,
    get engine() {
      return member()?.engine ?? SQLITE;
    },
    shares: new RequestShares(requestsMax),
    nowMs: databaseNowMs(dialect),
    log: options.log,
    ...(newMember === undefined ? {} : { newMember }),
    close: () => kysely.destroy(),
  };
  try {
    await (dialect === 'sqlite' ? probeSqlite(database) : probeMysql(database, member));
  } catch (error) {
    await kysely.destroy();
    // A file is named; a server's URL holds a password.
    const which = dialect === 'sqlite' ? ` ${databaseUrl.slice('sqlite:'.length)}` : '';
    throw new DatabaseOpenError(`the database${which} cannot be opened: ${reasonOf(error)}`, error);
  }
  return database;
}

interface Opened extends Pick<Database, 'kysely' | 'newMember'> {
  /** How many requests may have statements under way at once; more would wait in it. */
  readonly requestsMax: number;
  /** The server of the newest connection; undefined: a file, or none has answered yet. */
  readonly member: () => Member | undefined;
}

function openSqlite(path: string): Opened {
  if (path === '' || path.startsWith(':')) {
    throw new DatabaseOpenError('the database URL names no file: sqlite:/path/of/the/file');
  }
  try {
    makeDirectory(dirname(path), 0o700);
  } catch (error) {
    throw new DatabaseOpenError(`the database's directory: ${reasonOf(error)}`, error);
  }
  const kysely = new Kysely<Schema>({ dialect: new NodeSqliteDialect(path) });
  return { kysely, requestsMax: SQLITE_REQUESTS_MAX, member: () => undefined };
}

async function openMysql(databaseUrl: string, options: OpenDatabaseOptions): Promise<Opened> {
  // Only here: mysql2 is a tenth of what a control plane on SQLite would load.
  const { MysqlPoolDialect, parseMysqlUrl, readMemberAt } = await import('./mysql.ts');
  let pool: ReturnType<typeof parseMysqlUrl>;
  try {
    pool = parseMysqlUrl(databaseUrl);
  } catch (error) {
    throw new DatabaseOpenError(reasonOf(error), error);
  }
  const { log, statementMsMax } = options;
  const onLost = (error: Error) => log.warn({ err: error }, 'a database connection was lost');
  let member: Member | undefined;
  const onMember = (newest: Member) => {
    member = newest;
  };
  const dialect = new MysqlPoolDialect({ pool, onLost, statementMsMax, onMember });
  const kysely = new Kysely<Schema>({ dialect });
  const { connectionLimit = 1, ...place } = pool;
  const newMember = () => readMemberAt(place);
  return { kysely, requestsMax: connectionLimit, member: () => member, newMember };
}

async function probeSqlite(database: Database): Promise<void> {
  await sql`select count(*) from sqlite_schema`.execute(database.kysely);
}

/** The oldest versions the store is tested with. */
const MYSQL_VERSION_MIN = '8.4';
const MARIADB_VERSION_MIN = '10.11';

async function probeMysql({ kysely, log }: Database, member: Opened['member']): Promise<void> {
  await sql`select 1`.execute(kysely);
  const server = member();
  if (server === undefined) throw new Error('the server has not said what it is');
  const { engine, variables } = server;
  const version = variables.get('version') ?? '';
  const versionMin = /mariadb/i.test(version) ? MARIADB_VERSION_MIN : MYSQL_VERSION_MIN;
  if (!isAtLeast(version, versionMin)) {
    log.warn({ version, versionMin }, 'the database server is older than any tested one');
  }
  for (const { variable, value, unless, warning } of engine.settings) {
    const found = variables.get(variable);
    const excused = unless !== undefined && variables.get(unless[0]) === unless[1];
    if (found === undefined || found === value || excused) continue;
    log.warn({ [variable]: found }, warning);
  }
}

function isAtLeast(version: string, min: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number.parseFloat);
  const [minMajor = 0, minMinor = 0] = min.split('.').map(Number);
  return major > minMajor || (major === minMajor && minor >= minMinor);
}

/** Driver messages name host, port, user and file, never a password. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = (error as { code?: unknown }).code;
  return error.message !== '' ? error.message : String(code ?? error.name);
}

/* The database with every table that this version expects. */

interface OpenOptions {
  readonly log: StoreLog;
  /**
   * 'run', for a control plane: pending migrations are run, under a lock that lets any number of
   * processes start at once, and clocks of members that differ too much are an error. 'require':
   * pending migrations are an error.
   */
  readonly migrations: 'run' | 'require';
  /** Whose tables are expected beside the core's. */
  readonly packages: readonly MigrationSeries[];
}

/** @throws DatabaseOpenError, SchemaError: for the operator, in one line. */
export async function openCurrentDatabase(
  databaseUrl: string,
  { log, migrations, packages }: OpenOptions,
): Promise<Database> {
  const database = await openDatabase(databaseUrl, { log });
  try {
    if (migrations === 'run') {
      await requireClocks(database);
      const ran = await migrate(database, packages);
      if (ran.length > 0) log.info({ migrations: ran }, 'the database was migrated');
    } else {
      await requireCurrentSchema(database, packages);
    }
  } catch (error) {
    await database.close();
    throw error;
  }
  return database;
}

async function requireClocks(database: Database): Promise<void> {
  try {
    await requireAgreeingClocks(database);
  } catch (error) {
    throw new DatabaseOpenError(error instanceof Error ? error.message : String(error), error);
  }
}
