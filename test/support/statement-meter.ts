/**
 * Records statements with the rows that each read: by a server's counters, or on SQLite by a
 * counting term before the others of every WHERE. That term must not change the plan.
 */
import { DatabaseSync } from 'node:sqlite';
import type { Database } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { CompiledQuery, type QueryResult } from 'kysely';
import { openWatchedDatabase, type Unwatched } from './watched-database.ts';

export interface MeteredStatement {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  /** Entries of indexes and tables. */
  readonly rowsRead: number;
  /** Rows returned or changed. */
  readonly rows: number;
}

export interface MeteredDatabase {
  readonly database: Database;
  /** In order of issue; nothing else may use the database meanwhile. */
  readonly statements: MeteredStatement[];
}

type Metered = <R>(
  connection: Unwatched,
  query: CompiledQuery,
) => Promise<{ readonly result: QueryResult<R>; readonly rowsRead: number }>;

const TRANSACTION = /^(?:begin|start transaction|set transaction|commit|rollback)\b/i;

export function openMeteredDatabase(dialect: DatabaseDialect, url: string): MeteredDatabase {
  const statements: MeteredStatement[] = [];
  const metered = dialect === 'sqlite' ? meterSqlite() : meterServer();
  const database = openWatchedDatabase(
    dialect,
    url,
    async <R>(connection: Unwatched, query: CompiledQuery) => {
      if (TRANSACTION.test(query.sql)) return await connection.executeQuery<R>(query);
      const { result, rowsRead } = await metered<R>(connection, query);
      const rows = result.rows.length + Number(result.numAffectedRows ?? 0n);
      statements.push({ sql: query.sql, parameters: query.parameters, rowsRead, rows });
      return result;
    },
  );
  return { database, statements };
}

/** Excludes attempts: index conditions that the engine checks by itself. */
const COUNTERS = CompiledQuery.raw(
  "show session status where variable_name like 'Handler_read%' or " +
    "variable_name = 'Handler_icp_attempts'",
);

function meterServer(): Metered {
  const count = async (connection: Unwatched) => {
    const { rows } = await connection.executeQuery<{ Value: string }>(COUNTERS);
    return rows.reduce((sum, { Value }) => sum + Number(Value), 0);
  };
  return async <R>(connection: Unwatched, query: CompiledQuery) => {
    // Reading the counters moves them; measure that first.
    const once = await count(connection);
    const twice = await count(connection);
    const result = await connection.executeQuery<R>(query);
    const rowsRead = (await count(connection)) - twice - (twice - once);
    return { result, rowsRead };
  };
}

const TICK = 'rows_read_tick';
let ticks = 0;
/** Connections with the function, and the tables of their schema. */
const ticking = new WeakMap<DatabaseSync, ReadonlySet<string>>();
let watched = false;

/** Affects every SQLite connection of this process. */
function meterSqlite(): Metered {
  watchSqlite();
  return async <R>(connection: Unwatched, query: CompiledQuery) => {
    const before = ticks;
    const result = await connection.executeQuery<R>(query);
    return { result, rowsRead: ticks - before };
  };
}

function watchSqlite(): void {
  if (watched) return;
  watched = true;
  const { prepare } = DatabaseSync.prototype;
  DatabaseSync.prototype.prepare = function (this: DatabaseSync, sql: string) {
    // A DELETE without WHERE has no rows to count.
    if (!/^(select|update|delete\b.* where)\b/.test(sql)) return prepare.call(this, sql);
    const counting = countingText(sql, tablesOf(this, prepare));
    const plan = (text: string) =>
      prepare
        .call(this, `explain query plan ${text}`)
        .all()
        .map(({ detail }) => detail)
        .join('\n');
    const [given, counted] = [plan(sql), plan(counting)];
    if (given !== counted) {
      throw new Error(`counting changes the plan of ${sql}:\n${given}\n${counted}`);
    }
    return prepare.call(this, counting);
  };
}

function tablesOf(db: DatabaseSync, prepare: DatabaseSync['prepare']): ReadonlySet<string> {
  let tables = ticking.get(db);
  if (tables === undefined) {
    db.function(TICK, { varargs: true }, () => {
      ticks += 1;
      return 1;
    });
    const rows = prepare.call(db, "select name from sqlite_schema where type = 'table'").all();
    tables = new Set(rows.map(row => String(row.name)));
    ticking.set(db, tables);
  }
  return tables;
}

/** Kysely writes lower case and quotes names. */
const SOURCE = /\b(from|join|update) "(\w+)"(?: as "(\w+)")?(?: indexed by \w+)?( on)?( where)?/g;

function countingText(sql: string, tables: ReadonlySet<string>): string {
  const counted = sql.replace(SOURCE, (text, word, table, alias, on, where, at: number) => {
    const joined = /^ (left|inner) join/.test(sql.slice(at + text.length));
    if (!tables.has(table) || joined) return text;
    const term = `${TICK}("${alias ?? table}".rowid)`;
    if (word === 'join') return on === undefined ? text : `${text} ${term} and`;
    if (word === 'update') return text;
    return where === undefined ? `${text} where ${term}` : `${text} ${term} and`;
  });
  if (!sql.startsWith('update')) return counted;
  // An update has one WHERE, after its columns.
  return counted.replace(/ where /, ` where ${TICK}(rowid) and `);
}
