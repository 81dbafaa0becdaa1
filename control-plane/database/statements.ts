import { DAY_MS } from '@matting/program/durations.ts';
import {
  type Compilable,
  type CompiledQuery,
  type DeleteResult,
  type Kysely,
  type RawBuilder,
  sql,
  type UpdateResult,
} from 'kysely';
import { type Database, type Db, query, type Schema } from './database.ts';
import { type DatabaseDialect, databaseErrorKind } from './engines.ts';

/** Runs a compare-and-set or a removal. True: one row matched. */
export async function matchesOne(change: {
  executeTakeFirstOrThrow(): Promise<UpdateResult | DeleteResult>;
}): Promise<boolean> {
  const result = await change.executeTakeFirstOrThrow();
  return ('numUpdatedRows' in result ? result.numUpdatedRows : result.numDeletedRows) === 1n;
}

/** False: the unique key is taken, by another process or by an earlier try with a lost answer. */
export async function isInserted(insert: Promise<unknown>): Promise<boolean> {
  try {
    await insert;
    return true;
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
    return false;
  }
}

export async function keptMatchesOne(db: Db, statement: CompiledQuery<unknown>): Promise<boolean> {
  const { numAffectedRows } = await db.executeQuery(statement);
  return numAffectedRows === 1n;
}

/**
 * MySQL refuses to compare other text with an ASCII column ("illegal mix of collations"), and pads
 * spaces.
 */
export function isAsciiWord(text: string): boolean {
  return /^[\x21-\x7e]{1,300}$/.test(text);
}

const ADDRESS_LENGTH_MAX = 64;

/** Makes a request's address fit an ASCII column: a proxy may send any text. */
export function addressText(address: string): string {
  return address.replaceAll(/[^\x21-\x7e]/g, '?').slice(0, ADDRESS_LENGTH_MAX);
}

/** Empty sums are null, and drivers return inexact numbers as text. */
export function requireInteger(value: unknown): number {
  const number = value === null ? 0 : value;
  if (typeof number !== 'number' || !Number.isSafeInteger(number)) {
    throw new Error(`the database answered ${typeof value} where a safe integer was due`);
  }
  return number;
}

class Parameter {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

export type KeptStatement<Values extends object, Row> = (
  database: Database,
  values: Values,
) => CompiledQuery<Row>;

/**
 * Compiles a statement once for each database: compiling takes more processor time than SQLite
 * needs to run it, and a job runs fourteen.
 * @param build uses the parameters as values only; a value that changes the text (null or not, a
 * count) needs another statement
 */
export function keepStatement<Values extends object, Row = unknown>(
  build: (database: Database, parameters: Values) => Compilable<Row>,
): KeptStatement<Values, Row> {
  const kept = new WeakMap<Database, { statement: CompiledQuery<Row>; names: number }>();
  return (database, values) => {
    const names = Object.keys(values);
    let made = kept.get(database);
    if (made === undefined) {
      const named = Object.fromEntries(names.map(name => [name, new Parameter(name)]));
      made = { statement: build(database, named as Values).compile(), names: names.length };
      kept.set(database, made);
    }
    const { statement } = made;
    const byName = values as Readonly<Record<string, unknown>>;
    const parameters = statement.parameters.map(parameter =>
      parameter instanceof Parameter ? valueAt(parameter.name, byName) : parameter,
    );
    // The statement would ignore a value that the first call did not have.
    if (names.length !== made.names) throw new Error(`a kept statement got ${names.join()}`);
    return { ...statement, parameters };
  };
}

function valueAt(name: string, values: Readonly<Record<string, unknown>>): unknown {
  const value = values[name];
  if (value === undefined) throw new Error(`a kept statement got no ${name}`);
  return value;
}

/** In UTC milliseconds, constant within a statement. Processes agree on it despite wrong clocks. */
export function databaseNowMs(dialect: DatabaseDialect): RawBuilder<number> {
  return dialect === 'sqlite'
    ? sql<number>`cast(round(unixepoch('now', 'subsec') * 1000) as integer)`
    : sql<number>`cast(unix_timestamp(now(3)) * 1000 as signed)`;
}

export function nowPlusMs(nowMs: RawBuilder<number>, lengthMs: number): RawBuilder<number> {
  return sql<number>`${nowMs} + ${lengthMs}`;
}

export function startOfDay(nowMs: RawBuilder<number>): RawBuilder<number> {
  return sql<number>`(${nowMs}) - (${nowMs}) % ${sql.lit(DAY_MS)}`;
}

/**
 * Forces an index. By their statistics MariaDB and MySQL may choose one that reads far more rows,
 * or sort the table; SQLite, without statistics, may choose one that lacks a column.
 */
export function throughIndex<T extends keyof Schema>(table: T, index: string) {
  const rows = sql<Schema[T]>`${sql.table(table)}`;
  return {
    sqlite: rows.as<T>(sql.raw(`"${table}" indexed by ${index}`)),
    mysql: rows.as<T>(sql.raw(`${table} force index (${index})`)),
  };
}

interface OldRows {
  readonly table: keyof Schema;
  /** The primary key, one text column. */
  readonly key: string;
  /** The column by which an index orders them. */
  readonly time: string;
  readonly before: RawBuilder<number>;
}

/** Removes at most `limit` rows, the oldest first. Returns their number. */
export function removeOldRows(
  database: Database,
  { table, key, time, before }: OldRows,
  limit: number,
): Promise<number> {
  const [id, at] = [sql.ref<string>(key), sql.ref<number>(time)];
  return query(database, async of => {
    // The types know no column that all tables have.
    const db = of as unknown as Kysely<Record<string, object>>;
    const old = await db
      .selectFrom(table)
      .select(id.as('id'))
      .where(at, '<', before)
      .orderBy(at)
      .limit(limit)
      .execute();
    if (old.length === 0) return 0;
    // A fixed order, so that two sweepers never deadlock.
    const ids = old.map(row => row.id).sort();
    const { numDeletedRows } = await db
      .deleteFrom(table)
      .where(id, 'in', ids)
      .where(at, '<', before)
      .executeTakeFirstOrThrow();
    return Number(numDeletedRows);
  });
}

/**
 * Selects an account's rows for paging, by an index that begins with the account. SQLite needs `=`.
 * A server gets a range instead: with `=` it may use only the account's column of the index, and
 * skip over all older rows. Order by the account first: a range alone keeps no order.
 */
export function ofAccount(
  dialect: DatabaseDialect,
  accountId: string,
  name = 'account_id',
): RawBuilder<boolean> {
  const column = sql.ref(name);
  return dialect === 'sqlite'
    ? sql<boolean>`${column} = ${accountId}`
    : sql<boolean>`(${column} >= ${accountId} and ${column} <= ${accountId})`;
}
