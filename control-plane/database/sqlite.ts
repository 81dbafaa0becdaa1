/**
 * Kysely on node:sqlite: two connections a process, any number of processes on one file.
 *
 * What differs from Kysely's own SQLite dialect: a transaction begins IMMEDIATE, because a
 * deferred one that reads first and writes later meets SQLITE_BUSY_SNAPSHOT, which no time-out
 * retries. Another process's write lock is waited for between ticks of the event loop: SQLite's
 * busy_timeout sleeps inside the call. Writes that are ready together are committed together
 * (SqliteGroupCommit); reads outside a transaction have a connection of their own, which sees what
 * is committed and waits for nobody. DDL is transactional, so that processes that migrate at once
 * take turns.
 */

import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { type Release, Semaphore } from '@matting/program/semaphore.ts';
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
import { databaseErrorKind } from './engines.ts';

export function sqliteDialect(path: string): Dialect {
  return {
    createDriver: () => new NodeSqliteDriver(path),
    createQueryCompiler: () => new SqliteQueryCompiler(),
    createAdapter: () => new NodeSqliteAdapter(),
    createIntrospector: db => new SqliteIntrospector(db),
  };
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
      this.#sides = { writes: new SqliteGroupCommit(writer), reads, reading: oneAtATime() };
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

/*
 * Group commit: a commit costs one sync of the disk, which stops the event loop, so the
 * transactions that are ready in one tick of the loop share one. Each is a savepoint of a common
 * transaction, runs whole before the next begins, and resolves when the common transaction is
 * committed. A member that fails is rolled back alone and rejects no earlier; where the common
 * commit fails, every member fails, and none has resolved before.
 *
 * | group  | entered by                 | left by                                                |
 * |--------|----------------------------|--------------------------------------------------------|
 * | none   | construction; a group ends | a member begins: BEGIN IMMEDIATE                       |
 * | open   | its first member begins    | due: the tick of the loop ends, or COMMITTED_TOGETHER_MAX began   |
 * | due    | see above                  | none: no member runs, and COMMIT; or SQLite undid it   |
 */

/** The bound lets other processes have the file's lock now and then. */
export const COMMITTED_TOGETHER_MAX = 64;

const BEGIN: Statement = { sql: 'begin immediate', parameters: [] };
const SAVEPOINT: Statement = { sql: 'savepoint member', parameters: [] };
const RELEASE: Statement = { sql: 'release member', parameters: [] };
const ROLLBACK_TO: Statement = { sql: 'rollback to member', parameters: [] };

interface Group {
  members: number;
  due: boolean;
  readonly committed: PromiseWithResolvers<void>;
}

export class SqliteGroupCommit {
  readonly #connection: SqliteConnection;
  /** Held by the member that runs. */
  readonly #running = oneAtATime();
  #pass: Release = () => undefined;
  #group: Group | undefined;

  constructor(connection: SqliteConnection) {
    this.#connection = connection;
  }

  /** The caller ends it by `commit` or `rollback`. Rejects when another process keeps the lock. */
  async begin(): Promise<void> {
    this.#pass = await this.#running.take();
    try {
      await this.#join();
      this.#run(SAVEPOINT);
    } catch (error) {
      this.#leave();
      throw error;
    }
  }

  /** Within `begin` and its end. */
  execute<R>(statement: Statement): QueryResult<R> {
    if (this.#group === undefined) throw new Error('SQLite has undone this transaction');
    return this.#run<R>(statement);
  }

  /**
   * Resolves when it is durable. Where it rejects nothing of it is, and it is over all the same.
   */
  async commit(): Promise<void> {
    const group = this.#group;
    try {
      this.execute(RELEASE);
    } finally {
      this.#leave();
    }
    await group?.committed.promise;
  }

  /** Resolves when what the member saw is durable: an earlier one may have made it fail. */
  async rollback(): Promise<void> {
    const group = this.#group;
    try {
      // SQLite rolls back everything by itself after SQLITE_FULL and the like.
      if (group !== undefined) {
        this.#run(ROLLBACK_TO);
        this.#run(RELEASE);
      }
    } finally {
      this.#leave();
    }
    await group?.committed.promise;
  }

  /** One statement that is a transaction of its own. */
  async executeAlone<R>(statement: Statement): Promise<QueryResult<R>> {
    this.#pass = await this.#running.take();
    let group: Group | undefined;
    try {
      group = await this.#join();
      // A single statement that fails leaves no trace, so it needs no savepoint.
      return this.#run<R>(statement);
    } finally {
      this.#leave();
      await group?.committed.promise;
    }
  }

  /** Outside any transaction, for what does not stand in one. */
  async executeOutside<R>(statement: Statement): Promise<QueryResult<R>> {
    return await this.#running.run({}, () => {
      this.#end();
      return this.#connection.executeWhenFree<R>(statement);
    });
  }

  /** Waits for who runs and commits what is open. */
  async close(): Promise<void> {
    await this.#running.take();
    this.#end();
    this.#connection.close();
  }

  async #join(): Promise<Group> {
    if (this.#group !== undefined) {
      this.#group.members += 1;
      return this.#group;
    }
    await this.#connection.executeWhenFree(BEGIN);
    const group: Group = { members: 1, due: false, committed: Promise.withResolvers<void>() };
    // Members get the failure from their own await; the first may have failed to begin.
    group.committed.promise.catch(() => undefined);
    this.#group = group;
    setImmediate(() => {
      group.due = true;
      if (this.#running.held === 0 && this.#group === group) this.#end();
    });
    return group;
  }

  /** The member that ran ends; the next one joins unless the group is due. */
  #leave(): void {
    const group = this.#group;
    if (group !== undefined && (group.due || group.members >= COMMITTED_TOGETHER_MAX)) this.#end();
    this.#pass();
  }

  #end(): void {
    const group = this.#group;
    if (group === undefined) return;
    this.#group = undefined;
    try {
      this.#connection.control('commit');
      group.committed.resolve();
    } catch (error) {
      group.committed.reject(error);
      if (this.#connection.inTransaction) this.#connection.control('rollback');
    }
  }

  #run<R>(statement: Statement): QueryResult<R> {
    try {
      return this.#connection.execute<R>(statement);
    } catch (error) {
      // SQLite ends the whole transaction on some errors: a full or failing disk, no memory.
      if (this.#group !== undefined && !this.#connection.inTransaction) {
        this.#group.committed.reject(error);
        this.#group = undefined;
      }
      throw error;
    }
  }
}

