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

/** Each package declares its tables in it, such as core/tables.ts. */
// biome-ignore lint/suspicious/noEmptyInterface: others declare into it
export interface Schema {}

export type Db = Kysely<Schema>;

export type StoreLog = Pick<Logger, 'info' | 'warn'>;

export interface Database {
  readonly kysely: Kysely<Schema>;
  readonly dialect: DatabaseDialect;
  /** For messages: never with a password. */
  readonly location: string;
  /** That of the newest connection: an address may lead to another engine later. */
  readonly engine: Engine;
  readonly shares: RequestShares;
  /** The database's clock, as an expression. */
  readonly nowMs: RawBuilder<number>;
  readonly log: StoreLog;
  /** Waits for running work. */
  close(): Promise<void>;
}

/*
 * The only retries are here, except for SQLite's wait for the file lock. No caller repeats a call.
 *
 * A round is the work of one `query` or `transact`. It is repeated as a whole, so it must be
 * correct if it has already happened: the answer of a commit may be lost.
 *
 * | error       | repeated per burst                     | after the burst              |
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
 * Writes under a lease must survive a short outage, so they pass a signal `giveUp`. Instead of
 * SERVICE_UNAVAILABLE a pause and another burst follow, until PATIENCE_MS_MAX, or until the signal
 * aborts, which starts one last burst.
 */

/** Few rounds are lost, since every transaction locks the account's row first. */
const CONFLICT_RETRIES_MAX = 50;
/** Consecutive broken connections: covers a restart of the pool, not an outage. */
const CONNECTION_RETRIES_MAX = 4;
/** No round of a burst begins after this time. */
const RETRY_MS_MAX = 10_000;
const CONFLICT_PAUSE_MS_MAX = 100;
const CONNECTION_PAUSE_MS = 60;

/** Pause between two bursts of retries; doubles each time. */
const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 2000;
/** Longer than a database's restart or fail-over. After that the lease expires. */
const PATIENCE_MS_MAX = 120_000;

/** While the database is away. */
const UNAVAILABLE_RETRY_AFTER_S = 5;
/** Until an administrator changes something. */
const REFUSED_RETRY_AFTER_S = 60;

/** A round throws it if another transaction changed its reads. The round is then repeated. */
export class OvertakenError extends Error {}

export function transact<T>(
  database: Database,
  work: (tx: Transaction<Schema>) => Promise<T>,
  giveUp?: AbortSignal,
): Promise<T> {
  const round = () => database.kysely.transaction().execute(work);
  return database.shares.run(() => retrying(database, round, giveUp));
}

/** For statements that may each see another state. `work` may run more than once. */
export function query<T>(
  database: Database,
  work: (db: Kysely<Schema>) => Promise<T>,
  giveUp?: AbortSignal,
): Promise<T> {
  return database.shares.run(() => retrying(database, () => work(database.kysely), giveUp));
}

/**
 * On a server all reads see one instant and lock no row. SQLite has no such transaction: use one
 * statement there.
 */
export function readInstant<T>(database: Database, work: (db: Db) => Promise<T>): Promise<T> {
  const instant = database.kysely.transaction().setIsolationLevel('repeatable read');
  const round = () => instant.setAccessMode('read only').execute(work);
  return database.shares.run(() => retrying(database, round, undefined));
}

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
    // Rejects when `giveUp` aborts, so that the last burst follows at once.
    await delay(pauseMs, undefined, { signal: giveUp }).catch(() => undefined);
    pauseMs = Math.min(PAUSE_MS_MAX, pauseMs * 2);
    burst = new Burst();
  }
}

class Burst {
  readonly failures = { conflicts: 0, lostConnections: 0 };
  readonly #endsAtMs = performance.now() + RETRY_MS_MAX;

  async pause(kind: DatabaseErrorKind): Promise<boolean> {
    const pauseMs = this.#pauseMs(kind);
    if (pauseMs === undefined || performance.now() >= this.#endsAtMs) return false;
    // A random pause of at least half, so that two rounds that collided do not collide again.
    await delay(pauseMs * (0.5 + Math.random() / 2));
    return true;
  }

  #pauseMs(kind: DatabaseErrorKind): number | undefined {
    if (kind === 'conflict' && ++this.failures.conflicts <= CONFLICT_RETRIES_MAX) {
      return Math.min(CONFLICT_PAUSE_MS_MAX, 2 ** this.failures.conflicts);
    }
    const leavesServer = kind === 'connection' || kind === 'read-only';
    if (leavesServer && ++this.failures.lostConnections <= CONNECTION_RETRIES_MAX) {
      return CONNECTION_PAUSE_MS * 2 ** this.failures.lostConnections;
    }
    return undefined;
  }
}

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

/** If only one account waits, it gets half of these. */
const ACCOUNTS_WAITING_MAX = 4096;
/** One for each public connection, so that no caller is refused because of another. */
const UNKNOWN_WAITING_MAX = 10_000;
/** Unknown callers read one row by its key, so a quarter of the accounts' slots is enough. */
const SLOTS_TO_AN_UNKNOWN = 4;
/** As long as an upload waits for its slot. */
const WAIT_MS = 10_000;
/** All waiting requests are done in a second or two. */
const BUSY_RETRY_AFTER_S = 2;

/** No slot was free: the work has not begun. */
export class NotBegunError extends ContractError {}

/**
 * Bounds how many requests of each account run statements at once, so that a burst of one account
 * does not fill the queue of the connections. A request holds its slot only during its statements.
 * Callers without a known account (a key not read before, a result's link) have slots by their
 * secret or network. Work outside of requests (dispatch, leases, sweeps) takes no slot.
 */
export class RequestShares {
  readonly #accounts: Semaphore;
  readonly #unknown: Semaphore;

  constructor(slotsMax: number) {
    const bounds = { waitMs: WAIT_MS, refusal: busy };
    this.#accounts = new Semaphore({ max: slotsMax, waitingMax: ACCOUNTS_WAITING_MAX, ...bounds });
    this.#unknown = new Semaphore({
      max: Math.ceil(slotsMax / SLOTS_TO_AN_UNKNOWN),
      waitingMax: UNKNOWN_WAITING_MAX,
      ...bounds,
    });
  }

  get waiting(): number {
    return this.#accounts.waiting + this.#unknown.waiting;
  }

  /** @throws NotBegunError; errors of `work` */
  run<T>(work: () => Promise<T>): Promise<T> {
    const owner = requestOwner();
    if (owner === undefined) return work();
    // Runs outside of the request, so that nested queries wait for no second slot.
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
