/**
 * One connection of the pool to a MySQL or MariaDB server. Every statement has a time limit, and a
 * connection whose state is not known for certain is closed and never used again.
 */
import { CompiledQuery, type DatabaseConnection, type QueryResult } from 'kysely';
import type { PoolConnection } from 'mysql2';
import { databaseErrorKind } from '../database-errors.ts';
import type { Member } from './mysql-member.ts';

/**
 * Where another member may answer, the silence of one is not waited out for as long: it has frozen,
 * or its machine is gone. Longer than a wait for a row (LOCK_WAIT_S_MAX), and than the others stand
 * still until they have shut such a member out (Galera: 5 s, rarely 15).
 */
const SILENT_MEMBER_MS = 15_000;

interface OkPacket {
  readonly affectedRows: number;
}

export interface GuardedConnectionOptions {
  /** The pool's generation when this connection was asked for. */
  readonly generation: number;
  readonly statementMsMax: number;
  /** Its server takes no writes; it has been closed. */
  readonly onReadOnly: () => void;
  /** Its server did not answer in time; it has been closed. */
  readonly onSilent: () => void;
}

export class GuardedConnection implements DatabaseConnection {
  readonly #raw: PoolConnection;
  readonly #options: GuardedConnectionOptions;
  readonly #openedAtMs = performance.now();
  /** The server it leads to, once that is known. */
  member: Member | undefined;
  #closed = false;

  constructor(raw: PoolConnection, options: GuardedConnectionOptions) {
    this.#raw = raw;
    this.#options = options;
  }

  get generation(): number {
    return this.#options.generation;
  }

  /** By performance.now(). */
  get openedAtMs(): number {
    return this.#openedAtMs;
  }

  /** True once it must not be used again; it has then been closed already. */
  get closed(): boolean {
    return this.#closed;
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    // DDL and the migration lock take as long as they take.
    const bounded = /^(Select|Insert|Update|Delete)QueryNode$/.test(query.query.kind);
    const limitMs = bounded ? this.#statementMsMax : undefined;
    const result = await this.#query(query, limitMs);
    if (Array.isArray(result)) return { rows: result as R[] };
    // mysql2 asks for FOUND_ROWS: these are the rows that matched, changed or not.
    return { rows: [], numAffectedRows: BigInt((result as OkPacket).affectedRows) };
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('the MySQL driver does not stream');
  }

  /**
   * Session and transaction statements, and their rows. After a failure nobody knows what is open:
   * it is closed.
   */
  async control(sql: string): Promise<unknown> {
    try {
      return await this.#query(CompiledQuery.raw(sql), this.#statementMsMax);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  release(): void {
    if (!this.#closed) this.#raw.release();
  }

  get #statementMsMax(): number {
    const { statementMsMax } = this.#options;
    return this.member?.engine.members === 'several'
      ? Math.min(statementMsMax, SILENT_MEMBER_MS)
      : statementMsMax;
  }

  /** The time limit is ours: mysql2's own leaves its timer running when the connection breaks. */
  #query(query: CompiledQuery, limitMs: number | undefined): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const timer = limitMs === undefined ? undefined : setTimeout(() => expire(), limitMs);
      const expire = () => {
        this.close();
        this.#options.onSilent();
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
