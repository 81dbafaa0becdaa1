/** Loses the answer to the `at`-th change or commit. */
import { databaseOn } from '@matting/test-support/watched-database.ts';
import type {
  CompiledQuery,
  DatabaseConnection,
  Dialect,
  Driver,
  QueryResult,
  TransactionSettings,
} from 'kysely';
import type { Database } from '../database.ts';
import { sqliteDialect } from '../sqlite.ts';

/**
 * unheard: breaks before the database receives it. unanswered: it takes effect. given-up:
 * unanswered, and the database stays away until the store gives up.
 */
export type Loss = 'unheard' | 'unanswered' | 'given-up';

export interface Losing {
  around<T>(run: () => Promise<T>, what: 'statement' | 'commit'): Promise<T>;
}

/** @param at counts from 1 */
export class Fault implements Losing {
  readonly #at: number;
  readonly #loss: Loss;
  #seen = 0;

  constructor(at: number, loss: Loss) {
    this.#at = at;
    this.#loss = loss;
  }

  /** False: there were fewer changes. */
  get fired(): boolean {
    return this.#seen >= this.#at;
  }

  async around<T>(run: () => Promise<T>): Promise<T> {
    this.#seen += 1;
    if (this.#seen !== this.#at) return run();
    if (this.#loss !== 'unheard') await run();
    throw this.#loss === 'given-up' ? failingDisk() : brokenConnection();
  }
}

/** The store retries it. */
export function brokenConnection(): Error {
  return Object.assign(new Error('the connection broke'), { code: 'ECONNRESET' });
}

/** SQLITE_IOERR: returned to the caller, unless it waits patiently. */
export function failingDisk(): Error {
  return Object.assign(new Error('disk I/O error'), { code: 'ERR_SQLITE_ERROR', errcode: 10 });
}

/** The file must be migrated. */
export function openFaultySqlite(url: string, fault: Losing): Database {
  const inner = sqliteDialect(url.slice('sqlite:'.length));
  const dialect: Dialect = {
    createDriver: () => new FaultyDriver(inner.createDriver(), fault),
    createAdapter: () => inner.createAdapter(),
    createIntrospector: db => inner.createIntrospector(db),
    createQueryCompiler: () => inner.createQueryCompiler(),
  };
  return databaseOn('sqlite', dialect);
}

class FaultyConnection implements DatabaseConnection {
  readonly inner: DatabaseConnection;
  readonly #fault: Losing;
  /** Within the current transaction. */
  changed = false;

  constructor(inner: DatabaseConnection, fault: Losing) {
    this.inner = inner;
    this.#fault = fault;
  }

  executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const run = () => this.inner.executeQuery<R>(query);
    if (!/^(Insert|Update|Delete)QueryNode$/.test(query.query.kind)) return run();
    this.changed = true;
    return this.#fault.around(run, 'statement');
  }

  streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('nothing is streamed');
  }
}

class FaultyDriver implements Driver {
  readonly #inner: Driver;
  readonly #fault: Losing;

  constructor(inner: Driver, fault: Losing) {
    this.#inner = inner;
    this.#fault = fault;
  }

  init(): Promise<void> {
    return this.#inner.init();
  }

  async acquireConnection(): Promise<FaultyConnection> {
    return new FaultyConnection(await this.#inner.acquireConnection(), this.#fault);
  }

  beginTransaction({ inner }: FaultyConnection, settings: TransactionSettings): Promise<void> {
    return this.#inner.beginTransaction(inner, settings);
  }

  commitTransaction({ inner, changed }: FaultyConnection): Promise<void> {
    const run = () => this.#inner.commitTransaction(inner);
    return changed ? this.#fault.around(run, 'commit') : run();
  }

  rollbackTransaction({ inner }: FaultyConnection): Promise<void> {
    return this.#inner.rollbackTransaction(inner);
  }

  releaseConnection({ inner }: FaultyConnection): Promise<void> {
    return this.#inner.releaseConnection(inner);
  }

  destroy(): Promise<void> {
    return this.#inner.destroy();
  }
}
