/**
 * The one place where statements are tried again. A transaction that lost against another one, or
 * whose connection broke, runs again as a whole; what it does must therefore stand up to having
 * happened already, because a commit whose answer was lost may have taken effect.
 *
 * | error       | tried again                            | then                                   |
 * |-------------|----------------------------------------|----------------------------------------|
 * | conflict    | CONFLICT_RETRIES_MAX, RETRY_MS_MAX     | SERVICE_UNAVAILABLE                    |
 * | connection  | CONNECTION_RETRIES_MAX, about a second | SERVICE_UNAVAILABLE                    |
 * | read-only   | the same, by new connections           | SERVICE_UNAVAILABLE, which says so     |
 * | unavailable | no                                     | SERVICE_UNAVAILABLE                    |
 * | duplicate   | no                                     | itself, for the caller that expects it |
 * | other       | no                                     | itself                                 |
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Kysely, Transaction } from 'kysely';
import { ContractError } from '#contract/errors.ts';
import type { Database } from './connect.ts';
import { type DatabaseErrorKind, databaseErrorKind } from './database-errors.ts';
import type { Schema } from './schema.ts';

/** Lost rounds against other transactions; the account's row comes first everywhere, so few are. */
export const CONFLICT_RETRIES_MAX = 50;
/**
 * Broken connections in a row: a restart of the pool's connections is bridged, an outage is not.
 */
export const CONNECTION_RETRIES_MAX = 4;
/** No new round begins after this. */
const RETRY_MS_MAX = 10_000;
const CONFLICT_PAUSE_MS_MAX = 100;
const CONNECTION_PAUSE_MS = 60;

/** Of a store's outage; Retry-After. */
const UNAVAILABLE_RETRY_AFTER_S = 5;

/** A transaction: all of `work` or nothing. `work` may run more than once. */
export function transact<T>(
  database: Database,
  work: (tx: Transaction<Schema>) => Promise<T>,
): Promise<T> {
  return retrying(database, () => database.kysely.transaction().execute(work));
}

/** One statement, or several that need not see one state. */
export function query<T>(database: Database, work: (db: Kysely<Schema>) => Promise<T>): Promise<T> {
  return retrying(database, () => work(database.kysely));
}

/**
 * Reads of what this process has just written, or may have: whoever acts on them must not see less.
 * Today the same as `query`, since one server answers both. An engine or a proxy that lets replicas
 * answer reads outside a transaction makes this the place to ask the primary.
 */
export function readBack<T>(
  database: Database,
  work: (db: Kysely<Schema>) => Promise<T>,
): Promise<T> {
  return query(database, work);
}

async function retrying<T>(database: Database, run: () => Promise<T>): Promise<T> {
  const giveUpAt = performance.now() + RETRY_MS_MAX;
  let conflicts = 0;
  let lostConnections = 0;
  for (;;) {
    let pauseMs: number;
    try {
      return await run();
    } catch (error) {
      const kind = databaseErrorKind(error);
      if (kind === 'duplicate' || kind === 'other') throw error;
      const late = performance.now() >= giveUpAt;
      if (kind === 'conflict' && ++conflicts <= CONFLICT_RETRIES_MAX && !late) {
        pauseMs = Math.min(CONFLICT_PAUSE_MS_MAX, 2 ** conflicts);
      } else if (leavesServer(kind) && ++lostConnections <= CONNECTION_RETRIES_MAX && !late) {
        pauseMs = CONNECTION_PAUSE_MS * 2 ** lostConnections;
      } else {
        database.log.warn({ err: error, conflicts, lostConnections }, 'the database failed');
        throw unavailable(kind, error);
      }
    }
    // At least half of it, so that two that met once do not meet again at once.
    await delay(pauseMs * (0.5 + Math.random() / 2));
  }
}

/** The next round has another connection, which may lead to another server. */
function leavesServer(kind: DatabaseErrorKind): boolean {
  return kind === 'connection' || kind === 'read-only';
}

function unavailable(kind: DatabaseErrorKind, cause: unknown): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', reasonOf(kind, cause), {
    cause,
    retryAfterS: UNAVAILABLE_RETRY_AFTER_S,
  });
}

/** What somebody reads who looks for the fault: a bound of ours is no outage of the database. */
function reasonOf(kind: DatabaseErrorKind, cause: unknown): string {
  if (kind === 'read-only') return 'the database is read-only';
  const { code } = cause as { code?: unknown };
  if (code === 'STATEMENT_TIMEOUT') return 'the database took too long over a statement';
  if (code === 'POOL_QUEUE_LIMIT') return 'too many requests wait for the database';
  if (kind === 'conflict') return 'other transactions keep what is needed of the database';
  return 'the database is not available';
}
