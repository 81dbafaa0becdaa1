/**
 * What a database's error means for whoever issued the statement: one table for SQLite's result
 * codes and one for MySQL's and MariaDB's error numbers. Nothing else in the program reads these
 * numbers.
 */

export type DatabaseErrorKind =
  /**
   * Another transaction was in the way; nothing was committed. Worth the whole transaction again.
   */
  | 'conflict'
  /** No answer: a commit under way may or may not have happened. Worth another try, carefully. */
  | 'connection'
  /** The server answers, but can not do it now: full disk, read-only, too many connections. */
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

const MYSQL_KINDS: Readonly<Record<number, DatabaseErrorKind>> = {
  1020: 'conflict', // ER_CHECKREAD: MariaDB's innodb_snapshot_isolation, on by default since 11.6.2
  1205: 'conflict', // ER_LOCK_WAIT_TIMEOUT: undoes the statement alone, the caller the rest
  1213: 'conflict', // ER_LOCK_DEADLOCK
  1062: 'duplicate', // ER_DUP_ENTRY
  1021: 'unavailable', // ER_DISK_FULL
  1026: 'unavailable', // ER_ERROR_ON_WRITE
  1114: 'unavailable', // ER_RECORD_FILE_FULL
  1290: 'unavailable', // ER_OPTION_PREVENTS_STATEMENT: read-only after a fail-over
  1792: 'unavailable', // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
  1836: 'unavailable', // ER_READ_ONLY_MODE
  1040: 'connection', // ER_CON_COUNT_ERROR
  1053: 'connection', // ER_SERVER_SHUTDOWN
  1152: 'connection', // ER_ABORTING_CONNECTION
  1184: 'connection', // ER_NEW_ABORTING_CONNECTION
  1317: 'connection', // ER_QUERY_INTERRUPTED: killed by an operator, or by a shutdown
  1927: 'connection', // ER_CONNECTION_KILLED of MariaDB
  4031: 'connection', // ER_CLIENT_INTERACTION_TIMEOUT of MySQL
};

const CONNECTION_CODES: ReadonlySet<string> = new Set([
  'PROTOCOL_CONNECTION_LOST',
  'STATEMENT_TIMEOUT', // mysql-dialect.ts
  'POOL_QUEUE_LIMIT', // mysql-dialect.ts, sqlite-connection.ts
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
  const { code, errno, errcode, fatal } = error as DriverError;
  if (code === 'ERR_SQLITE_ERROR' && typeof errcode === 'number') {
    if (errcode === SQLITE_CONSTRAINT_UNIQUE || errcode === SQLITE_CONSTRAINT_PRIMARYKEY) {
      return 'duplicate';
    }
    return SQLITE_KINDS[errcode & 0xff] ?? 'other';
  }
  const known = typeof errno === 'number' ? MYSQL_KINDS[errno] : undefined;
  if (known !== undefined) return known;
  // mysql2 marks what ends its connection; some of those errors carry no code at all.
  if (fatal === true) return 'connection';
  return typeof code === 'string' && CONNECTION_CODES.has(code) ? 'connection' : 'other';
}
