/**
 * A connection in an uncertain state (a statement timed out, a rollback failed) is closed, and the
 * server rolls back its transaction. A connection that met a read-only server is closed with every
 * older one: after a fail-over the address leads elsewhere, but a busy connection would stay with
 * the old primary forever.
 */

import { MysqlDialect, type MysqlPool, type MysqlPoolConnection } from 'kysely';
import { createPool, type Pool, type PoolConnection, type PoolOptions } from 'mysql2';
import { databaseErrorKind, OWN_VARIABLES } from './engines.ts';
import { type Member, readMember, requireSupported } from './member.ts';
import { ServerLiveness, SUSPECT_MS } from './server-liveness.ts';

/**
 * Time limit of one statement while the server answers others: several hundred times the slowest.
 * Without it a statement could hold its caller for a quarter of an hour.
 */
const STATEMENT_MS_MAX = 30_000;
/** For TCP, TLS and the handshake. */
const CONNECT_MS_MAX = 5_000;
/** For a row's lock. The transaction is then repeated. */
const LOCK_WAIT_S_MAX = 10;
/** Further callers get POOL_QUEUE_LIMIT immediately. */
const POOL_WAITERS_MAX = 2_000;
/**
 * The pool lends the newest first. Older ones would stay idle, and miss that the address now leads
 * elsewhere.
 */
const IDLE_MS_MAX = 5_000;
/**
 * Least time between two replacements of all connections; an earlier one waits. While there is no
 * primary, each write would cause one.
 */
const LEAVE_MS_MIN = 1_000;

/**
 * Strict mode never cuts values. In UTC now() has no summer time. completion_type 0 chains no
 * transactions.
 */
const SQL_MODE = [
  'STRICT_ALL_TABLES',
  'ONLY_FULL_GROUP_BY',
  'NO_ENGINE_SUBSTITUTION',
  'NO_ZERO_DATE',
  'NO_ZERO_IN_DATE',
  'ERROR_FOR_DIVISION_BY_ZERO',
].join();
const SESSION = `set session autocommit = 1, time_zone = '+00:00',
  innodb_lock_wait_timeout = ${LOCK_WAIT_S_MAX}, sql_mode = '${SQL_MODE}', completion_type = 0`;

function sessionOf({ engine, variables }: Member): readonly string[] {
  const own = Object.entries(OWN_VARIABLES).filter(([name]) => variables.has(name));
  return [
    'set session transaction isolation level read committed',
    [SESSION, ...own.map(([name, value]) => `${name} = ${value}`)].join(),
    ...engine.session,
  ];
}

/** Statements with a time limit. DDL and the migration lock have none. */
const BOUNDED =
  /^(?!select get_lock\b)(select|with|insert|update|delete|show|set|begin|commit|rollback)\b/i;
/** If one of these fails, the state of the transaction is unknown. */
const CONTROL = /^(set|begin|commit|rollback)\b/;

interface MysqlPoolOptions {
  readonly pool: PoolOptions;
  readonly onLost: (error: Error) => void;
  readonly statementMsMax?: number | undefined;
  readonly onMember?: ((member: Member) => void) | undefined;
}

export function mysqlDialect(options: MysqlPoolOptions): MysqlDialect {
  return new MysqlDialect({ pool: new GuardedPool(options) });
}

type QueryCallback = (error: unknown, result: never) => void;

class GuardedConnection implements MysqlPoolConnection {
  readonly #raw: PoolConnection;
  readonly #pool: GuardedPool;
  /** performance.now() before it connected: the server may have changed since. */
  readonly connectingAtMs: number;
  #closed = false;
  #endedBy: Error | undefined;

  constructor(raw: PoolConnection, pool: GuardedPool, connectingAtMs: number) {
    this.#raw = raw;
    this.#pool = pool;
    this.connectingAtMs = connectingAtMs;
  }

  get config(): object {
    return this.#raw.config;
  }

  get threadId(): number {
    return this.#raw.threadId;
  }

  connect(): void {
    // The pool has connected it.
  }

