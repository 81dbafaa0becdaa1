/**
 * What a database's error means for the caller of a statement, by the tables in engines/. Nothing
 * else in the program reads error numbers.
 */
import type { DatabaseErrorKind } from './engines/engine.ts';
import { MYSQL_CODES } from './engines/engines.ts';
import { SQLITE_KINDS } from './engines/error-codes.ts';

export type { DatabaseErrorKind } from './engines/engine.ts';

const SQLITE_CONSTRAINT_PRIMARYKEY = 1555;
const SQLITE_CONSTRAINT_UNIQUE = 2067;

const CONNECTION_CODES: ReadonlySet<string> = new Set([
  'PROTOCOL_CONNECTION_LOST',
  'STATEMENT_TIMEOUT', // mysql-connection.ts
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
  if (error instanceof MemberError) return error.kind;
  const { code, errno, errcode, fatal } = error as DriverError;
  if (code === 'ERR_SQLITE_ERROR' && typeof errcode === 'number') {
    if (errcode === SQLITE_CONSTRAINT_UNIQUE || errcode === SQLITE_CONSTRAINT_PRIMARYKEY) {
      return 'duplicate';
    }
    return SQLITE_KINDS[errcode & 0xff] ?? 'other';
  }
  const known = typeof errno === 'number' ? MYSQL_CODES[errno] : undefined;
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
