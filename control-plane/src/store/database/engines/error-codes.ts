/** Error numbers that mean the same on every engine which has them. */
import type { DatabaseErrorKind, ErrorCodes } from './engine.ts';

/**
 * Primary result codes of https://sqlite.org/rescode.html; extended ones keep these in the low
 * byte.
 */
export const SQLITE_KINDS: Readonly<Record<number, DatabaseErrorKind>> = {
  5: 'conflict', // SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT, SQLITE_BUSY_RECOVERY
  6: 'conflict', // SQLITE_LOCKED
  8: 'unavailable', // SQLITE_READONLY
  10: 'unavailable', // SQLITE_IOERR
  13: 'unavailable', // SQLITE_FULL
  14: 'unavailable', // SQLITE_CANTOPEN
};

/** Storage engines' HA_ERR_LOCK_DEADLOCK within ER_ERROR_DURING_COMMIT: rolled back. */
const DEADLOCK_AT_COMMIT = /^Got error 149\b/;

/**
 * Server errors of MySQL's and MariaDB's manuals, and what proxies and clusters in front of them
 * send in the same form.
 */
export const FAMILY_CODES: ErrorCodes = {
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
  1290: 'read-only', // ER_OPTION_PREVENTS_STATEMENT: read_only, super_read_only; Aurora's readers
  1792: 'read-only', // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION: transaction_read_only
  1836: 'read-only', // ER_READ_ONLY_MODE: innodb_read_only; Aurora's readers
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
