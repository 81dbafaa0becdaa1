/**
 * Opens the database a URL names. SQLite is one file that any number of processes on this machine
 * share; MySQL and MariaDB take any number of machines. Everything above sees one `Database`.
 */
import { dirname } from 'node:path';
import { Kysely, type RawBuilder, sql } from 'kysely';
import type { Logger } from 'pino';
import { makeDirectory } from '#program/make-directory.ts';
import { type DatabaseDialect, databaseNowMs } from './clock.ts';
import { parseMysqlUrl } from './mysql-url.ts';
import type { Schema } from './schema.ts';
import { NodeSqliteDialect } from './sqlite-dialect.ts';
import { COMMITTED_TOGETHER_MAX } from './sqlite-group-commit.ts';

/** An account alone has half of them: as many as are committed together. */
const SQLITE_REQUESTS_MAX = 2 * COMMITTED_TOGETHER_MAX;

export type StoreLog = Pick<Logger, 'info' | 'warn'>;

export interface Database {
  readonly kysely: Kysely<Schema>;
  readonly dialect: DatabaseDialect;
  /** How many requests may have statements under way here at once; more would wait in it. */
  readonly requestsMax: number;
  /** The database's clock, as an expression for a statement. */
  readonly nowMs: RawBuilder<number>;
  readonly log: StoreLog;
  /** Waits for what is running. */
  close(): Promise<void>;
}

/**
 * The database cannot be used as configured; the message is for the operator and holds no secret.
 */
export class DatabaseOpenError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'DatabaseOpenError';
  }
}

export interface OpenDatabaseOptions {
  readonly log: StoreLog;
  /** Time for one statement on a server; for tests. */
  readonly statementMsMax?: number;
}

/**
 * @param databaseUrl `sqlite:<path>` or `mysql://user:password@host:port/database?...`
 * (mysql-url.ts).
 * @throws DatabaseOpenError when it cannot be reached or used. Runs no migrations.
 */
export async function openDatabase(
  databaseUrl: string,
  options: OpenDatabaseOptions,
): Promise<Database> {
  const dialect: DatabaseDialect = databaseUrl.startsWith('sqlite:') ? 'sqlite' : 'mysql';
  const { kysely, requestsMax } =
    dialect === 'sqlite'
      ? openSqlite(databaseUrl.slice('sqlite:'.length))
      : await openMysql(databaseUrl, options);
  const database: Database = {
    kysely,
    dialect,
    requestsMax,
    nowMs: databaseNowMs(dialect),
    log: options.log,
    close: () => kysely.destroy(),
  };
  try {
    await (dialect === 'sqlite' ? probeSqlite(database) : probeMysql(database));
  } catch (error) {
    await kysely.destroy();
    // A file is named; a server's URL holds a password.
    const which = dialect === 'sqlite' ? ` ${databaseUrl.slice('sqlite:'.length)}` : '';
    throw new DatabaseOpenError(`the database${which} cannot be opened: ${reasonOf(error)}`, error);
  }
  return database;
}

type Opened = Pick<Database, 'kysely' | 'requestsMax'>;

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
  return { kysely, requestsMax: SQLITE_REQUESTS_MAX };
}

async function openMysql(databaseUrl: string, options: OpenDatabaseOptions): Promise<Opened> {
  let pool: ReturnType<typeof parseMysqlUrl>;
  try {
    pool = parseMysqlUrl(databaseUrl);
  } catch (error) {
    throw new DatabaseOpenError(reasonOf(error), error);
  }
  const { log, statementMsMax } = options;
  // Only here: mysql2 is a tenth of what a control plane on SQLite would load.
  const { MysqlPoolDialect } = await import('./mysql-dialect.ts');
  const onLost = (error: Error) => log.warn({ err: error }, 'a database connection was lost');
  const dialect = new MysqlPoolDialect({ pool, onLost, statementMsMax });
  return { kysely: new Kysely<Schema>({ dialect }), requestsMax: pool.connectionLimit ?? 1 };
}

async function probeSqlite(database: Database): Promise<void> {
  await sql`select count(*) from sqlite_schema`.execute(database.kysely);
}

/** The oldest versions the store is tested with. */
const MYSQL_VERSION_MIN = '8.4';
const MARIADB_VERSION_MIN = '10.11';

interface ServerVariable {
  readonly Variable_name: string;
  readonly Value: string;
}

async function probeMysql(database: Database): Promise<void> {
  const { rows } = await sql<ServerVariable>`show variables where variable_name in
    ('version', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin')`.execute(
    database.kysely,
  );
  const server = new Map(rows.map(row => [row.Variable_name.toLowerCase(), row.Value]));
  const version = server.get('version') ?? '';
  const versionMin = /mariadb/i.test(version) ? MARIADB_VERSION_MIN : MYSQL_VERSION_MIN;
  if (!isAtLeast(version, versionMin)) {
    database.log.warn({ version, versionMin }, 'the database server is older than any tested one');
  }
  const flush = server.get('innodb_flush_log_at_trx_commit');
  if (flush !== undefined && flush !== '1') {
    database.log.warn(
      { innodb_flush_log_at_trx_commit: flush },
      'the database may lose its last commits in a crash: paid jobs among them. Set it to 1',
    );
  }
  if (server.get('log_bin') === 'ON' && server.get('sync_binlog') !== '1') {
    database.log.warn(
      { sync_binlog: server.get('sync_binlog') },
      'the binary log may lose its last commits in a crash, and replicas with it. Set it to 1',
    );
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
