/**
 * Parts of statements, and readers of their answers: the database's clock, texts that are made
 * once, a table through one of its indexes, pages of an account, the removal of old rows.
 */

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

/** Executes a compare-and-set, or a removal: true when the one row matched. */
export async function matchesOne(change: {
  executeTakeFirstOrThrow(): Promise<UpdateResult | DeleteResult>;
}): Promise<boolean> {
  const result = await change.executeTakeFirstOrThrow();
  return ('numUpdatedRows' in result ? result.numUpdatedRows : result.numDeletedRows) === 1n;
}

/**
 * False when a unique key is taken: by another process, or by an earlier try whose answer was lost.
 */
export async function isInserted(insert: Promise<unknown>): Promise<boolean> {
  try {
    await insert;
    return true;
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
    return false;
  }
}

/** The same of a kept statement. */
export async function keptMatchesOne(db: Db, statement: CompiledQuery<unknown>): Promise<boolean> {
  const { numAffectedRows } = await db.executeQuery(statement);
  return numAffectedRows === 1n;
}

/**
 * Whether text may be compared with an ASCII column. MySQL refuses to compare anything else
 * ("illegal mix of collations"), and pads spaces.
 */
export function isAsciiWord(text: string): boolean {
  return /^[\x21-\x7e]{1,300}$/.test(text);
}

const ADDRESS_LENGTH_MAX = 64;

/** Makes a request's address fit ASCII columns: a proxy may put any text there. */
export function addressText(address: string): string {
  return address.replaceAll(/[^\x21-\x7e]/g, '?').slice(0, ADDRESS_LENGTH_MAX);
}

/** An aggregate as a number: empty sums are null, and drivers turn what is not exact into text. */
export function requireInteger(value: unknown): number {
  const number = value === null ? 0 : value;
  if (typeof number !== 'number' || !Number.isSafeInteger(number)) {
    throw new Error(`the database answered ${typeof value} where a safe integer was due`);
  }
  return number;
}

/** Stands for the value of a call while the statement is built. Kysely takes it for a value. */
class Parameter {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** The statement with the values of this call, for `executeQuery`. */
export type KeptStatement<Values extends object, Row> = (
  database: Database,
  values: Values,
) => CompiledQuery<Row>;

/**
 * A statement whose text is made once for a database: building and compiling takes more processor
 * time than SQLite does to run it, and a job runs through fourteen.
 * @param build makes it with parameters in place of the values of calls. It must neither look at
 *   them nor compute with them: a value that decides the text (null or not, how many) needs another
 *   statement
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
    // The statement would leave out a value that the first call did not have.
    if (names.length !== made.names) throw new Error(`a kept statement got ${names.join()}`);
    return { ...statement, parameters };
  };
}

function valueAt(name: string, values: Readonly<Record<string, unknown>>): unknown {
  const value = values[name];
  if (value === undefined) throw new Error(`a kept statement got no ${name}`);
  return value;
}

/**
 * The database's clock inside the statement that uses it, so that processes agree on what has
 * expired, however wrong their own clocks are. UTC milliseconds, the same all over a statement.
 */
export function databaseNowMs(dialect: DatabaseDialect): RawBuilder<number> {
  return dialect === 'sqlite'
    ? sql<number>`cast(round(unixepoch('now', 'subsec') * 1000) as integer)`
    : sql<number>`cast(unix_timestamp(now(3)) * 1000 as signed)`;
}

export function nowPlusMs(nowMs: RawBuilder<number>, lengthMs: number): RawBuilder<number> {
  return sql<number>`${nowMs} + ${lengthMs}`;
}

/** The first instant of the day, UTC. */
export function startOfDay(nowMs: RawBuilder<number>): RawBuilder<number> {
  return sql<number>`(${nowMs}) - (${nowMs}) % ${sql.lit(DAY_MS)}`;
}

/**
 * A table through one of its indexes. By their statistics MariaDB and MySQL may take another that
 * reads far more rows, or sort the whole table; SQLite, which has none here, may take one that
 * leaves a column out.
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
  /** The primary key, one column of text. */
  readonly key: string;
  /** The column that an index orders them by. */
  readonly time: string;
  readonly before: RawBuilder<number>;
}

/** Removes `limit` rows at most, the oldest first; their number. One that is young again stays. */
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
    // The order is the same everywhere, so that two sweepers never wait for each other in a circle.
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
 * The condition of pages of one account's rows, by an index that begins with the account. Given `=`
 * on that column a server may use it alone and step over all older rows; given a range it uses the
 * next one too. SQLite uses both only with `=`. Order by the account first: a range alone keeps no
 * order.
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
