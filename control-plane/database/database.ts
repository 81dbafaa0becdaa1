/**
 * A database, and the only two ways to it: `transact` and `query`, with the retries of both and the
 * shares that accounts have of it.
 */

import { setTimeout as delay } from 'node:timers/promises';
import { networkOf } from '@matting/program/ports/addresses.ts';
import { outsideRequests, requestOwner } from '@matting/program/request-owner.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Kysely, RawBuilder, Transaction } from 'kysely';
import type { Logger } from 'pino';
import {
  type DatabaseDialect,
  type DatabaseErrorKind,
  databaseErrorKind,
  type Engine,
} from './engines.ts';

/** The tables, by their names: each package declares its own into it (core/tables.ts). */
// biome-ignore lint/suspicious/noEmptyInterface: others declare into it
export interface Schema {}

/** The database, or a transaction of it. */
export type Db = Kysely<Schema>;

export type StoreLog = Pick<Logger, 'info' | 'warn'>;

export interface Database {
  readonly kysely: Kysely<Schema>;
  readonly dialect: DatabaseDialect;
  /** The name for people: a file's path, or a server's URL without the password. */
  readonly place: string;
  /** The engine that answers now: an address can lead to another server, of another engine. */
  readonly engine: Engine;
  /** The requests share the database by these. */
  readonly shares: RequestShares;
  /** The database's clock, as an expression for a statement. */
  readonly nowMs: RawBuilder<number>;
  readonly log: StoreLog;
  /** Waits for what is running. */
  close(): Promise<void>;
}

/*
 * Retries. No caller above repeats a call of the stores, no driver below a statement, but SQLite's
 * that waits for its file's lock.
 *
 * A round is the work that `query` or `transact` runs: several statements, or a transaction. It is
 * repeated as a whole, so it must be correct if it has happened already: a commit whose answer was
 * lost may have taken effect. A round may also ask to be repeated, by an OvertakenError.
 *
 * | error       | repeated, a burst                      | after the burst              |
 * |-------------|----------------------------------------|------------------------------|
 * | conflict,   | CONFLICT_RETRIES_MAX, RETRY_MS_MAX     | SERVICE_UNAVAILABLE          |
 * | overtaken   |                                        |                              |
 * | connection  | CONNECTION_RETRIES_MAX, about a second | SERVICE_UNAVAILABLE          |
 * | read-only   | the same, by new connections           | SERVICE_UNAVAILABLE, says so |
 * | unavailable,| no                                     | SERVICE_UNAVAILABLE          |
 * | refused     |                                        |                              |
 * | duplicate   | no                                     | itself: the caller expects it|
 * | other       | no                                     | itself                       |
 *
 * Most callers get the error then: a request is answered with 503, a renewal comes again by itself.
 * Writes under a lease (of a job, of a notification) must not be lost while the database is away
 * for a moment. They pass a signal `giveUp`: instead of SERVICE_UNAVAILABLE there is a pause of
 * PAUSE_MS_MIN to PAUSE_MS_MAX and another burst, until PATIENCE_MS_MAX have passed, or until the
 * signal aborts, which ends the pause and leaves one last burst.
 */

/** Lost rounds against other transactions; the account's row comes first everywhere, so few are. */
const CONFLICT_RETRIES_MAX = 50;
/** Broken connections in a row: a restart of the pool's is bridged, an outage is not. */
const CONNECTION_RETRIES_MAX = 4;
/** No new round of a burst begins after this. */
const RETRY_MS_MAX = 10_000;
const CONFLICT_PAUSE_MS_MAX = 100;
const CONNECTION_PAUSE_MS = 60;

/** Between two bursts; doubled each time. */
const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 2000;
/** Longer than a database's restart or fail-over; then the lease's expiry is the way on. */
const PATIENCE_MS_MAX = 120_000;

/** Retry-After while the database is away. */
const UNAVAILABLE_RETRY_AFTER_S = 5;
/** The same until somebody has changed something. */
const REFUSED_RETRY_AFTER_S = 60;

