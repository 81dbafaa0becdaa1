/**
 * A commit costs one sync of the disk, which blocks the event loop, so the transactions of one tick
 * share one. Each is a savepoint of a common transaction, runs alone, and resolves when the common
 * transaction is committed. A failed member is rolled back alone. If the common commit fails, every
 * member fails.
 *
 * | group  | entered by                 | left by                                                |
 * |--------|----------------------------|--------------------------------------------------------|
 * | none   | construction; a group ends | a member begins: BEGIN IMMEDIATE                       |
 * | open   | its first member begins    | due: the tick ends, or COMMITTED_TOGETHER_MAX began    |
 * | due    | see above                  | none: no member runs, and COMMIT; or SQLite undid it   |
 */

import type { Release } from '@matting/program/semaphore.ts';
import type { QueryResult } from 'kysely';
import { oneAtATime, type SqliteConnection, type Statement } from './sqlite-connection.ts';

/** Lets other processes take the file's lock now and then. */
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
  /** Held by the transaction that runs now. */
  readonly #running = oneAtATime();
  #pass: Release = () => undefined;
  #group: Group | undefined;

  constructor(connection: SqliteConnection) {
    this.#connection = connection;
  }

  /** The caller must call `commit` or `rollback`. Rejects if another process keeps the lock. */
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

  /** Only between `begin` and `commit` or `rollback`. */
  execute<R>(statement: Statement): QueryResult<R> {
    if (this.#group === undefined) throw new Error('SQLite has undone this transaction');
    return this.#run<R>(statement);
  }

  /** Resolves when the transaction is durable. If it rejects, nothing of it was committed. */
  async commit(): Promise<void> {
    const group = this.#group;
    try {
      this.execute(RELEASE);
    } finally {
      this.#leave();
    }
    await group?.committed.promise;
  }

  /**
   * Resolves when all commits that this transaction has seen are durable: one of them may have
   * caused its failure.
   */
  async rollback(): Promise<void> {
    const group = this.#group;
    try {
      // SQLite itself rolls back everything after SQLITE_FULL and similar errors.
      if (group !== undefined) {
        this.#run(ROLLBACK_TO);
        this.#run(RELEASE);
      }
    } finally {
      this.#leave();
    }
    await group?.committed.promise;
  }

  /** Runs one statement as a transaction. */
  async executeAlone<R>(statement: Statement): Promise<QueryResult<R>> {
    this.#pass = await this.#running.take();
    let group: Group | undefined;
    try {
      group = await this.#join();
      // A failed single statement changes nothing, so it needs no savepoint.
      return this.#run<R>(statement);
    } finally {
      this.#leave();
      await group?.committed.promise;
    }
  }

  /** For statements that cannot run in a transaction. */
  async executeOutside<R>(statement: Statement): Promise<QueryResult<R>> {
    return await this.#running.run({}, () => {
      this.#end();
      return this.#connection.executeWhenFree<R>(statement);
    });
  }

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
    // Members await the promise themselves, but the first may have failed to begin.
    group.committed.promise.catch(() => undefined);
    this.#group = group;
    setImmediate(() => {
      group.due = true;
      if (this.#running.held === 0 && this.#group === group) this.#end();
    });
    return group;
  }

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
      // SQLite ends the whole transaction on a full or failing disk, or without memory.
      if (this.#group !== undefined && !this.#connection.inTransaction) {
        this.#group.committed.reject(error);
        this.#group = undefined;
      }
      throw error;
    }
  }
}
