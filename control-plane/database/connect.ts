/**
 * Opens the database a URL names. SQLite is one file that any number of processes on this machine
 * share; MySQL and MariaDB take any number of machines. Everything above sees one `Database`.
 */

import { chmodSync, closeSync, existsSync, openSync, readFileSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { makeDirectory, whyUnreadable } from '@matting/program/files.ts';
import { type CertificateEnd, endsOfFiles } from '@matting/program/tls/certificate-ends.ts';
import { Kysely, sql } from 'kysely';
import type { PoolOptions, SslOptions } from 'mysql2';
import { type Database, RequestShares, type Schema, type StoreLog } from './database.ts';
import { type DatabaseDialect, isPerhapsNotLocal, SQLITE, unknownLogin } from './engines.ts';
import type { Member } from './member.ts';
import { ELSEWHERE, type MigrationSeries, migrate, requireCurrentSchema } from './migrate.ts';
import { sqliteDialect } from './sqlite.ts';
import { COMMITTED_TOGETHER_MAX } from './sqlite-group-commit.ts';
import { databaseNowMs } from './statements.ts';

const LOCAL_DISK =
  'SQLite needs a local file system with modes: no NFS, SMB or FUSE (docs/storage.md)';

/** An account alone has half of them: as many as are committed together. */
const SQLITE_REQUESTS_MAX = 2 * COMMITTED_TOGETHER_MAX;

/** The database cannot be used as configured; the message is for operators and holds no secret. */
export class DatabaseOpenError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'DatabaseOpenError';
  }
}

interface OpenDatabaseOptions {
  readonly log: StoreLog;
  /** Makes a SQLite file that is not there, and its directory; otherwise its absence is an error. */
  readonly create?: boolean;
  /** Time for one statement on a server; for tests. */
  readonly statementMsMax?: number;
}

/**
 * @param databaseUrl `sqlite:<path>` or what parseMysqlUrl takes
 * @throws DatabaseOpenError when it cannot be reached or used. Runs no migrations.
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
  const place = placeOf(databaseUrl);
  const database: Database = {
    kysely,
    dialect,
    place,
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
    const found = `the database ${place} cannot be opened`;
    if (plugin === undefined) {
      const advice = isPerhapsNotLocal(error) ? `. ${LOCAL_DISK}` : '';
      throw new DatabaseOpenError(`${found}: ${reasonOf(error)}${advice}`, error);
    }
    // The driver's words are about its own options.
    throw new DatabaseOpenError(
      `${found}: this service cannot log in by ${plugin}; let the user log in by ` +
        'caching_sha2_password or mysql_native_password (docs/database.md)',
    );
  }
  return database;
}

interface Opened extends Pick<Database, 'kysely'> {
  /** How many requests may have statements under way at once; more would wait in it. */
  readonly requestsMax: number;
  /** The server of the newest connection; undefined: a file, or none has answered yet. */
  readonly member: () => Member | undefined;
}

/** The name that operators recognise: a file's path, or a server's URL without the password. */
function placeOf(databaseUrl: string): string {
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
    throw new DatabaseOpenError(`there is no database at ${path}; ${ELSEWHERE}`);
  }
  try {
    if (create) {
      makeDirectory(dirname(path), 0o700);
      closeToOthers(path);
    }
  } catch (error) {
    const isMode = (error as NodeJS.ErrnoException).syscall === 'chmod';
    const advice = isMode ? `. Other users can read it. ${LOCAL_DISK}` : '';
    throw new DatabaseOpenError(`the database's directory: ${reasonOf(error)}${advice}`, error);
  }
  const dialect = sqliteDialect(path, create ? log : undefined);
  const kysely = new Kysely<Schema>({ dialect });
  return { kysely, requestsMax: SQLITE_REQUESTS_MAX, member: () => undefined };
}

/**
 * Makes the file, and takes the rights of other users from one that is there: it holds addresses
 * and the log of changes, and its directory may be open. A group's rights stay: the operator gave
 * them.
 */
function closeToOthers(path: string): void {
  closeSync(openSync(path, 'a', 0o600));
  // SQLite makes the other two with the rights of the first.
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
  // Only here: mysql2 is a tenth of what a control plane on SQLite would load.
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

/** The oldest versions the store is tested with. */
const MYSQL_VERSION_MIN = '8.4';
const MARIADB_VERSION_MIN = '10.11';

/** Latin, Cyrillic, Han, and a character of four bytes. */
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

/** Rejects where text changes on its way to the server or back. */
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
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = (error as { code?: unknown }).code;
  return error.message !== '' ? error.message : String(code ?? error.name);
}

interface OpenOptions {
  readonly log: StoreLog;
  /** 'run': a file is made, and pending ones are run. 'require': pending ones are an error. */
  readonly migrations: 'run' | 'require';
  readonly packages: readonly MigrationSeries[];
}

/**
 * The database with every table that this version expects.
 * @throws DatabaseOpenError, SchemaError: for the operator, in one line.
 */
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

/** At 1 ms a round trip 16 carry about 3,000 transactions a second: more than a process makes. */
const CONNECTIONS_DEFAULT = 16;
const CONNECTIONS_MAX = 1_000;

const SSL_MODES = ['DISABLED', 'REQUIRED', 'VERIFY_CA', 'VERIFY_IDENTITY'] as const;
const PARAMETERS = ['ssl-mode', 'ssl-ca', 'ssl-cert', 'ssl-key', 'socket', 'connection-limit'];

/**
 * `mysql://user:password@host:port/database?...` as mysql2's options. Parameters are named as by
 * MySQL's own clients: `ssl-mode` (DISABLED; REQUIRED encrypts, VERIFY_CA checks the certificate,
 * VERIFY_IDENTITY its name too), `ssl-ca`, `ssl-cert`, `ssl-key` (paths), `socket` (a path, instead
 * of host and port), `connection-limit`.
 * @throws DatabaseOpenError that says what is wrong with the form, never the value.
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

/**
 * The certificates that the database URL names files of, as they are read now: an empty list where
 * it is not TLS.
 * @throws DatabaseOpenError
 */
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
