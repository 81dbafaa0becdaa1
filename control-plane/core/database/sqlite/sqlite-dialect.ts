/**
 * Kysely on node:sqlite: two connections a process, any number of processes on one file.
 *
 * What differs from Kysely's own SQLite dialect: a transaction begins IMMEDIATE, because a
 * deferred one that reads first and writes later meets SQLITE_BUSY_SNAPSHOT, which no time-out
 * retries. Waiting for another process's write lock is done between turns of the event loop,
 * because SQLite's busy_timeout sleeps inside the call and would stop every other request of this
 * process. Writes that are ready together are committed together (sqlite-group-commit.ts); reads
 * outside a transaction have a connection of their own, which sees what is committed and waits for
 * nobody. And DDL is transactional, so that two processes that migrate at once take turns.
 */
import {
  type CompiledQuery,
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
} from 'kysely';
import type { Semaphore } from '#program/semaphore.ts';
import { oneAtATime, SqliteConnection } from './sqlite-connection.ts';
import { SqliteGroupCommit } from './sqlite-group-commit.ts';

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
    return new NodeSqliteAdapter();
  }

  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature
  createIntrospector(db: Kysely<any>): DatabaseIntrospector {
    return new SqliteIntrospector(db);
  }
}

class NodeSqliteAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }

  /** Callers take turns here, not in Kysely: one that waits for its commit lets the next begin. */
  override get supportsMultipleConnections(): boolean {
    return true;
  }
}

interface Sides {
  readonly writes: SqliteGroupCommit;
  readonly reads: SqliteConnection;
  /** Held by the read that runs, or waits for another process's lock. */
  readonly reading: Semaphore;
}

class NodeSqliteDriver implements Driver {
  readonly #path: string;
  #sides: Sides | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  async init(): Promise<void> {
    const writer = SqliteConnection.open(this.#path);
    try {
      const reads = SqliteConnection.open(this.#path);
      reads.control('pragma query_only = on');
      this.#sides = {
        writes: new SqliteGroupCommit(writer),
        reads,
        reading: oneAtATime(),
      };
    } catch (error) {
      writer.close();
      throw error;
    }
  }

  async acquireConnection(): Promise<SqliteSession> {
    if (this.#sides === undefined) throw new Error('the SQLite database is not open');
    return new SqliteSession(this.#sides);
  }

  async beginTransaction(session: SqliteSession): Promise<void> {
    await session.begin();
  }

  async commitTransaction(session: SqliteSession): Promise<void> {
    await session.commit();
  }

  async rollbackTransaction(session: SqliteSession): Promise<void> {
    await session.rollback();
  }

  async releaseConnection(): Promise<void> {
    // A session is no more than the place its caller is at.
  }

  async destroy(): Promise<void> {
    const sides = this.#sides;
    this.#sides = undefined;
    await sides?.writes.close();
    await sides?.reading.take();
    sides?.reads.close();
  }
}

/** One caller's use of the two connections. */
class SqliteSession implements DatabaseConnection {
  readonly #sides: Sides;
  #inTransaction = false;

  constructor(sides: Sides) {
    this.#sides = sides;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const { writes } = this.#sides;
    if (this.#inTransaction) return writes.execute<R>(query);
    switch (query.query.kind) {
      case 'SelectQueryNode':
        return this.#read<R>(query);
      case 'InsertQueryNode':
      case 'UpdateQueryNode':
      case 'DeleteQueryNode':
        return writes.executeAlone<R>(query);
      default:
        return writes.executeOutside<R>(query);
    }
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('the SQLite driver does not stream');
  }

  async begin(): Promise<void> {
    await this.#sides.writes.begin();
    this.#inTransaction = true;
  }

  async commit(): Promise<void> {
    this.#inTransaction = false;
    await this.#sides.writes.commit();
  }

  async rollback(): Promise<void> {
    if (!this.#inTransaction) return;
    this.#inTransaction = false;
    await this.#sides.writes.rollback();
  }

  async #read<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const { reads, reading } = this.#sides;
    return await reading.run({}, () => reads.executeWhenFree<R>(query));
  }
}