  query(sql: string, parameters: readonly unknown[], callback: QueryCallback = () => undefined) {
    // The server has rolled back already. Other statements get the error that closed the
    // connection.
    if (this.#closed && sql === 'rollback') callback(null, [] as never);
    else if (this.#endedBy !== undefined) callback(this.#endedBy, undefined as never);
    else this.#query(sql, parameters, callback);
    return NO_STREAM;
  }

  /** mysql2's own time limit leaves its timer running when the connection breaks. */
  #query(sql: string, parameters: readonly unknown[], callback: QueryCallback): void {
    const { suspectMs, liveness } = this.#pool;
    let leftMs = this.#pool.statementMsMax;
    let ended = false;
    const end = (error: unknown, result?: unknown) => {
      if (ended) return;
      ended = true;
      clearInterval(timer);
      callback(error, result as never);
    };
    const expire = () => {
      if (ended) return;
      this.destroy();
      const error = new Error('the database did not answer a statement in time');
      end(Object.assign(error, { code: 'STATEMENT_TIMEOUT' }));
    };
    const suspect = () => {
      leftMs -= suspectMs;
      if (leftMs <= 0) expire();
      else liveness.suspect(expire);
    };
    const timer = BOUNDED.test(sql) ? setInterval(suspect, suspectMs) : undefined;
    this.#raw.query(sql, [...parameters], (error, result) => {
      if (error?.fatal !== true) liveness.lastAnswerAtMs = performance.now();
      if (error) this.#failed(error, sql);
      end(error, result);
    });
  }

  #failed(error: Error, sql: string): void {
    const kind = databaseErrorKind(error);
    if (kind === 'connection' || kind === 'read-only' || CONTROL.test(sql)) {
      this.#endedBy = error;
      this.destroy();
    }
    if (kind === 'read-only') this.#pool.leave(this);
  }

  release(): void {
    if (this.#pool.hasLeft(this)) this.destroy();
    else if (!this.#closed) this.#raw.release();
  }

  /** The server rolls back the open transaction. */
  destroy(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#raw.destroy();
  }
}

const NO_STREAM = {
  stream(): never {
    throw new Error('the stores do not stream');
  },
};

class GuardedPool implements MysqlPool {
  readonly statementMsMax: number;
  readonly suspectMs: number;
  readonly liveness: ServerLiveness;
  readonly #pool: Pool;
  readonly #options: MysqlPoolOptions;
  readonly #connections = new WeakMap<PoolConnection, GuardedConnection>();
  /** Connections from before this time (performance.now()) are closed instead of used. */
  #leftAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: MysqlPoolOptions) {
    this.#options = options;
    this.statementMsMax = options.statementMsMax ?? STATEMENT_MS_MAX;
    this.suspectMs = Math.min(SUSPECT_MS, this.statementMsMax / 10);
    const connectTimeout = Math.min(CONNECT_MS_MAX, this.statementMsMax / 6);
    const { connectionLimit: _, ...server } = options.pool;
    this.liveness = new ServerLiveness({ ...server, connectTimeout });
    this.#pool = createPool({
      ...options.pool,
      charset: 'UTF8MB4_BIN',
      supportBigNumbers: true,
      bigNumberStrings: false,
      decimalNumbers: true,
      waitForConnections: true,
      queueLimit: POOL_WAITERS_MAX,
      connectTimeout,
      idleTimeout: IDLE_MS_MAX,
      maxIdle: Math.max(1, Math.ceil((options.pool.connectionLimit ?? 1) / 2)),
    });
  }

  getConnection(callback: (error: unknown, connection: GuardedConnection) => void): void {
    this.#acquire().then(
      connection => callback(null, connection),
      error => callback(error, undefined as never),
    );
  }

  end(callback: (error: unknown) => void): void {
    this.liveness.isPoolOpen = false;
    this.#pool.end(callback);
  }

  async #acquire(): Promise<GuardedConnection> {
    for (;;) {
      if (this.liveness.isSilent) {
        throw Object.assign(new Error('the database answers nobody'), { code: 'SERVER_SILENT' });
      }
      const connectingAtMs = performance.now();
      const raw = await this.#getRaw();
      const known = this.#connections.get(raw);
      if (known !== undefined) {
        if (!this.hasLeft(known)) return known;
        // Each round destroys a connection, so there are at most as many rounds as connections.
        known.destroy();
        continue;
      }
      return await this.#prepare(raw, connectingAtMs);
    }
  }

  /** The server is read-only now. Ignores connections from before the last call. */
  leave(connection: GuardedConnection): void {
    const now = performance.now();
    if (this.hasLeft(connection) || this.#leftAtMs > now) return;
    this.#leftAtMs = Math.max(now, this.#leftAtMs + LEAVE_MS_MIN);
  }

  hasLeft({ connectingAtMs }: GuardedConnection): boolean {
    // If the time is in the future, the previous one, LEAVE_MS_MIN earlier, still holds.
    const isAhead = this.#leftAtMs > performance.now();
    return connectingAtMs <= this.#leftAtMs - (isAhead ? LEAVE_MS_MIN : 0);
  }

  #getRaw(): Promise<PoolConnection> {
    return new Promise((resolve, reject) => {
      this.#pool.getConnection((error, connection) => {
        if (error?.code === 'ETIMEDOUT') this.liveness.suspect(() => undefined);
        if (!error) resolve(connection);
        else if (error.message === 'Queue limit reached.') {
          reject(Object.assign(error, { code: 'POOL_QUEUE_LIMIT' }));
        } else reject(error);
      });
    });
  }

  async #prepare(raw: PoolConnection, connectingAtMs: number): Promise<GuardedConnection> {
    const { onLost, onMember } = this.#options;
    const connection = new GuardedConnection(raw, this, connectingAtMs);
    // Emitted when the idle connection breaks. Without a listener it would end the process.
    raw.on('error', onLost);
    const run = (sql: string) =>
      new Promise((resolve, reject) => {
        connection.query(sql, [], (error, rows) => (error ? reject(error) : resolve(rows)));
      });
    try {
      const member = await readMember(run);
      onMember?.(member);
      requireSupported(member);
      for (const sql of sessionOf(member)) await run(sql);
    } catch (error) {
      connection.destroy();
      throw error;
    }
    this.#connections.set(raw, connection);
    return connection;
  }
}
