/**
 * Kysely on mysql2, for MySQL and MariaDB. Its own driver instead of Kysely's for what a ledger
 * needs: every statement has a time limit, every connection has the same session, and a connection
 * whose state is not known for certain (a statement timed out, a rollback failed) is closed and
 * never reused: the server then rolls back what was open.
 *
 * A connection that met a read-only server is closed too, and with it every other one of its
 * generation, before anybody uses it again: after a fail-over the same name leads elsewhere, and a
 * connection that is used every second would stay with the old primary for ever.
 */
import {
  CompiledQuery,
  type DatabaseConnection,
  type DatabaseIntrospector,
  type Dialect,
  type DialectAdapter,
  type Driver,
  type Kysely,
  MysqlAdapter,
  MysqlIntrospector,
  MysqlQueryCompiler,
  type QueryCompiler,
  type QueryResult,
  type TransactionSettings,
} from 'kysely';
import { createPool, type Pool, type PoolConnection, type PoolOptions } from 'mysql2';
import { databaseErrorKind } from './database-errors.ts';

/** Time for TCP, TLS and the handshake. */
const CONNECT_MS_MAX = 5_000;
/**
 * Time for one statement; several hundred times what the store's slowest takes. Without it a server
 * that stopped answering would hold its callers for as long as TCP retransmits, about a quarter of
 * an hour.
 */
const STATEMENT_MS_MAX = 30_000;
/** Waiting for a row's lock; the transaction is then tried again as a whole. */
const LOCK_WAIT_S_MAX = 10;
/** Callers that wait for a connection; one more gets POOL_QUEUE_LIMIT at once. */
const POOL_WAITERS_MAX = 2_000;
/** Connections that are kept although nobody uses them are closed after this. */
const IDLE_MS_MAX = 60_000;
/**
 * Between two generations: while there is no primary every write meets a read-only server, and
 * readers must not pay a new connection for each of them.
 */
const GENERATION_MS_MIN = 1_000;

/** Strict, so that no value is cut to fit; time zone UTC, so that now() has no summer time. */
const SQL_MODE = [
  'STRICT_ALL_TABLES',
  'ONLY_FULL_GROUP_BY',
  'NO_ENGINE_SUBSTITUTION',
  'NO_ZERO_DATE',
  'NO_ZERO_IN_DATE',
  'ERROR_FOR_DIVISION_BY_ZERO',
].join();
const SESSION = [
  'set session transaction isolation level read committed',
  `set session autocommit = 1, time_zone = '+00:00', innodb_lock_wait_timeout = ${LOCK_WAIT_S_MAX},
    sql_mode = '${SQL_MODE}'`,
];

export interface MysqlPoolOptions {
  readonly pool: PoolOptions;
  /** Called when an idle connection broke. */
  readonly onLost: (error: Error) => void;
  /** Undefined: STATEMENT_MS_MAX. */
  readonly statementMsMax?: number | undefined;
}

export class MysqlPoolDialect implements Dialect {
  readonly #options: MysqlPoolOptions;

  constructor(options: MysqlPoolOptions) {
    this.#options = options;
  }

  createDriver(): Driver {
    return new MysqlPoolDriver(this.#options);
  }

  createQueryCompiler(): QueryCompiler {
    return new MysqlQueryCompiler();
  }

  createAdapter(): DialectAdapter {
    return new MysqlAdapter();
  }

  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature
  createIntrospector(db: Kysely<any>): DatabaseIntrospector {
    return new MysqlIntrospector(db);
  }
}

class MysqlPoolDriver implements Driver {
  readonly #pool: Pool;
  readonly #options: MysqlPoolOptions;
  readonly #connections = new WeakMap<PoolConnection, GuardedConnection>();
  #generation = 0;
  #generationAtMs = Number.NEGATIVE_INFINITY;
  /** A connection of this generation met a read-only server. */
  #generationIsOver = false;

