/**
 * The differences between SQL engines, and the meanings of their errors. No other file asks for the
 * engine or reads error numbers (docs/adr/0031).
 */

export type DatabaseDialect = 'sqlite' | 'mysql';

/** Values by names in lower case. */
export type ServerVariables = ReadonlyMap<string, string>;

/** A setting that the store's guarantees need. The program warns at its start if it differs. */
interface Setting {
  readonly variable: string;
  readonly isRight: (value: string) => boolean;
  /** The setting does not matter if this variable has this value. */
  readonly unless?: readonly [variable: string, value: string];
  readonly warning: string;
}

export interface Engine {
  readonly name: string;
  readonly isServer: (variables: ServerVariables) => boolean;
  /** Why the start refuses this engine. */
  readonly refusal?: string;
  /**
   * 'locks': a transaction waits at a row that another has locked. 'certification': each member
   * locks for itself. Of two transactions that changed the same row on different members the later
   * commit fails; a locked or unchanged row is no conflict.
   */
  readonly conflicts: 'locks' | 'certification';
  /** Statements that begin each session, so that it reads all earlier commits, on any member. */
  readonly session: readonly string[];
  readonly settings: readonly Setting[];
}

export function isOn(variables: ServerVariables, name: string): boolean {
  return ['ON', '1'].includes(variables.get(name) ?? '');
}

/** The largest statement, which inserts a hundred items of a batch, fits. */
const PACKET_BYTES_MIN = 1_048_576;

const SETTINGS: readonly Setting[] = [
  {
    variable: 'innodb_flush_log_at_trx_commit',
    isRight: value => value === '1',
    warning: 'the database may lose its last commits in a crash: paid jobs among them. Set it to 1',
  },
  {
    variable: 'sync_binlog',
    isRight: value => value === '1',
    unless: ['log_bin', 'OFF'],
    warning:
      'the binary log may lose its last commits in a crash, and replicas with it. Set it to 1',
  },
  {
    variable: 'binlog_format',
    isRight: value => value !== 'STATEMENT',
    unless: ['log_bin', 'OFF'],
    warning: 'the binary log takes no change of this service. Set it to MIXED or ROW',
  },
  {
    variable: 'max_allowed_packet',
    isRight: value => Number(value) >= PACKET_BYTES_MIN,
    warning: `the database refuses large batches. Set it to at least ${PACKET_BYTES_MIN}`,
  },
];

export const SQLITE: Engine = {
  name: 'SQLite',
  isServer: () => false,
  conflicts: 'locks',
  session: [],
  settings: [],
};

const MYSQL: Engine = {
  ...SQLITE,
  name: 'MySQL',
  isServer: () => true,
  settings: SETTINGS,
};

export const MARIADB: Engine = {
  ...MYSQL,
  name: 'MariaDB',
  isServer: variables => /mariadb/i.test(variables.get('version') ?? ''),
};

/**
 * A statement on its own, or the start of a transaction, first waits for the commits of other
 * members. Statements within a transaction do not: a change that they miss is a conflict at the
 * commit.
 */
export const GALERA: Engine = {
  ...MYSQL,
  name: 'Galera',
  isServer: variables => isOn(variables, 'wsrep_on'),
  conflicts: 'certification',
  // 1: SELECT and BEGIN; 2: UPDATE and DELETE; 4: INSERT.
  session: ['set session wsrep_sync_wait = 7'],
};

/** A group with one primary for writes. */
const GROUP_REPLICATION: Engine = {
  ...MYSQL,
  name: 'Group Replication',
  isServer: variables => (variables.get('group_replication_group_name') ?? '') !== '',
  // A new primary answers only after it applied all commits of the old one.
  session: [`set session group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'`],
};

const MULTI_PRIMARY: Engine = {
  ...GROUP_REPLICATION,
  name: 'Group Replication in multi-primary mode',
  isServer: variables =>
    GROUP_REPLICATION.isServer(variables) &&
    variables.get('group_replication_single_primary_mode') === 'OFF',
  refusal:
    'members lock rows for themselves and concurrent changes of tables can hang the whole group: ' +
    'run it with group_replication_single_primary_mode=ON',
};

/** The first that fits is used. MySQL's `isServer` is always true. */
const SERVERS: readonly Engine[] = [GALERA, MULTI_PRIMARY, GROUP_REPLICATION, MARIADB, MYSQL];

