/**
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

import type { Release } from '@matting/program/semaphore.ts';
import type { QueryResult } from 'kysely';
import { oneAtATime, type SqliteConnection, type Statement } from './sqlite-connection.ts';

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
