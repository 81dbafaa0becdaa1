/**
 * Kysely on mysql2, for MySQL and MariaDB. Its own driver instead of Kysely's for what a ledger
 * needs: every statement has a time limit, every connection has the same session, and a connection
 * whose state is not known for certain (a statement timed out, a rollback failed) is closed and
 * never reused: the server then rolls back what was open.
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
/** Callers that wait for a connection; more are told at once that the database is not available. */
const POOL_WAITERS_MAX = 2_000;
/** Connections that are kept although nobody uses them are closed after this. */
const IDLE_MS_MAX = 60_000;

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
  /** Told of a connection that broke while nobody used it. */
  readonly onLost: (error: Error) => void;
  /** Undefined: STATEMENT_MS_MAX. */
  readonly statementMsMax?: number;
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
    const raw = await this.#getConnection();
    const known = this.#connections.get(raw);
    if (known !== undefined) return known;
    const { onLost, statementMsMax = STATEMENT_MS_MAX } = this.#options;
    const connection = new GuardedConnection(raw, statementMsMax);
    // A pooled connection emits what breaks it while it is idle; unheard, that would end the
    // process.
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
    connection.release();
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

class GuardedConnection implements DatabaseConnection {
  readonly #raw: PoolConnection;
  readonly #statementMsMax: number;
  #closed = false;

  constructor(raw: PoolConnection, statementMsMax: number) {
    this.#raw = raw;
    this.#statementMsMax = statementMsMax;
  }

  /** True once it must not be used again; it has then been closed already. */
  get closed(): boolean {
    return this.#closed;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    // DDL and the migration lock take as long as they take.
    const bounded = /^(Select|Insert|Update|Delete)QueryNode$/.test(query.query.kind);
    const result = await this.#query(query, bounded ? this.#statementMsMax : undefined);
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
      await this.#query(CompiledQuery.raw(sql), this.#statementMsMax);
    } catch (error) {
      this.#close();
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
        this.#close();
        const error = new Error(`the database did not answer a statement within ${limitMs} ms`);
        reject(Object.assign(error, { code: 'STATEMENT_TIMEOUT' }));
      };
      this.#raw.query(query.sql, [...query.parameters], (error, result) => {
        clearTimeout(timer);
        if (!error) return resolve(result);
        if (databaseErrorKind(error) === 'connection') this.#close();
        reject(error);
      });
    });
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#raw.destroy();
  }
}