/** Each session sets those that its server has, since a host may have changed their defaults. */
export const OWN_VARIABLES: Readonly<Record<string, string>> = {
  // The pool has its own limit, which does not bound changes of tables.
  max_statement_time: '0',
  max_execution_time: '0',
  alter_algorithm: "'DEFAULT'",
  default_storage_engine: 'InnoDB',
  unique_checks: '1',
  foreign_key_checks: '1',
  check_constraint_checks: '1',
};

export const SERVER_VARIABLES: readonly string[] = [
  ...Object.keys(OWN_VARIABLES),
  'version',
  'hostname',
  'port',
  'log_bin',
  'wsrep_on',
  'group_replication_group_name',
  'group_replication_single_primary_mode',
  ...SETTINGS.map(({ variable }) => variable),
];

export function engineOf(variables: ServerVariables): Engine {
  return SERVERS.find(({ isServer }) => isServer(variables)) ?? MYSQL;
}

export type DatabaseErrorKind =
  /** Another transaction was in the way and nothing was committed. Repeat the transaction. */
  | 'conflict'
  /** No answer. A commit may have happened. */
  | 'connection'
  /** Nothing was committed. New connections may find the new primary. */
  | 'read-only'
  /** Not possible now: a full disk, or a silent server that received nothing. */
  | 'unavailable'
  /** Not possible until an administrator changes a right or a limit. */
  | 'refused'
  | 'duplicate'
  /** A bug of this program. */
  | 'other';

/** https://sqlite.org/rescode.html; extended codes keep these in the low byte. */
const SQLITE_KINDS: Readonly<Record<number, DatabaseErrorKind>> = {
  5: 'conflict', // SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT, SQLITE_BUSY_RECOVERY
  6: 'conflict', // SQLITE_LOCKED
  8: 'unavailable', // SQLITE_READONLY
  10: 'unavailable', // SQLITE_IOERR
  13: 'unavailable', // SQLITE_FULL
  14: 'unavailable', // SQLITE_CANTOPEN
};
const SQLITE_CONSTRAINT_PRIMARYKEY = 1555;
const SQLITE_CONSTRAINT_UNIQUE = 2067;

/** HA_ERR_LOCK_DEADLOCK within ER_ERROR_DURING_COMMIT: rolled back. */
const DEADLOCK_AT_COMMIT = /^Got error 149\b/;

/** Lower numbers (EE_*) are errors of the server's files and memory. */
const SERVER_ERROR_MIN = 1000;

const MYSQL_KINDS: Readonly<
  Record<number, DatabaseErrorKind | ((message: string) => DatabaseErrorKind)>
