/**
 * Kysely on mysql2, for MySQL and MariaDB. Its own driver instead of Kysely's for what a ledger
 * needs: every statement has a time limit, every connection has the same session, and a connection
 * whose state is not known for certain (a statement timed out, a rollback failed) is closed and
 * never reused: the server then rolls back what was open.
 *
 * A connection that met a read-only server is closed too, and with it every other one of its
 * generation, before anybody uses it again: after a fail-over the same name leads elsewhere, and a
 * connection that is used every second would stay with the old primary for ever. Of a server that
 * is one of several behind its address (engines.ts) each new connection asks first whether it may
 * be used; where it may not, the next one is tried.
 */
import {
  type DatabaseIntrospector,
  type Dialect,
  type DialectAdapter,
  type Driver,
  type Kysely,
  MysqlIntrospector,
  MysqlQueryCompiler,
  type QueryCompiler,
  type TransactionSettings,
} from 'kysely';
import { createPool, type Pool, type PoolConnection, type PoolOptions } from 'mysql2';
import { MemberError } from '../database-errors.ts';
import { MigrationLockAdapter } from './migration-lock-adapter.ts';
import { GuardedConnection } from './mysql-connection.ts';
import { type Member, readMember, requireUsable } from './mysql-member.ts';

/** Time for TCP, TLS and the handshake. */
export const CONNECT_MS_MAX = 5_000;
/**
 * Time for one statement; several hundred times what the store's slowest takes. Without it a server
 * that stopped answering would hold its callers for as long as TCP retransmits, about a quarter of
 * an hour.
 */
const STATEMENT_MS_MAX = 30_000;
/** Waiting for a row's lock; the transaction is then tried again as a whole. */
const LOCK_WAIT_S_MAX = 10;
/** Callers that wait for a connection; one more gets POOL_QUEUE_LIMIT at once. */
const POOL_WAITERS_MAX = 2_000;
/** Connections that are kept although nobody uses them are closed after this. */
const IDLE_MS_MAX = 60_000;
/**
 * Between two generations: while there is no primary every write meets a read-only server, and
 * readers must not pay a new connection for each of them.
 */
const GENERATION_MS_MIN = 1_000;
/**
 * Connections on which one caller meets members that take no writes before it is told so. An
 * address that leads to three in turn, asked by many at once, leads each of them to any: of three
 * with one primary 24 in a row miss it once in 17,000 times, 8 once in 25.
 */
const MEMBERS_TRIED_MAX = 24;
/** After that nobody tries for so long: while a group elects its primary all would. */
const NO_MEMBER_MS = 300;
/** Members whose silence is remembered: far more than a cluster has. */
const SILENT_MEMBERS_MAX = 64;

/** Strict, so that no value is cut to fit; time zone UTC, so that now() has no summer time. */
const SQL_MODE = [
  'STRICT_ALL_TABLES',
  'ONLY_FULL_GROUP_BY',
  'NO_ENGINE_SUBSTITUTION',
  'NO_ZERO_DATE',
  'NO_ZERO_IN_DATE',
  'ERROR_FOR_DIVISION_BY_ZERO',
].join();
const SESSION = [
  'set session transaction isolation level read committed',
  `set session autocommit = 1, time_zone = '+00:00', innodb_lock_wait_timeout = ${LOCK_WAIT_S_MAX},
    sql_mode = '${SQL_MODE}'`,
];

export interface MysqlPoolOptions {
  readonly pool: PoolOptions;
  /** Called when an idle connection broke. */
  readonly onLost: (error: Error) => void;
  /** Undefined: STATEMENT_MS_MAX. */
  readonly statementMsMax?: number | undefined;
  /** Called with the server of each new connection. */
  readonly onMember?: ((member: Member) => void) | undefined;
}

export class MysqlPoolDialect implements Dialect {
  readonly #options: MysqlPoolOptions;

  constructor(options: MysqlPoolOptions) {
    this.#options = options;
  }

  createDriver(): Driver {
    return new MysqlPoolDriver(this.#options);
  }

  createQueryCompiler(): QueryCompiler {
    return new MysqlQueryCompiler();
  }

  createAdapter(): DialectAdapter {
    return new MigrationLockAdapter();
  }

  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature
  createIntrospector(db: Kysely<any>): DatabaseIntrospector {
    return new MysqlIntrospector(db);
  }
}

class MysqlPoolDriver implements Driver {
  readonly #pool: Pool;
  readonly #options: MysqlPoolOptions;
  readonly #connections = new WeakMap<PoolConnection, GuardedConnection>();
  /** By performance.now(), when a member did not answer a statement in time. */
  readonly #silentAtMs = new Map<string, number>();
  #generation = 0;
  #generationAtMs = Number.NEGATIVE_INFINITY;
  /** A connection of this generation met a read-only server. */
  #generationIsOver = false;
  #noMember: { readonly error: MemberError; readonly untilMs: number } | undefined;

