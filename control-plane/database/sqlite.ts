/**
 * Kysely on node:sqlite, with two connections a process. It differs from Kysely's SQLite dialect:
 * - Transactions begin IMMEDIATE. A deferred one that first reads and then writes meets
 *   SQLITE_BUSY_SNAPSHOT, which no time-out retries.
 * - It waits for another process's lock between ticks; SQLite's busy_timeout blocks the event loop.
 * - Writes of one tick share a commit (SqliteGroupCommit). Other reads use a second connection.
 * - DDL is transactional, so that migrating processes exclude each other.
 */

import type { Semaphore } from '@matting/program/semaphore.ts';
import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import type { StoreLog } from './database.ts';
import { oneAtATime, SqliteConnection } from './sqlite-connection.ts';
import { SqliteGroupCommit } from './sqlite-group-commit.ts';
import { keepSpare } from './sqlite-spare.ts';

/** @param log for warnings; undefined: this process reserves no disk space */
export function sqliteDialect(path: string, log?: StoreLog): Dialect {
  return {
    createDriver: () => new NodeSqliteDriver(path, log),
    createQueryCompiler: () => new SqliteQueryCompiler(),
    createAdapter: () => new NodeSqliteAdapter(),
    createIntrospector: db => new SqliteIntrospector(db),
  };
}

class NodeSqliteAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }

  /** Callers queue here, not in Kysely: while one waits for its commit the next begins. */
  override get supportsMultipleConnections(): boolean {
    return true;
  }
}

interface Sides {
  readonly writes: SqliteGroupCommit;
  readonly reads: SqliteConnection;
  readonly reading: Semaphore;
}

class NodeSqliteDriver implements Driver {
  readonly #path: string;
  readonly #log: StoreLog | undefined;
  #sides: Sides | undefined;
  #endSpare: (() => void) | undefined;

  constructor(path: string, log: StoreLog | undefined) {
    this.#path = path;
    this.#log = log;
  }

  async init(): Promise<void> {
    const writer = SqliteConnection.open(this.#path);
    try {
      const reads = SqliteConnection.open(this.#path);
      reads.control('pragma query_only = on');
      this.#sides = { writes: new SqliteGroupCommit(writer), reads, reading: oneAtATime() };
      if (this.#log !== undefined) this.#endSpare = keepSpare(this.#path, this.#log);
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
    await session.sides.writes.begin();
    session.inTransaction = true;
  }

  async commitTransaction(session: SqliteSession): Promise<void> {
    session.inTransaction = false;
    await session.sides.writes.commit();
  }

  async rollbackTransaction(session: SqliteSession): Promise<void> {
    if (!session.inTransaction) return;
    session.inTransaction = false;
    await session.sides.writes.rollback();
  }

  async releaseConnection(): Promise<void> {
    // Nothing to release.
  }

  async destroy(): Promise<void> {
    const sides = this.#sides;
    this.#sides = undefined;
    this.#endSpare?.();
    await sides?.writes.close();
    await sides?.reading.take();
    sides?.reads.close();
  }
}

class SqliteSession implements DatabaseConnection {
  readonly sides: Sides;
  inTransaction = false;

  constructor(sides: Sides) {
    this.sides = sides;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const { writes, reads, reading } = this.sides;
    if (this.inTransaction) return writes.execute<R>(query);
    switch (query.query.kind) {
      case 'SelectQueryNode':
        return await reading.run({}, () => reads.executeWhenFree<R>(query));
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
}