> = {
  1020: 'conflict', // ER_CHECKREAD: MariaDB's innodb_snapshot_isolation, on by default since 11.6.2
  1205: 'conflict', // ER_LOCK_WAIT_TIMEOUT: undoes the statement alone, the caller the rest
  1213: 'conflict', // ER_LOCK_DEADLOCK; also Galera's certification
  1412: 'conflict', // ER_TABLE_DEF_CHANGED: another control plane migrated within a snapshot
  1615: 'conflict', // ER_NEED_REPREPARE
  1689: 'conflict', // ER_LOCK_ABORTED
  3101: 'conflict', // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: Group Replication's certification
  1022: 'duplicate', // ER_DUP_KEY
  1062: 'duplicate', // ER_DUP_ENTRY
  1169: 'duplicate', // ER_DUP_UNIQUE
  1586: 'duplicate', // ER_DUP_ENTRY_WITH_KEY_NAME
  1021: 'unavailable', // ER_DISK_FULL
  1026: 'unavailable', // ER_ERROR_ON_WRITE
  1030: 'unavailable', // ER_GET_ERRNO: of a storage engine, such as a full disk
  1037: 'unavailable', // ER_OUTOFMEMORY
  1038: 'unavailable', // ER_OUT_OF_SORTMEMORY
  1041: 'unavailable', // ER_OUT_OF_RESOURCES
  1114: 'unavailable', // ER_RECORD_FILE_FULL
  1197: 'unavailable', // ER_TRANS_CACHE_FULL
  1206: 'unavailable', // ER_LOCK_TABLE_FULL
  1637: 'unavailable', // ER_TOO_MANY_CONCURRENT_TRXS
  1878: 'unavailable', // ER_TEMP_FILE_WRITE_FAILURE
  3015: 'unavailable', // ER_ENGINE_OUT_OF_MEMORY
  3019: 'unavailable', // ER_INNODB_UNDO_LOG_FULL
  1044: 'refused', // ER_DBACCESS_DENIED_ERROR
  1045: 'refused', // ER_ACCESS_DENIED_ERROR: another password than the URL has
  1049: 'refused', // ER_BAD_DB_ERROR
  1104: 'refused', // ER_TOO_BIG_SELECT
  1129: 'refused', // ER_HOST_IS_BLOCKED
  1130: 'refused', // ER_HOST_NOT_PRIVILEGED
  1142: 'refused', // ER_TABLEACCESS_DENIED_ERROR
  1143: 'refused', // ER_COLUMNACCESS_DENIED_ERROR
  1146: 'refused', // ER_NO_SUCH_TABLE: a restore that is not complete
  1153: 'refused', // ER_NET_PACKET_TOO_LARGE: max_allowed_packet
  1162: 'refused', // ER_TOO_LONG_STRING: the same, of an answer
  1194: 'refused', // ER_CRASHED_ON_USAGE
  1227: 'refused', // ER_SPECIFIC_ACCESS_DENIED_ERROR
  1251: 'refused', // ER_NOT_SUPPORTED_AUTH_MODE
  1370: 'refused', // ER_PROCACCESS_DENIED_ERROR
  1524: 'refused', // ER_PLUGIN_IS_NOT_LOADED
  1665: 'refused', // ER_BINLOG_STMT_MODE_AND_ROW_ENGINE: binlog_format=STATEMENT
  1698: 'refused', // ER_ACCESS_DENIED_NO_PASSWORD_ERROR
  1712: 'refused', // ER_INDEX_CORRUPT
  1820: 'refused', // ER_MUST_CHANGE_PASSWORD
  1862: 'refused', // ER_MUST_CHANGE_PASSWORD_LOGIN
  1877: 'refused', // ER_TABLE_CORRUPT
  1932: 'refused', // ER_NO_SUCH_TABLE_IN_ENGINE
  3118: 'refused', // ER_ACCOUNT_HAS_BEEN_LOCKED of MySQL
  3159: 'refused', // ER_SECURE_TRANSPORT_REQUIRED
  4150: 'refused', // ER_USER_IS_BLOCKED of MariaDB
  4151: 'refused', // ER_ACCOUNT_HAS_BEEN_LOCKED of MariaDB
  1036: 'read-only', // ER_OPEN_AS_READONLY: innodb_read_only of MariaDB, innodb_force_recovery
  1047: 'read-only', // ER_UNKNOWN_COM_ERROR: a Galera node outside the cluster's majority
  1290: 'read-only', // ER_OPTION_PREVENTS_STATEMENT: read_only, super_read_only
  1792: 'read-only', // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION: transaction_read_only
  1836: 'read-only', // ER_READ_ONLY_MODE: innodb_read_only
  1874: 'read-only', // ER_INNODB_READ_ONLY
  1028: 'connection', // ER_FILSORT_ABORT: killed while it sorted
  1040: 'connection', // ER_CON_COUNT_ERROR
  1042: 'connection', // ER_BAD_HOST_ERROR
  1043: 'connection', // ER_HANDSHAKE_ERROR
  1053: 'connection', // ER_SERVER_SHUTDOWN
  1077: 'connection', // ER_NORMAL_SHUTDOWN
  1079: 'connection', // ER_SHUTDOWN_COMPLETE
  1135: 'connection', // ER_CANT_CREATE_THREAD
  1152: 'connection', // ER_ABORTING_CONNECTION
  1156: 'connection', // ER_NET_PACKETS_OUT_OF_ORDER
  1158: 'connection', // ER_NET_READ_ERROR
  1159: 'connection', // ER_NET_READ_INTERRUPTED
  1160: 'connection', // ER_NET_ERROR_ON_WRITE
  1161: 'connection', // ER_NET_WRITE_INTERRUPTED
  // ER_ERROR_DURING_COMMIT: except for a deadlock, the outcome is unknown.
  1180: message => (DEADLOCK_AT_COMMIT.test(message) ? 'conflict' : 'connection'),
  1181: 'connection', // ER_ERROR_DURING_ROLLBACK
  1184: 'connection', // ER_NEW_ABORTING_CONNECTION
  1203: 'connection', // ER_TOO_MANY_USER_CONNECTIONS
  // ER_USER_LIMIT_REACHED: max_user_connections counts open connections, the other limits an hour.
  1226: message => (message.includes('max_user_connections') ? 'connection' : 'unavailable'),
  1317: 'connection', // ER_QUERY_INTERRUPTED: killed by an operator, or by a shutdown
  1835: 'connection', // ER_MALFORMED_PACKET
  1927: 'connection', // ER_CONNECTION_KILLED of MariaDB
  1969: 'connection', // ER_STATEMENT_TIMEOUT of MariaDB: max_statement_time, also of a commit
  2003: 'connection', // CR_CONN_HOST_ERROR: a router that has no primary to lead to
  2013: 'connection', // CR_SERVER_LOST: a router whose server went away
  3024: 'connection', // ER_QUERY_TIMEOUT of MySQL: max_execution_time
  3032: 'connection', // ER_SERVER_OFFLINE_MODE: a member that left its group
  3100: 'connection', // ER_RUN_HOOK_ERROR: Group Replication could not commit; nobody knows why
  3168: 'connection', // ER_SERVER_ISNT_AVAILABLE
  3169: 'connection', // ER_SESSION_WAS_KILLED of MySQL
  4031: 'connection', // ER_CLIENT_INTERACTION_TIMEOUT of MySQL
  9001: 'connection', // ProxySQL: no connection to a server in its time
};

