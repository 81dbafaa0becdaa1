import { chmodSync, closeSync, existsSync, openSync, readFileSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { makeDirectory, whyUnreadable } from '@matting/program/files.ts';
import { type CertificateEnd, endsOfFiles } from '@matting/program/tls/certificate-ends.ts';
import { Kysely, sql } from 'kysely';
import type { PoolOptions, SslOptions } from 'mysql2';
import { type Database, RequestShares, type Schema, type StoreLog } from './database.ts';
import { type DatabaseDialect, mayBeNetworkFileSystem, SQLITE, unknownLogin } from './engines.ts';
import type { Member } from './member.ts';
import {
  type MigrationSeries,
  migrate,
  requireCurrentSchema,
  WRONG_DATABASE_ADVICE,
} from './migrate.ts';
import { sqliteDialect } from './sqlite.ts';
import { COMMITTED_TOGETHER_MAX } from './sqlite-group-commit.ts';
import { databaseNowMs } from './statements.ts';

const LOCAL_DISK =
  'SQLite needs a local file system with modes: no NFS, SMB or FUSE (docs/storage.md)';

/** If only one account sends requests, it gets half of these: as many as share a commit. */
const SQLITE_REQUESTS_MAX = 2 * COMMITTED_TOGETHER_MAX;

/** The message is for operators and holds no secret. */
export class DatabaseOpenError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'DatabaseOpenError';
  }
}

interface OpenDatabaseOptions {
  readonly log: StoreLog;
  /** Creates a missing SQLite file and its directory. Otherwise its absence is an error. */
  readonly create?: boolean;
  readonly statementMsMax?: number;
}

/**
 * Runs no migrations.
 * @param databaseUrl `sqlite:<path>`, or a URL for parseMysqlUrl
 * @throws DatabaseOpenError
 */
export async function openDatabase(
  databaseUrl: string,
  options: OpenDatabaseOptions,
): Promise<Database> {
  const dialect: DatabaseDialect = databaseUrl.startsWith('sqlite:') ? 'sqlite' : 'mysql';
  const { kysely, requestsMax, member } =
    dialect === 'sqlite'
      ? openSqlite(databaseUrl.slice('sqlite:'.length), options)
      : await openMysql(databaseUrl, options);
  const location = describeUrl(databaseUrl);
  const database: Database = {
    kysely,
    dialect,
    location,
    get engine() {
      return member()?.engine ?? SQLITE;
    },
    shares: new RequestShares(requestsMax),
    nowMs: databaseNowMs(dialect),
    log: options.log,
    close: () => kysely.destroy(),
  };
  try {
    if (dialect === 'mysql') await probeMysql(database, member);
    else await sql`select count(*) from sqlite_schema`.execute(kysely);
  } catch (error) {
    await kysely.destroy();
    const plugin = unknownLogin(error);
    const found = `the database ${location} cannot be opened`;
    if (plugin === undefined) {
      const advice = mayBeNetworkFileSystem(error) ? `. ${LOCAL_DISK}` : '';
      throw new DatabaseOpenError(`${found}: ${driverReason(error)}${advice}`, error);
    }
    // The driver's own message would name options that an operator cannot set.
    throw new DatabaseOpenError(
      `${found}: this service cannot log in by ${plugin}; let the user log in by ` +
        'caching_sha2_password or mysql_native_password (docs/database.md)',
    );
  }
  return database;
}

interface Opened extends Pick<Database, 'kysely'> {
  /** How many requests may run statements at once. Others would queue for connections. */
  readonly requestsMax: number;
  /** The server of the newest connection. undefined: a file, or no server has answered yet. */
  readonly member: () => Member | undefined;
}

/** Never shows a password. */
function describeUrl(databaseUrl: string): string {
  if (databaseUrl.startsWith('sqlite:')) return databaseUrl.slice('sqlite:'.length);
  const { user, host = '', port, socketPath, database } = parseMysqlUrl(databaseUrl);
  const at = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  return `mysql://${user}@${socketPath ?? at}/${database}`;
}