/** Thrown by a round where another transaction changed what it had read: it is repeated. */
export class OvertakenError extends Error {}

/**
 * All of `work` or nothing; `work` may run more than once, in one slot of the request it is for.
 */
export function transact<T>(
  database: Database,
  work: (tx: Transaction<Schema>) => Promise<T>,
  giveUp?: AbortSignal,
): Promise<T> {
  const round = () => database.kysely.transaction().execute(work);
  return database.shares.run(() => retrying(database, round, giveUp));
}

/** One statement, or several that need not see one state; `work` as that of `transact`. */
export function query<T>(
  database: Database,
  work: (db: Kysely<Schema>) => Promise<T>,
  giveUp?: AbortSignal,
): Promise<T> {
  return database.shares.run(() => retrying(database, () => work(database.kysely), giveUp));
}

/**
 * Several reads that see one instant, that of the first, and lock no row. For a server: SQLite has
 * one transaction at a time, and one statement reads what must agree. `work` as that of `transact`.
 */
export function readInstant<T>(database: Database, work: (db: Db) => Promise<T>): Promise<T> {
  const instant = database.kysely.transaction().setIsolationLevel('repeatable read');
  const round = () => instant.setAccessMode('read only').execute(work);
  return database.shares.run(() => retrying(database, round, undefined));
}

/** Reads the database's clock. */
export async function readNowMs(database: Database): Promise<number> {
  const row = await query(database, db =>
    db.selectNoFrom(database.nowMs.as('now')).executeTakeFirstOrThrow(),
  );
  return row.now;
}

async function retrying<T>(
  database: Database,
  round: () => Promise<T>,
  giveUp: AbortSignal | undefined,
): Promise<T> {
  const patientUntilMs = performance.now() + PATIENCE_MS_MAX;
  let burst = new Burst();
  let pauseMs = PAUSE_MS_MIN;
  for (;;) {
    try {
      return await round();
    } catch (error) {
      const kind = error instanceof OvertakenError ? 'conflict' : databaseErrorKind(error);
      if (kind === 'duplicate' || kind === 'other') throw error;
      if (await burst.pause(kind)) continue;
      database.log.warn({ err: error, ...burst.failures }, 'the database failed');
      const impatient = giveUp === undefined || giveUp.aborted;
      if (impatient || performance.now() >= patientUntilMs) throw unavailable(kind, error);
    }
    // Rejects when `giveUp` aborts: the last burst follows at once.
    await delay(pauseMs, undefined, { signal: giveUp }).catch(() => undefined);
    pauseMs = Math.min(PAUSE_MS_MAX, pauseMs * 2);
    burst = new Burst();
  }
}

/** Rounds that follow each other closely. */
class Burst {
  readonly failures = { conflicts: 0, lostConnections: 0 };
  readonly #endsAtMs = performance.now() + RETRY_MS_MAX;

  /** Resolves when the next round may begin; false, at once: the burst is over. */
  async pause(kind: DatabaseErrorKind): Promise<boolean> {
    const pauseMs = this.#pauseMs(kind);
    if (pauseMs === undefined || performance.now() >= this.#endsAtMs) return false;
    // Waits at least half of it, so that two that met once do not meet again at once.
    await delay(pauseMs * (0.5 + Math.random() / 2));
    return true;
  }

  #pauseMs(kind: DatabaseErrorKind): number | undefined {
    if (kind === 'conflict' && ++this.failures.conflicts <= CONFLICT_RETRIES_MAX) {
      return Math.min(CONFLICT_PAUSE_MS_MAX, 2 ** this.failures.conflicts);
    }
    // The next round has another connection, which may lead to another server.
    const leavesServer = kind === 'connection' || kind === 'read-only';
    if (leavesServer && ++this.failures.lostConnections <= CONNECTION_RETRIES_MAX) {
      return CONNECTION_PAUSE_MS * 2 ** this.failures.lostConnections;
    }
    return undefined;
  }
}

