import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { Semaphore } from '@matting/program/semaphore.ts';
import type { CompiledQuery, QueryResult } from 'kysely';
import { databaseErrorKind } from './engines.ts';
import { freeSpare } from './sqlite-spare.ts';

const SQLITE_FULL = 13;

/** Longest wait for another process's write lock, before SQLITE_BUSY. */
const SQLITE_BUSY_WAIT_MS_MAX = 5_000;
/** Random, so that waiting processes do not retry in step. */
const SQLITE_BUSY_PAUSE_MS_MAX = 12;
/** Statements kept prepared. The service has about a hundred. */
const SQLITE_STATEMENTS_MAX = 256;

export type Statement = Pick<CompiledQuery, 'sql' | 'parameters'>;

interface Prepared {
  readonly statement: StatementSync;
  readonly answersRows: boolean;
}

/** Its statements run synchronously, on the event loop. */
export class SqliteConnection {
  readonly #db: DatabaseSync;
  readonly #path: string;
  /** By text, least recently used first. */
  readonly #statements = new Map<string, Prepared>();

  private constructor(db: DatabaseSync, path: string) {
    this.#db = db;
    this.#path = path;
  }

  static open(path: string): SqliteConnection {
    try {
      return SqliteConnection.#open(path);
    } catch (error) {
      if (databaseErrorKind(error) !== 'unavailable' || !freeSpare(path)) throw error;
      return SqliteConnection.#open(path);
    }
  }

  static #open(path: string): SqliteConnection {
    // Uses SQLite's own wait, since another process may be switching the file to WAL.
    const db = new DatabaseSync(path, { timeout: SQLITE_BUSY_WAIT_MS_MAX });
    try {
      db.exec('pragma journal_mode = wal');
      // NORMAL may lose the last commits in a power failure, although callers know of those jobs.
      db.exec('pragma synchronous = full');
      db.exec('pragma busy_timeout = 0');
    } catch (error) {
      db.close();
      throw error;
    }
    return new SqliteConnection(db, path);
  }

  get inTransaction(): boolean {
    return this.#db.isTransaction;
  }

  /** @throws SQLite's error, such as SQLITE_BUSY */
  execute<R>(statement: Statement): QueryResult<R> {
    try {
      return this.#execute(statement);
    } catch (error) {
      if ((error as { errcode?: unknown }).errcode === SQLITE_FULL) freeSpare(this.#path);
      throw error;
    }
  }

  #execute<R>({ sql, parameters }: Statement): QueryResult<R> {
    const { statement, answersRows } = this.#prepare(sql);
    const values = parameters as SQLInputValue[];
    if (answersRows) return { rows: statement.all(...values) as R[] };
    const { changes } = statement.run(...values);
    return { rows: [], numAffectedRows: BigInt(changes) };
  }

  control(sql: string): void {
    this.execute({ sql, parameters: [] });
  }

  /**
   * Call it outside a transaction. Waits for another process's lock between ticks of the event
   * loop.
   */
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
    // Asks for the columns once: that takes twice as long as reading a row.
    const prepared = { statement, answersRows: statement.columns().length > 0 };
    if (this.#statements.size >= SQLITE_STATEMENTS_MAX) {
      const oldest = this.#statements.keys().next();
      if (!oldest.done) this.#statements.delete(oldest.value);
    }
    this.#statements.set(sql, prepared);
    return prepared;
  }
}

/** Further callers get POOL_QUEUE_LIMIT immediately. */
const SQLITE_WAITERS_MAX = 2_000;

export function oneAtATime(): Semaphore {
  return new Semaphore({
    max: 1,
    waitingMax: SQLITE_WAITERS_MAX,
    refusal: () => {
      const error = new Error(`${SQLITE_WAITERS_MAX} callers wait for the database already`);
      return Object.assign(error, { code: 'POOL_QUEUE_LIMIT' });
    },
  });
}