  constructor(options: MysqlPoolOptions) {
    this.#options = options;
    this.#pool = createPool({
      ...options.pool,
      charset: 'UTF8MB4_BIN',
      supportBigNumbers: true,
      bigNumberStrings: false,
      decimalNumbers: true,
      waitForConnections: true,
      queueLimit: POOL_WAITERS_MAX,
      connectTimeout: Math.min(CONNECT_MS_MAX, options.statementMsMax ?? STATEMENT_MS_MAX),
      idleTimeout: IDLE_MS_MAX,
      maxIdle: Math.max(1, Math.ceil((options.pool.connectionLimit ?? 1) / 2)),
    });
  }

  async init(): Promise<void> {
    // The pool connects when it is first asked to.
  }

  async acquireConnection(): Promise<GuardedConnection> {
    for (;;) {
      // Taken before it connects: meanwhile the name may have begun to lead elsewhere.
      const generation = this.#generationNow();
      const raw = await this.#getConnection();
      const known = this.#connections.get(raw);
      if (known === undefined) return this.#prepare(raw, generation);
      if (known.generation === this.#generationNow()) return known;
      // As many rounds as the pool has connections: each is gone with this.
      known.close();
    }
  }

  async #prepare(raw: PoolConnection, generation: number): Promise<GuardedConnection> {
    const { onLost, statementMsMax = STATEMENT_MS_MAX } = this.#options;
    const onReadOnly = () => {
      this.#generationIsOver ||= generation === this.#generation;
    };
    const connection = new GuardedConnection(raw, { generation, statementMsMax, onReadOnly });
    // A pooled connection emits 'error' when it breaks while idle; without a listener that would
    // end the process.
    raw.on('error', onLost);
    try {
      for (const sql of SESSION) await connection.control(sql);
    } catch (error) {
      raw.destroy();
      throw error;
    }
    this.#connections.set(raw, connection);
    return connection;
  }

  async beginTransaction(
    connection: GuardedConnection,
    settings: TransactionSettings,
  ): Promise<void> {
    const modes = [
      ...(settings.isolationLevel ? [`isolation level ${settings.isolationLevel}`] : []),
      ...(settings.accessMode ? [settings.accessMode] : []),
    ];
    // Holds for the next transaction only.
    if (modes.length > 0) await connection.control(`set transaction ${modes.join(', ')}`);
    await connection.control('begin');
  }

  async commitTransaction(connection: GuardedConnection): Promise<void> {
    await connection.control('commit');
  }

  async rollbackTransaction(connection: GuardedConnection): Promise<void> {
    // A closed connection is rolled back by the server; the error that closed it is the one to
    // report.
    if (connection.closed) return;
    await connection.control('rollback');
  }

  async releaseConnection(connection: GuardedConnection): Promise<void> {
    if (connection.generation === this.#generationNow()) connection.release();
    else connection.close();
  }

  /** Connections of any other are closed instead of used. */
  #generationNow(): number {
    const now = performance.now();
    if (this.#generationIsOver && now - this.#generationAtMs >= GENERATION_MS_MIN) {
      this.#generation += 1;
      this.#generationAtMs = now;
      this.#generationIsOver = false;
    }
    return this.#generation;
  }

  async destroy(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#pool.end(error => (error ? reject(error) : resolve()));
    });
  }

  #getConnection(): Promise<PoolConnection> {
    return new Promise((resolve, reject) => {
      this.#pool.getConnection((error, connection) => {
        if (!error) resolve(connection);
        else if (error.message === 'Queue limit reached.') {
          reject(Object.assign(error, { code: 'POOL_QUEUE_LIMIT' }));
        } else reject(error);
      });
    });
  }
}

interface OkPacket {
  readonly affectedRows: number;
}

interface GuardedConnectionOptions {
  /** The pool's generation when this connection was asked for. */
  readonly generation: number;
  readonly statementMsMax: number;
  /** Its server takes no writes; it has been closed. */
  readonly onReadOnly: () => void;
}

class GuardedConnection implements DatabaseConnection {
  readonly #raw: PoolConnection;
  readonly #options: GuardedConnectionOptions;
  #closed = false;

  constructor(raw: PoolConnection, options: GuardedConnectionOptions) {
    this.#raw = raw;
    this.#options = options;
  }

  get generation(): number {
    return this.#options.generation;
  }

  /** True once it must not be used again; it has then been closed already. */
  get closed(): boolean {
    return this.#closed;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    // DDL and the migration lock take as long as they take.
    const bounded = /^(Select|Insert|Update|Delete)QueryNode$/.test(query.query.kind);
    const limitMs = bounded ? this.#options.statementMsMax : undefined;
    const result = await this.#query(query, limitMs);
    if (Array.isArray(result)) return { rows: result as R[] };
    // mysql2 asks for FOUND_ROWS: these are the rows that matched, changed or not.
    return { rows: [], numAffectedRows: BigInt((result as OkPacket).affectedRows) };
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('the MySQL driver does not stream');
  }

  /**
   * Session and transaction statements. After a failure nobody knows what is open: it is closed.
   */
  async control(sql: string): Promise<void> {
    try {
      await this.#query(CompiledQuery.raw(sql), this.#options.statementMsMax);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  release(): void {
    if (!this.#closed) this.#raw.release();
  }

  /** The time limit is ours: mysql2's own leaves its timer running when the connection breaks. */
  #query(query: CompiledQuery, limitMs: number | undefined): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const timer = limitMs === undefined ? undefined : setTimeout(() => expire(), limitMs);
      const expire = () => {
        this.close();
        const error = new Error(`the database did not answer a statement within ${limitMs} ms`);
        reject(Object.assign(error, { code: 'STATEMENT_TIMEOUT' }));
      };
      this.#raw.query(query.sql, [...query.parameters], (error, result) => {
        clearTimeout(timer);
        if (!error) return resolve(result);
        const kind = databaseErrorKind(error);
        if (kind === 'connection' || kind === 'read-only') this.close();
        if (kind === 'read-only') this.#options.onReadOnly();
        reject(error);
      });
    });
  }

  /** Not to be used again; what it has open is rolled back by the server. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#raw.destroy();
  }
}
