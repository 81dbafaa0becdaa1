/**
 * One connection to a SQLite file with its prepared statements. Statements run inside the call, on
 * the event loop; what makes them wait is kept out of it.
 */
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import type { CompiledQuery, QueryResult } from 'kysely';
import { Semaphore } from '#program/semaphore.ts';
import { databaseErrorKind } from '../database-errors.ts';

/** How long a statement waits for another process's write lock before it fails with SQLITE_BUSY. */
export const SQLITE_BUSY_WAIT_MS_MAX = 5_000;
/**
 * The longest single pause of that wait; jittered, so that waiting processes do not march in step.
 */
const SQLITE_BUSY_PAUSE_MS_MAX = 12;
/** Prepared statements kept; the store has about a hundred texts. */
const SQLITE_STATEMENTS_MAX = 256;
/** Callers that wait for their turn; one more gets POOL_QUEUE_LIMIT at once. */
export const SQLITE_WAITERS_MAX = 2_000;

type SqliteValue = null | number | bigint | string | Uint8Array;

export type Statement = Pick<CompiledQuery, 'sql' | 'parameters'>;

interface Prepared {
  readonly statement: StatementSync;
  readonly answersRows: boolean;
}

export class SqliteConnection {
  readonly #db: DatabaseSync;
  /** By text, least recently used first. */
  readonly #statements = new Map<string, Prepared>();

  private constructor(db: DatabaseSync) {
    this.#db = db;
  }

  static open(path: string): SqliteConnection {
    // Opening may meet another process that is just switching the file to WAL: here, before anybody
    // is served, SQLite's own wait is right.
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
    const values = parameters as SqliteValue[];
    if (answersRows) return { rows: statement.all(...values) as R[] };
    const { changes } = statement.run(...values);
    return { rows: [], numAffectedRows: BigInt(changes) };
  }

  /** A statement without parameters and rows. */
  control(sql: string): void {
    this.execute({ sql, parameters: [] });
  }

  /** Outside a transaction: waits for another process's lock between turns of the event loop. */
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