/** The reason is for the person who searches for the fault: our bound is not the database's outage. */
function unavailable(kind: DatabaseErrorKind, cause: unknown): ContractError {
  const isRefused = kind === 'refused';
  const retryAfterS = isRefused ? REFUSED_RETRY_AFTER_S : UNAVAILABLE_RETRY_AFTER_S;
  const when = isRefused ? 'a minute' : 'a few seconds';
  const detail = `${faultOf(kind, cause)}. Try again in ${when}.`;
  return new ContractError('SERVICE_UNAVAILABLE', detail, { cause, retryAfterS });
}

function faultOf(kind: DatabaseErrorKind, cause: unknown): string {
  if (kind === 'read-only') return "The service's database is read-only";
  if (kind === 'refused')
    return "The service's database refuses this until its operator changes it";
  const { code } = cause as { code?: unknown };
  const isLate = code === 'STATEMENT_TIMEOUT' || code === 'SERVER_SILENT';
  if (isLate) return "The service's database does not answer in time";
  if (code === 'POOL_QUEUE_LIMIT') return "Too many requests wait for the service's database";
  if (kind === 'conflict') return "Other requests keep the service's database busy";
  return "The service's database is not available";
}

/** An account alone may have half of them wait: as many as could wait for a connection. */
const ACCOUNTS_WAITING_MAX = 4096;
/** One for each connection that the public port takes: no caller is refused for another. */
const UNKNOWN_WAITING_MAX = 10_000;
/** Accounts have this many slots for each slot of unknown callers, who read one row by its key. */
const SLOTS_TO_AN_UNKNOWN = 4;
/** An upload waits as long for its slot. */
const WAIT_MS = 10_000;
/** All requests that may wait before one are done in a second or two. */
const BUSY_RETRY_AFTER_S = 2;

/** A request found no slot: the work has not begun, and nothing has changed. */
export class NotBegunError extends ContractError {}

/**
 * The share that each account has: how many of its requests may have statements under way here. A
 * burst of one account waits in its own queue, and not before others in that of the connections. A
 * request holds its slot only for its statements: not while it receives, stores or waits for a job.
 *
 * Callers whose account is not known, with an API key that was not read before or the link of a
 * result, have slots of their own, by the secret they show or the network they come from. What no
 * request waits for (dispatch, leases, sweeps, commands) takes no slot: the queue of the
 * connections bounds it.
 */
export class RequestShares {
  readonly #accounts: Semaphore;
  readonly #unknown: Semaphore;

  /** @param slotsMax of all accounts together */
  constructor(slotsMax: number) {
    const bounds = { waitMs: WAIT_MS, refusal: busy };
    this.#accounts = new Semaphore({ max: slotsMax, waitingMax: ACCOUNTS_WAITING_MAX, ...bounds });
    this.#unknown = new Semaphore({
      max: Math.ceil(slotsMax / SLOTS_TO_AN_UNKNOWN),
      waitingMax: UNKNOWN_WAITING_MAX,
      ...bounds,
    });
  }

  /** Requests that wait for their slot. */
  get waiting(): number {
    return this.#accounts.waiting + this.#unknown.waiting;
  }

  /**
   * The work in a slot of the request's owner, if there is one.
   * @throws NotBegunError; what `work` throws
   */
  run<T>(work: () => Promise<T>): Promise<T> {
    const owner = requestOwner();
    if (owner === undefined) return work();
    // Outside, so that what asks the database within its own work waits for no second slot.
    const inSlot = () => outsideRequests(work);
    return 'accountId' in owner
      ? this.#accounts.run({ key: owner.accountId }, inSlot)
      : this.#unknown.run({ key: networkOf(owner.shows) }, inSlot);
  }
}

function busy(): ContractError {
  const detail = 'too many requests of yours wait for the database';
  return new NotBegunError('SERVICE_UNAVAILABLE', detail, { retryAfterS: BUSY_RETRY_AFTER_S });
}