/** mysql2's codes for a login method that it does not know or does not use by default. */
const AUTH_UNKNOWN: readonly unknown[] = [
  'AUTH_SWITCH_PLUGIN_ERROR',
  'MYSQL_CLEAR_PASSWORD_NOT_ENABLED',
];

const CONNECTION_CODES: ReadonlySet<string> = new Set([
  'PROTOCOL_CONNECTION_LOST',
  'STATEMENT_TIMEOUT', // mysql.ts
  'POOL_QUEUE_LIMIT', // mysql.ts, sqlite-connection.ts
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ENOENT', // the server's socket is not there while it restarts
]);

export function databaseErrorKind(error: unknown): DatabaseErrorKind {
  if (!(error instanceof Error)) return 'other';
  if (error instanceof MemberError) return 'unavailable';
  const { code, errno, errcode, fatal } = error as Error & Record<string, unknown>;
  if (code === 'ERR_SQLITE_ERROR' && typeof errcode === 'number') {
    if (errcode === SQLITE_CONSTRAINT_UNIQUE || errcode === SQLITE_CONSTRAINT_PRIMARYKEY) {
      return 'duplicate';
    }
    return SQLITE_KINDS[errcode & 0xff] ?? 'other';
  }
  const known = typeof errno === 'number' ? MYSQL_KINDS[errno] : undefined;
  if (known !== undefined) return typeof known === 'function' ? known(error.message) : known;
  if (typeof errno === 'number' && errno > 0 && errno < SERVER_ERROR_MIN) return 'unavailable';
  if (code === 'SERVER_SILENT') return 'unavailable'; // mysql.ts
  if (AUTH_UNKNOWN.includes(code)) return 'refused';
  // mysql2 marks errors that end its connection. Some have no code.
  if (fatal === true) return 'connection';
  return typeof code === 'string' && CONNECTION_CODES.has(code) ? 'connection' : 'other';
}

export function unknownLogin(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if (!AUTH_UNKNOWN.includes((error as { code?: unknown }).code)) return undefined;
  return /\bplugin (\w+)\. See/.exec(error.message)?.[1] ?? 'mysql_clear_password';
}

/** SQLITE_IOERR, SQLITE_PROTOCOL: file systems without locks or shared memory. */
const NOT_LOCAL: readonly number[] = [10, 15];

export function mayBeNetworkFileSystem(error: unknown): boolean {
  const { code, errcode } = (error ?? {}) as { code?: unknown; errcode?: unknown };
  return code === 'ERR_SQLITE_ERROR' && NOT_LOCAL.includes(Number(errcode) & 0xff);
}

/** ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED. */
const FULL: readonly unknown[] = [1040, 1203, 1226];

export function isFull(code: unknown): boolean {
  return FULL.includes(code);
}

/** ER_DBACCESS_DENIED_ERROR and ER_TABLEACCESS_DENIED_ERROR. */
const DENIED: readonly unknown[] = [1044, 1142];

export const CHANGES_NO_TABLE =
  'this user of the database has no right to change tables. Set MATTING_DATABASE_URL to the URL of ' +
  'the user that has it, for this command alone (docs/security.md, "The database user")';

export function isDenied(code: unknown): boolean {
  return DENIED.includes(code);
}

/** The server answered but must not be used. No statement was sent to it. */
export class MemberError extends Error {}