/** How long a statement waits for another process's write lock before it fails with SQLITE_BUSY. */
export const SQLITE_BUSY_WAIT_MS_MAX = 5_000;
/** The longest pause of that wait; jittered, so that waiting processes do not march in step. */
const SQLITE_BUSY_PAUSE_MS_MAX = 12;
/** Prepared statements kept; the store has about a hundred texts. */
const SQLITE_STATEMENTS_MAX = 256;
/** Callers that wait for their turn; one more gets POOL_QUEUE_LIMIT at once. */
export const SQLITE_WAITERS_MAX = 2_000;

type Statement = Pick<CompiledQuery, 'sql' | 'parameters'>;

interface Prepared {
  readonly statement: StatementSync;
  readonly answersRows: boolean;
}

/** A connection and its prepared statements, which run inside the call, on the event loop. */
export class SqliteConnection {
  readonly #db: DatabaseSync;
  /** The prepared statements by their texts, least recently used first. */
  readonly #statements = new Map<string, Prepared>();

  private constructor(db: DatabaseSync) {
    this.#db = db;
  }

  static open(path: string): SqliteConnection {
    // Another process may just be switching the file to WAL: here SQLite's own wait is right.
    const db = new DatabaseSync(path, { timeout: SQLITE_BUSY_WAIT_MS_MAX });
    try {
      db.exec('pragma journal_mode = wal');
      // NORMAL may lose the last commits when the power fails: jobs that callers know of.
      db.exec('pragma synchronous = full');
      db.exec('pragma busy_timeout = 0');
    } catch (error) {
      db.close();
      throw error;
    }
    return new SqliteConnection(db);
  }

  get inTransaction(): boolean {
    return this.#db.isTransaction;
  }

  /** Throws SQLite's error, SQLITE_BUSY among them. */
  execute<R>({ sql, parameters }: Statement): QueryResult<R> {
    const { statement, answersRows } = this.#prepare(sql);
    const values = parameters as SQLInputValue[];
    if (answersRows) return { rows: statement.all(...values) as R[] };
    const { changes } = statement.run(...values);
    return { rows: [], numAffectedRows: BigInt(changes) };
  }

  control(sql: string): void {
    this.execute({ sql, parameters: [] });
  }

  /** Outside a transaction: waits for another process's lock between ticks of the event loop. */
  async executeWhenFree<R>(statement: Statement): Promise<QueryResult<R>> {
    const giveUpAt = performance.now() + SQLITE_BUSY_WAIT_MS_MAX;
    for (;;) {
      try {
        return this.execute<R>(statement);
      } catch (error) {
        if (databaseErrorKind(error) !== 'conflict' || performance.now() >= giveUpAt) throw error;
      }
      await delay(1 + Math.random() * SQLITE_BUSY_PAUSE_MS_MAX);
    }
  }

  close(): void {
    this.#statements.clear();
    this.#db.close();
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

/** One at a time, in the order of asking. */
function oneAtATime(): Semaphore {
  return new Semaphore({
    max: 1,
    waitingMax: SQLITE_WAITERS_MAX,
    refusal: () => {
      const error = new Error(`${SQLITE_WAITERS_MAX} callers wait for the database already`);
      return Object.assign(error, { code: 'POOL_QUEUE_LIMIT' });
    },
  });
}