function openSqlite(path: string, { create = false, log }: OpenDatabaseOptions): Opened {
  if (path === '' || path.startsWith(':')) {
    throw new DatabaseOpenError('the database URL names no file: sqlite:/path/of/the/file');
  }
  if (!create && !existsSync(path)) {
    throw new DatabaseOpenError(`there is no database at ${path}; ${WRONG_DATABASE_ADVICE}`);
  }
  try {
    if (create) {
      makeDirectory(dirname(path), 0o700);
      closeToOthers(path);
    }
  } catch (error) {
    const isMode = (error as NodeJS.ErrnoException).syscall === 'chmod';
    const advice = isMode ? `. Other users can read it. ${LOCAL_DISK}` : '';
    throw new DatabaseOpenError(`the database's directory: ${driverReason(error)}${advice}`, error);
  }
  const dialect = sqliteDialect(path, create ? log : undefined);
  const kysely = new Kysely<Schema>({ dialect });
  return { kysely, requestsMax: SQLITE_REQUESTS_MAX, member: () => undefined };
}

/**
 * Creates the file, or removes other users' rights to it: it holds addresses and the log of
 * changes. A group keeps its rights, since the operator gave them.
 */
function closeToOthers(path: string): void {
  closeSync(openSync(path, 'a', 0o600));
  // SQLite creates the other two with the rights of the first.
  for (const file of [path, `${path}-wal`, `${path}-shm`]) {
    const found = statSync(file, { throwIfNoEntry: false });
    if (found === undefined || found.uid !== process.getuid?.()) continue;
    if ((found.mode & 0o007) !== 0) {
      chmodSync(file, found.mode & 0o770);
    }
  }
}

async function openMysql(databaseUrl: string, options: OpenDatabaseOptions): Promise<Opened> {
  const pool = parseMysqlUrl(databaseUrl);
  // Loaded only here: mysql2 would be a tenth of what a control plane on SQLite loads.
  const { mysqlDialect } = await import('./mysql.ts');
  const { log, statementMsMax } = options;
  const onLost = (error: Error) => log.warn({ err: error }, 'a database connection was lost');
  let member: Member | undefined;
  const onMember = (newest: Member) => {
    member = newest;
  };
  const dialect = mysqlDialect({ pool, onLost, statementMsMax, onMember });
  const kysely = new Kysely<Schema>({ dialect });
  return { kysely, requestsMax: pool.connectionLimit ?? 1, member: () => member };
}

/** The oldest tested versions. */
const MYSQL_VERSION_MIN = '8.4';
const MARIADB_VERSION_MIN = '10.11';

const TEXT = 'é Ж 図 😀';

async function probeMysql({ kysely, log }: Database, member: Opened['member']): Promise<void> {
  await requireSameText(kysely);
  const server = member();
  if (server === undefined) throw new Error('the server has not said what it is');
  const { engine, variables } = server;
  const version = variables.get('version') ?? '';
  const versionMin = /mariadb/i.test(version) ? MARIADB_VERSION_MIN : MYSQL_VERSION_MIN;
  if (!isAtLeast(version, versionMin)) {
    log.warn({ version, versionMin }, 'the database server is older than any tested one');
  }
  for (const { variable, isRight, unless, warning } of engine.settings) {
    const found = variables.get(variable);
    const excused = unless !== undefined && variables.get(unless[0]) === unless[1];
    if (found === undefined || isRight(found) || excused) continue;
    log.warn({ [variable]: found }, warning);
  }
}

/** Rejects if text changes on its way to the server or back. */
async function requireSameText(kysely: Database['kysely']): Promise<void> {
  const hex = Buffer.from(TEXT).toString('hex');
  const { rows } = await sql<{ sent: string; received: string }>`
    select hex(${TEXT}) as sent, convert(unhex(${hex}) using utf8mb4) as received`.execute(kysely);
  const [row] = rows;
  if (row?.sent.toLowerCase() === hex && row.received === TEXT) return;
  throw new Error('text changes on its way: a proxy does not let "set names utf8mb4" take effect');
}

function isAtLeast(version: string, min: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number.parseFloat);
  const [minMajor = 0, minMinor = 0] = min.split('.').map(Number);
  return major > minMajor || (major === minMajor && minor >= minMinor);
}

/** Driver messages name host, port, user and file, never a password. */
function driverReason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = (error as { code?: unknown }).code;
  return error.message !== '' ? error.message : String(code ?? error.name);
}

interface OpenOptions {
  readonly log: StoreLog;
  /**
   * 'run' creates a missing file and runs pending migrations. 'require': pending ones are an error.
   */
  readonly migrations: 'run' | 'require';
  readonly packages: readonly MigrationSeries[];
}

