/** The words of DDL that differ between SQLite and MySQL or MariaDB, for the migrations. */
import { type Kysely, type RawBuilder, sql } from 'kysely';
import type { DatabaseDialect } from '../clock.ts';

export interface ColumnTypes {
  /** Up to 36 ASCII characters. */
  readonly id: RawBuilder<unknown>;
  /** 64 hexadecimal characters. */
  readonly hash: RawBuilder<unknown>;
  /** ASCII, compared byte by byte. */
  ascii(lengthMax: number): RawBuilder<unknown>;
  /** UTF-8, compared byte by byte; the length in code points. */
  text(lengthMax: number): RawBuilder<unknown>;
  /** UTF-8 up to 16 MB, never compared. */
  readonly longText: RawBuilder<unknown>;
  /** Signed, 64 bits; the program keeps to 53. */
  readonly integer: RawBuilder<unknown>;
  /** Up to 1 KB. */
  readonly bytes: RawBuilder<unknown>;
}

export function columnTypes(dialect: DatabaseDialect): ColumnTypes {
  if (dialect === 'sqlite') {
    const text = sql`text`;
    return {
      id: text,
      hash: text,
      ascii: () => text,
      text: () => text,
      longText: text,
      integer: sql`integer`,
      bytes: sql`blob`,
    };
  }
  const ascii = (lengthMax: number) =>
    sql`varchar(${sql.lit(lengthMax)}) character set ascii collate ascii_bin`;
  return {
    id: ascii(36),
    hash: sql`char(64) character set ascii collate ascii_bin`,
    ascii,
    text: lengthMax =>
      sql`varchar(${sql.lit(lengthMax)}) character set utf8mb4 collate utf8mb4_bin`,
    longText: sql`mediumtext character set utf8mb4 collate utf8mb4_bin`,
    integer: sql`bigint`,
    bytes: sql`varbinary(1024)`,
  };
}

export interface TableDefinition {
  readonly name: string;
  /** NOT NULL. */
  readonly columns: Readonly<Record<string, RawBuilder<unknown>>>;
  readonly nullable?: Readonly<Record<string, RawBuilder<unknown>>>;
  readonly primaryKey: string | readonly string[];
  /** By constraint name. */
  readonly unique?: Readonly<Record<string, readonly string[]>>;
  /** By constraint name; names are unique in the whole database. */
  readonly checks?: Readonly<Record<string, string>>;
}

export async function createTable(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  table: TableDefinition,
): Promise<void> {
  const parts = [
    ...Object.entries(table.columns).map(([name, type]) => sql`${sql.ref(name)} ${type} not null`),
    ...Object.entries(table.nullable ?? {}).map(
      ([name, type]) => sql`${sql.ref(name)} ${type} null`,
    ),
    sql`primary key (${refs([table.primaryKey].flat())})`,
    ...Object.entries(table.unique ?? {}).map(
      ([name, columns]) => sql`constraint ${sql.ref(name)} unique (${refs(columns)})`,
    ),
    ...Object.entries(table.checks ?? {}).map(
      ([name, condition]) => sql`constraint ${sql.ref(name)} check (${sql.raw(condition)})`,
    ),
  ];
  // STRICT makes SQLite refuse a value of another type, as the others do.
  const options =
    dialect === 'sqlite'
      ? sql`strict`
      : sql`engine = InnoDB default character set utf8mb4 collate utf8mb4_bin`;
  const name = sql.table(table.name);
  await sql`create table if not exists ${name} (${sql.join(parts)}) ${options}`.execute(db);
}

/** MySQL's ER_DUP_KEYNAME: it has no "create index if not exists". */
const INDEX_EXISTS = 1061;

/**
 * Leaves an index of that name alone.
 * @param notNull only rows where this column is set are in it; SQLite alone has such indexes
 */
export async function createIndex(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  name: string,
  table: string,
  columns: readonly string[],
  notNull?: string,
): Promise<void> {
  try {
    const create = dialect === 'sqlite' ? sql`create index if not exists` : sql`create index`;
    const some = notNull === undefined ? sql`` : sql`where ${sql.ref(notNull)} is not null`;
    await sql`${create} ${sql.ref(name)} on ${sql.table(table)} (${refs(columns)}) ${some}`.execute(
      db,
    );
  } catch (error) {
    if ((error as { errno?: unknown }).errno !== INDEX_EXISTS) throw error;
  }
}

/** MySQL's ER_DUP_FIELDNAME, and SQLite's words for the same: neither has "if not exists" here. */
const COLUMN_EXISTS = 1060;
const COLUMN_EXISTS_TEXT = /duplicate column name/;

/** Leaves a column of that name alone. */
export async function addColumn(
  db: Kysely<unknown>,
  table: string,
  column: string,
  type: RawBuilder<unknown>,
): Promise<void> {
  try {
    await sql`alter table ${sql.table(table)} add column ${sql.ref(column)} ${type}`.execute(db);
  } catch (error) {
    const { errno, message } = error as { errno?: unknown; message: string };
    if (errno !== COLUMN_EXISTS && !COLUMN_EXISTS_TEXT.test(message)) throw error;
  }
}

/** MySQL's ER_CANT_DROP_FIELD_OR_KEY: it has no "drop index if exists". */
const INDEX_MISSING = 1091;

/** Does nothing where there is no index of that name. */
export async function dropIndex(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  name: string,
  table: string,
): Promise<void> {
  if (dialect === 'sqlite') {
    await sql`drop index if exists ${sql.ref(name)}`.execute(db);
    return;
  }
  try {
    await sql`drop index ${sql.ref(name)} on ${sql.table(table)}`.execute(db);
  } catch (error) {
    if ((error as { errno?: unknown }).errno !== INDEX_MISSING) throw error;
  }
}

function refs(columns: readonly string[]): RawBuilder<unknown> {
  return sql.join(columns.map(column => sql.ref(column)));
}