  constructor(options: MysqlPoolOptions) {
    this.#options = options;
    this.#pool = createPool({
      ...options.pool,
      charset: 'UTF8MB4_BIN',
      supportBigNumbers: true,
      bigNumberStrings: false,
      decimalNumbers: true,
      waitForConnections: true,
      queueLimit: POOL_WAITERS_MAX,
      connectTimeout: Math.min(CONNECT_MS_MAX, options.statementMsMax ?? STATEMENT_MS_MAX),
      idleTimeout: IDLE_MS_MAX,
      maxIdle: Math.max(1, Math.ceil((options.pool.connectionLimit ?? 1) / 2)),
    });
  }

  async init(): Promise<void> {
    // The pool connects when it is first asked to.
  }

  async acquireConnection(): Promise<GuardedConnection> {
    for (let tried = 1; ; ) {
      this.#requireSomeMember();
      // Taken before it connects: meanwhile the name may have begun to lead elsewhere.
      const generation = this.#generationNow();
      const raw = await this.#getConnection();
      const known = this.#connections.get(raw);
      if (known !== undefined) {
        if (this.#isGood(known)) return known;
        // As many rounds as the pool has connections: each is gone with this.
        known.close();
        continue;
      }
      try {
        return await this.#prepare(raw, generation);
      } catch (error) {
        if (!(error instanceof MemberError) || error.kind !== 'read-only') throw error;
        if (tried < MEMBERS_TRIED_MAX) {
          tried += 1;
          continue;
        }
        this.#noMember = { error, untilMs: performance.now() + NO_MEMBER_MS };
        throw error;
      }
    }
  }

  #requireSomeMember(): void {
    if (this.#noMember === undefined) return;
    if (performance.now() < this.#noMember.untilMs) throw this.#noMember.error;
    this.#noMember = undefined;
  }

  #isGood({ generation, member, openedAtMs }: GuardedConnection): boolean {
    if (generation !== this.#generationNow()) return false;
    const silentAtMs = member && this.#silentAtMs.get(member.name);
    return silentAtMs === undefined || openedAtMs > silentAtMs;
  }

  async #prepare(raw: PoolConnection, generation: number): Promise<GuardedConnection> {
    const { onLost, onMember, statementMsMax = STATEMENT_MS_MAX } = this.#options;
    const connection: GuardedConnection = new GuardedConnection(raw, {
      generation,
      statementMsMax,
      onReadOnly: () => {
        this.#generationIsOver ||= generation === this.#generation;
      },
      onSilent: () => this.#noteSilent(connection),
    });
    // A pooled connection emits 'error' when it breaks while idle; without a listener that would
    // end the process.
    raw.on('error', onLost);
    const ask = (sql: string) => connection.control(sql);
    try {
      const member = await readMember(ask);
      connection.member = member;
      onMember?.(member);
      await requireUsable(member, ask);
      for (const sql of [...SESSION, ...member.engine.session]) await ask(sql);
    } catch (error) {
      connection.close();
      throw error;
    }
    this.#connections.set(raw, connection);
    return connection;
  }

  /** Its other connections lead to the same silence, so they are closed instead of used. */
  #noteSilent({ member }: GuardedConnection): void {
    if (member?.engine.members !== 'several') return;
    if (this.#silentAtMs.size >= SILENT_MEMBERS_MAX) this.#silentAtMs.clear();
    this.#silentAtMs.set(member.name, performance.now());
  }

  async beginTransaction(
    connection: GuardedConnection,
    settings: TransactionSettings,
  ): Promise<void> {
    const { isolationLevel, accessMode } = settings;
    const modes = [
      ...(isolationLevel ? [`isolation level ${isolationLevel}`] : []),
      ...(accessMode ? [accessMode] : []),
    ];
    // Holds for the next transaction only.
    if (modes.length > 0) await connection.control(`set transaction ${modes.join(', ')}`);
    await connection.control('begin');
  }

  async commitTransaction(connection: GuardedConnection): Promise<void> {
    await connection.control('commit');
  }

  async rollbackTransaction(connection: GuardedConnection): Promise<void> {
    // A closed connection is rolled back by the server; the error that closed it is the one to
    // report.
    if (connection.closed) return;
    await connection.control('rollback');
  }

  async releaseConnection(connection: GuardedConnection): Promise<void> {
    if (this.#isGood(connection)) connection.release();
    else connection.close();
  }

  /** Connections of any other are closed instead of used. */
  #generationNow(): number {
    const now = performance.now();
    if (this.#generationIsOver && now - this.#generationAtMs >= GENERATION_MS_MIN) {
      this.#generation += 1;
      this.#generationAtMs = now;
      this.#generationIsOver = false;
    }
    return this.#generation;
  }

  async destroy(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#pool.end(error => (error ? reject(error) : resolve()));
    });
  }

  #getConnection(): Promise<PoolConnection> {
    return new Promise((resolve, reject) => {
      this.#pool.getConnection((error, connection) => {
        if (!error) resolve(connection);
        else if (error.message === 'Queue limit reached.') {
          reject(Object.assign(error, { code: 'POOL_QUEUE_LIMIT' }));
        } else reject(error);
      });
    });
  }
}