export async function openCurrentDatabase(
  databaseUrl: string,
  { log, migrations, packages }: OpenOptions,
): Promise<Database> {
  const database = await openDatabase(databaseUrl, { log, create: migrations === 'run' });
  try {
    if (migrations === 'run') {
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

/** At 1 ms a round trip, 16 carry 3,000 transactions a second: more than one process needs. */
const CONNECTIONS_DEFAULT = 16;
const CONNECTIONS_MAX = 1_000;

const SSL_MODES = ['DISABLED', 'REQUIRED', 'VERIFY_CA', 'VERIFY_IDENTITY'] as const;
const PARAMETERS = ['ssl-mode', 'ssl-ca', 'ssl-cert', 'ssl-key', 'socket', 'connection-limit'];

/**
 * Parses `mysql://user:password@host:port/database?...` with the parameters of MySQL's own clients:
 * `ssl-mode`, `ssl-ca`, `ssl-cert`, `ssl-key` (paths), `socket` (a path), `connection-limit`.
 * @throws DatabaseOpenError that names the fault, never the value
 */
export function parseMysqlUrl(databaseUrl: string): PoolOptions {
  const url = URL.canParse(databaseUrl) ? new URL(databaseUrl) : undefined;
  if (url === undefined || (url.protocol !== 'mysql:' && url.protocol !== 'mariadb:')) {
    throw new DatabaseOpenError(
      'the database URL must look like mysql://user:password@host:3306/database',
    );
  }
  const parameters = url.searchParams;
  for (const name of parameters.keys()) {
    if (!PARAMETERS.includes(name)) {
      throw new DatabaseOpenError(
        `the database URL has an unknown parameter; known: ${PARAMETERS.join(', ')}`,
      );
    }
  }
  const database = decode(url.pathname.slice(1));
  if (database === '' || database.includes('/')) {
    throw new DatabaseOpenError(
      'the database URL names no database: mysql://user:password@host:3306/database',
    );
  }
  const socket = parameters.get('socket');
  return {
    ...(socket === null
      ? { host: url.hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(url.port || 3306) }
      : { socketPath: socket }),
    user: decode(url.username),
    password: decode(url.password),
    database,
    connectionLimit: connectionLimit(parameters.get('connection-limit')),
    ...sslOptions(parameters),
  };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch (error) {
    const detail = 'the database URL has a "%" that is no percent-encoding: write it as %25';
    throw new DatabaseOpenError(detail, error);
  }
}

function connectionLimit(value: string | null): number {
  if (value === null) return CONNECTIONS_DEFAULT;
  const limit = /^\d{1,4}$/.test(value) ? Number(value) : 0;
  if (limit < 1 || limit > CONNECTIONS_MAX) {
    throw new DatabaseOpenError(
      `connection-limit in the database URL must be 1 to ${CONNECTIONS_MAX}`,
    );
  }
  return limit;
}

function sslOptions(parameters: URLSearchParams): { ssl?: SslOptions } {
  const given = parameters.get('ssl-mode')?.toUpperCase() ?? 'DISABLED';
  const mode = SSL_MODES.find(known => known === given);
  if (mode === undefined) {
    throw new DatabaseOpenError(
      `ssl-mode in the database URL must be one of ${SSL_MODES.join(', ')}`,
    );
  }
  if (mode === 'DISABLED') return {};
  const ssl: SslOptions = {
    rejectUnauthorized: mode !== 'REQUIRED',
    verifyIdentity: mode === 'VERIFY_IDENTITY',
    ...pem(parameters, 'ca'),
    ...pem(parameters, 'cert'),
    ...pem(parameters, 'key'),
  };
  return { ssl };
}

/** The certificate files of the URL, read now. Empty: no TLS. @throws DatabaseOpenError */
export function databaseCertificates(databaseUrl: string): CertificateEnd[] {
  if (databaseUrl.startsWith('sqlite:')) return [];
  const { ssl } = parseMysqlUrl(databaseUrl);
  if (ssl === undefined || typeof ssl === 'string') return [];
  return endsOfFiles([
    ['MATTING_DATABASE_URL ssl-ca', ssl.ca?.toString(), 'authorities'],
    ['MATTING_DATABASE_URL ssl-cert', ssl.cert?.toString(), 'chain'],
  ]);
}

function pem(parameters: URLSearchParams, name: 'ca' | 'cert' | 'key'): SslOptions {
  const path = parameters.get(`ssl-${name}`);
  if (path === null) return {};
  try {
    return { [name]: readFileSync(path, 'utf8') };
  } catch (error) {
    const why = whyUnreadable(error);
    const detail = `the file named by ssl-${name} in the database URL cannot be read (${why})`;
    throw new DatabaseOpenError(detail, error);
  }
}
