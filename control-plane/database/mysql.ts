/**
 * The pool of connections below Kysely's dialect for MySQL and MariaDB. Every statement has a time
 * limit, every connection the same session. A connection whose state is not known for certain (a
 * statement timed out, a rollback failed) is closed and never reused: the server then rolls back
 * what was open.
 *
 * A connection that met a read-only server is closed too, and with it every older one: after a
 * fail-over the same address leads elsewhere, and a connection that is used every second would stay
 * with the old primary for ever.
 */

import { MysqlDialect, type MysqlPool, type MysqlPoolConnection } from 'kysely';
import { createPool, type Pool, type PoolConnection, type PoolOptions } from 'mysql2';
import { databaseErrorKind, OWN_VARIABLES } from './engines.ts';
import { type Member, readMember, requireSupported } from './member.ts';
import { Silence, SUSPECT_MS } from './silence.ts';

/**
 * Time for one statement of a server that answers others (silence.ts); several hundred times what
 * the slowest takes. Without it a statement could hold its caller for about a quarter of an hour.
 */
const STATEMENT_MS_MAX = 30_000;
/** Time for TCP, TLS and the handshake. */
const CONNECT_MS_MAX = 5_000;
/** Waiting for a row's lock; the transaction is then tried again as a whole. */
const LOCK_WAIT_S_MAX = 10;
/** Callers that wait for a connection; one more gets POOL_QUEUE_LIMIT at once. */
const POOL_WAITERS_MAX = 2_000;
/**
 * An unused connection is closed after this. The pool lends the newest first: those below stay
 * where they are when the address leads elsewhere, and no write on them finds it out.
 */
const IDLE_MS_MAX = 5_000;
/**
 * Between two times that the pool leaves a server: while there is no primary every write meets a
 * read-only one, and readers must not pay a new connection for each of them. A time that comes
 * earlier counts later.
 */
const LEAVE_MS_MIN = 1_000;

/**
 * Strict, so that no value is cut to fit; time zone UTC, so that now() has no summer time; no
 * transaction that begins by itself after a commit.
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

/** DDL and the migration lock take as long as they take. */
const BOUNDED =
  /^(?!select get_lock\b)(select|with|insert|update|delete|show|set|begin|commit|rollback)\b/i;
/** If one of these fails, nobody knows what is open. */
const CONTROL = /^(set|begin|commit|rollback)\b/;

interface MysqlPoolOptions {
  readonly pool: PoolOptions;
  /** Called when an idle connection broke. */
  readonly onLost: (error: Error) => void;
  readonly statementMsMax?: number | undefined;
  /** Called with the server of each new connection. */
  readonly onMember?: ((member: Member) => void) | undefined;
}

export function mysqlDialect(options: MysqlPoolOptions): MysqlDialect {
  return new MysqlDialect({ pool: new GuardedPool(options) });
}

type QueryCallback = (error: unknown, result: never) => void;

class GuardedConnection implements MysqlPoolConnection {
  readonly #raw: PoolConnection;
  readonly #pool: GuardedPool;
  /** The time by performance.now() before it connected: meanwhile the server may have changed. */
  readonly askedAtMs: number;
  #closed = false;
  #endedBy: Error | undefined;

  constructor(raw: PoolConnection, pool: GuardedPool, askedAtMs: number) {
    this.#raw = raw;
    this.#pool = pool;
    this.askedAtMs = askedAtMs;
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
    // The server has rolled back by itself; the error that closed the connection is to be reported.
    if (this.#closed && sql === 'rollback') callback(null, [] as never);
    else if (this.#endedBy !== undefined) callback(this.#endedBy, undefined as never);
    else this.#query(sql, parameters, callback);
    return NO_STREAM;
  }

  /** The time limit is ours: mysql2's own leaves its timer running when the connection breaks. */
  #query(sql: string, parameters: readonly unknown[], callback: QueryCallback): void {
    const { suspectMs, silence } = this.#pool;
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
      else silence.suspect(expire);
    };
    const timer = BOUNDED.test(sql) ? setInterval(suspect, suspectMs) : undefined;
    this.#raw.query(sql, [...parameters], (error, result) => {
      if (error?.fatal !== true) silence.heardAtMs = performance.now();
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

  /** Not to be used again; what it has open is rolled back by the server. */
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
  readonly silence: Silence;
  readonly #pool: Pool;
  readonly #options: MysqlPoolOptions;
  readonly #connections = new WeakMap<PoolConnection, GuardedConnection>();
  /** Connections from before this time by performance.now() are closed instead of used. */
  #leftAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: MysqlPoolOptions) {
    this.#options = options;
    this.statementMsMax = options.statementMsMax ?? STATEMENT_MS_MAX;
    this.suspectMs = Math.min(SUSPECT_MS, this.statementMsMax / 10);
    const connectTimeout = Math.min(CONNECT_MS_MAX, this.statementMsMax / 6);
    const { connectionLimit: _, ...place } = options.pool;
    this.silence = new Silence({ ...place, connectTimeout });
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
    this.silence.isLookedFor = false;
    this.#pool.end(callback);
  }

  async #acquire(): Promise<GuardedConnection> {
    for (;;) {
      if (this.silence.isSilent) {
        throw Object.assign(new Error('the database answers nobody'), { code: 'SERVER_SILENT' });
      }
      const askedAtMs = performance.now();
      const raw = await this.#getRaw();
      const known = this.#connections.get(raw);
      if (known !== undefined) {
        if (!this.hasLeft(known)) return known;
        // The loop ends after as many rounds as the pool has connections, since each destroys one.
        known.destroy();
        continue;
      }
      return await this.#prepare(raw, askedAtMs);
    }
  }

  /** Its server takes no writes any more. One from before the last time changes nothing. */
  leave(connection: GuardedConnection): void {
    const now = performance.now();
    if (this.hasLeft(connection) || this.#leftAtMs > now) return;
    this.#leftAtMs = Math.max(now, this.#leftAtMs + LEAVE_MS_MIN);
  }

  hasLeft({ askedAtMs }: GuardedConnection): boolean {
    // A time that does not count yet came within LEAVE_MS_MIN after the one before, which does.
    const isAhead = this.#leftAtMs > performance.now();
    return askedAtMs <= this.#leftAtMs - (isAhead ? LEAVE_MS_MIN : 0);
  }

  #getRaw(): Promise<PoolConnection> {
    return new Promise((resolve, reject) => {
      this.#pool.getConnection((error, connection) => {
        if (error?.code === 'ETIMEDOUT') this.silence.suspect(() => undefined);
        if (!error) resolve(connection);
        else if (error.message === 'Queue limit reached.') {
          reject(Object.assign(error, { code: 'POOL_QUEUE_LIMIT' }));
        } else reject(error);
      });
    });
  }

  async #prepare(raw: PoolConnection, askedAtMs: number): Promise<GuardedConnection> {
    const { onLost, onMember } = this.#options;
    const connection = new GuardedConnection(raw, this, askedAtMs);
    // Emitted when it breaks while idle; without a listener that would end the process.
    raw.on('error', onLost);
    const ask = (sql: string) =>
      new Promise((resolve, reject) => {
        connection.query(sql, [], (error, rows) => (error ? reject(error) : resolve(rows)));
      });
    try {
      const member = await readMember(ask);
      onMember?.(member);
      requireSupported(member);
      for (const sql of sessionOf(member)) await ask(sql);
    } catch (error) {
      connection.destroy();
      throw error;
    }
    this.#connections.set(raw, connection);
    return connection;
  }
}
