/**
 * What a database's error means for the caller of a statement. Nothing else in the program reads
 * error numbers.
 */

export type DatabaseErrorKind =
  /**
   * Another transaction was in the way; nothing was committed. Worth the whole transaction again.
   */
  | 'conflict'
  /** No answer: a commit under way may or may not have happened. Worth another try, carefully. */
  | 'connection'
  /**
   * The server is not the primary any more; nothing was committed. Its connections stay with it for
   * as long as they are used, so they are closed: the same name may lead to the new primary.
   */
  | 'read-only'
  /** The server answers, but can not do it now: a full disk. */
  | 'unavailable'
  /** A unique constraint. */
  | 'duplicate'
  | 'other';

/**
 * Primary result codes of https://sqlite.org/rescode.html; extended ones keep these in the low
 * byte.
 */
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

/** Storage engines' HA_ERR_LOCK_DEADLOCK within ER_ERROR_DURING_COMMIT: rolled back. */
const DEADLOCK_AT_COMMIT = /^Got error 149\b/;

/**
 * Server errors of MySQL's and MariaDB's manuals, and what proxies and clusters in front of them
 * send in the same form; a function where one number has several meanings, which its message tells.
 */
const MYSQL_KINDS: Readonly<
  Record<number, DatabaseErrorKind | ((message: string) => DatabaseErrorKind)>
> = {
  1020: 'conflict', // ER_CHECKREAD: MariaDB's innodb_snapshot_isolation, on by default since 11.6.2
  1205: 'conflict', // ER_LOCK_WAIT_TIMEOUT: undoes the statement alone, the caller the rest
  1213: 'conflict', // ER_LOCK_DEADLOCK; also Galera's certification
  3101: 'conflict', // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: Group Replication's certification
  1062: 'duplicate', // ER_DUP_ENTRY
  1021: 'unavailable', // ER_DISK_FULL
  1026: 'unavailable', // ER_ERROR_ON_WRITE
  1114: 'unavailable', // ER_RECORD_FILE_FULL
  1036: 'read-only', // ER_OPEN_AS_READONLY: innodb_read_only of MariaDB, innodb_force_recovery
  1047: 'read-only', // ER_UNKNOWN_COM_ERROR: a Galera node outside the cluster's majority
  1290: 'read-only', // ER_OPTION_PREVENTS_STATEMENT: read_only, super_read_only
  1792: 'read-only', // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION: transaction_read_only
  1836: 'read-only', // ER_READ_ONLY_MODE: innodb_read_only
  1874: 'read-only', // ER_INNODB_READ_ONLY
  1040: 'connection', // ER_CON_COUNT_ERROR
  1053: 'connection', // ER_SERVER_SHUTDOWN
  1152: 'connection', // ER_ABORTING_CONNECTION
  // ER_ERROR_DURING_COMMIT: but for a deadlock nobody knows what became of it.
  1180: message => (DEADLOCK_AT_COMMIT.test(message) ? 'conflict' : 'connection'),
  1184: 'connection', // ER_NEW_ABORTING_CONNECTION
  1203: 'connection', // ER_TOO_MANY_USER_CONNECTIONS
  1317: 'connection', // ER_QUERY_INTERRUPTED: killed by an operator, or by a shutdown
  1927: 'connection', // ER_CONNECTION_KILLED of MariaDB
  2003: 'connection', // CR_CONN_HOST_ERROR: a router that has no primary to lead to
  2013: 'connection', // CR_SERVER_LOST: a router whose server went away
  3032: 'connection', // ER_SERVER_OFFLINE_MODE: a member that left its group
  3100: 'connection', // ER_RUN_HOOK_ERROR: Group Replication could not commit; nobody knows why
  3169: 'connection', // ER_SESSION_WAS_KILLED of MySQL
  4031: 'connection', // ER_CLIENT_INTERACTION_TIMEOUT of MySQL
};

const CONNECTION_CODES: ReadonlySet<string> = new Set([
  'PROTOCOL_CONNECTION_LOST',
  'STATEMENT_TIMEOUT', // mysql-pool.ts
  'POOL_QUEUE_LIMIT', // mysql-pool.ts, sqlite-connection.ts
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

interface DriverError {
  readonly code?: unknown;
  readonly errno?: unknown;
  readonly errcode?: unknown;
  readonly fatal?: unknown;
}

export function databaseErrorKind(error: unknown): DatabaseErrorKind {
  if (!(error instanceof Error)) return 'other';
  if (error instanceof MemberError) return error.kind;
  const { code, errno, errcode, fatal } = error as DriverError;
  if (code === 'ERR_SQLITE_ERROR' && typeof errcode === 'number') {
    if (errcode === SQLITE_CONSTRAINT_UNIQUE || errcode === SQLITE_CONSTRAINT_PRIMARYKEY) {
      return 'duplicate';
    }
    return SQLITE_KINDS[errcode & 0xff] ?? 'other';
  }
  const known = typeof errno === 'number' ? MYSQL_KINDS[errno] : undefined;
  if (known !== undefined) return typeof known === 'function' ? known(error.message) : known;
  // mysql2 marks what ends its connection; some of those errors carry no code at all.
  if (fatal === true) return 'connection';
  return typeof code === 'string' && CONNECTION_CODES.has(code) ? 'connection' : 'other';
}

/** A server that answered and is not to be used: it was left before a statement came to it. */
export class MemberError extends Error {
  readonly kind: 'read-only' | 'unavailable';

  constructor(kind: MemberError['kind'], detail: string) {
    super(detail);
    this.name = 'MemberError';
    this.kind = kind;
  }
}
