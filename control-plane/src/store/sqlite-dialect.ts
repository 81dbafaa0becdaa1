/**
 * Kysely on node:sqlite: one connection a process, any number of processes on one file.
 *
 * Three things differ from Kysely's own SQLite dialect. A transaction begins IMMEDIATE, because a
 * deferred one that reads first and writes later meets SQLITE_BUSY_SNAPSHOT, which no time-out
 * retries. Waiting for another process's write lock is done here, between turns of the event loop,
 * because SQLite's busy_timeout sleeps inside the call and would stop every other request of this
 * process. And DDL is transactional, so that two processes that migrate at once take turns.
 */
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import {
  CompiledQuery,
  type DatabaseConnection,
  type DatabaseIntrospector,
  type Dialect,
  type DialectAdapter,
  type Driver,
  type Kysely,
  type QueryCompiler,
  type QueryResult,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
  type TransactionSettings,
} from 'kysely';
import { databaseErrorKind } from './database-errors.ts';

/** How long a statement waits for another process's write lock before it fails with SQLITE_BUSY. */
export const SQLITE_BUSY_WAIT_MS_MAX = 5_000;
/**
 * The longest single pause of that wait; jittered, so that waiting processes do not march in step.
 */
const SQLITE_BUSY_PAUSE_MS_MAX = 12;
/** Prepared statements kept; the store has about a hundred texts. */
const SQLITE_STATEMENTS_MAX = 256;

type SqliteValue = null | number | bigint | string | Uint8Array;

export class NodeSqliteDialect implements Dialect {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  createDriver(): Driver {
    return new NodeSqliteDriver(this.#path);
  }

  createQueryCompiler(): QueryCompiler {
    return new SqliteQueryCompiler();
  }

  createAdapter(): DialectAdapter {
    return new TransactionalDdlAdapter();
  }

  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature
  createIntrospector(db: Kysely<any>): DatabaseIntrospector {
    return new SqliteIntrospector(db);
  }
}

class TransactionalDdlAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

class NodeSqliteDriver implements Driver {
  readonly #path: string;
  #connection: NodeSqliteConnection | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  async init(): Promise<void> {
    this.#connection = new NodeSqliteConnection(openSqliteFile(this.#path));
  }

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#require();
  }

  async beginTransaction(_: DatabaseConnection, settings: TransactionSettings): Promise<void> {
    // A read-only one takes no lock and sees one snapshot: writers go on beside it.
    const begin = settings.accessMode === 'read only' ? 'begin' : 'begin immediate';
    await this.#require().executeQuery(CompiledQuery.raw(begin));
  }

  async commitTransaction(): Promise<void> {
    await this.#require().executeQuery(CompiledQuery.raw('commit'));
  }

  async rollbackTransaction(): Promise<void> {
    // After SQLITE_FULL and the like SQLite has rolled back by itself.
    if (!this.#require().inTransaction) return;
    await this.#require().executeQuery(CompiledQuery.raw('rollback'));
  }

  async releaseConnection(): Promise<void> {
    // The one connection stays; Kysely's mutex hands it to the next.
  }

  async destroy(): Promise<void> {
    this.#connection?.close();
    this.#connection = undefined;
  }

  #require(): NodeSqliteConnection {
    if (this.#connection === undefined) throw new Error('the SQLite database is not open');
    return this.#connection;
  }
}

function openSqliteFile(path: string): DatabaseSync {
  // Opening may meet another process that is just switching the file to WAL: here, before anybody
  // is served, SQLite's own wait is right.
  const db = new DatabaseSync(path, { timeout: SQLITE_BUSY_WAIT_MS_MAX });
  try {
    db.exec('pragma journal_mode = wal');
    // NORMAL may lose the last commits when the power fails: a job somebody was told of.
    db.exec('pragma synchronous = full');
    db.exec('pragma busy_timeout = 0');
  } catch (error) {
    db.close();
    throw error;
  }
  return db;
}

interface Prepared {
  readonly statement: StatementSync;
  readonly answersRows: boolean;
}

class NodeSqliteConnection implements DatabaseConnection {
  readonly #db: DatabaseSync;
  /** By text, least recently used first. */
  readonly #statements = new Map<string, Prepared>();

  constructor(db: DatabaseSync) {
    this.#db = db;
  }

  get inTransaction(): boolean {
    return this.#db.isTransaction;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const giveUpAt = performance.now() + SQLITE_BUSY_WAIT_MS_MAX;
    for (;;) {
      try {
        return this.#execute<R>(query);
      } catch (error) {
        // Inside a transaction the lock is ours: what is busy then will not pass by waiting here.
        const passing = databaseErrorKind(error) === 'conflict' && !this.#db.isTransaction;
        if (!passing || performance.now() >= giveUpAt) throw error;
      }
      await delay(1 + Math.random() * SQLITE_BUSY_PAUSE_MS_MAX);
    }
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('the SQLite driver does not stream');
  }

  close(): void {
    this.#statements.clear();
    this.#db.close();
  }

  #execute<R>(query: CompiledQuery): QueryResult<R> {
    const { statement, answersRows } = this.#prepare(query.sql);
    const parameters = query.parameters as SqliteValue[];
    if (answersRows) {
      return { rows: statement.all(...parameters) as R[] };
    }
    const { changes } = statement.run(...parameters);
    return { rows: [], numAffectedRows: BigInt(changes) };
  }

  #prepare(sql: string): Prepared {
    const known = this.#statements.get(sql);
    if (known !== undefined) {
      this.#statements.delete(sql);
      this.#statements.set(sql, known);
      return known;
    }
    const statement = this.#db.prepare(sql);
    // Asked once: it takes twice as long as reading a row.
    const prepared = { statement, answersRows: statement.columns().length > 0 };
    if (this.#statements.size >= SQLITE_STATEMENTS_MAX) {
      const oldest = this.#statements.keys().next();
      if (!oldest.done) this.#statements.delete(oldest.value);
    }
    this.#statements.set(sql, prepared);
    return prepared;
  }
}
