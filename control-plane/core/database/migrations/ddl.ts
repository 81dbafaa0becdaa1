/** Definitions of tables, and the words of DDL in which SQLite and MySQL or MariaDB differ. */
import { type Kysely, type RawBuilder, sql } from 'kysely';
import type { DatabaseDialect } from '../clock.ts';

export type ColumnType = Readonly<Record<DatabaseDialect, string>>;

/** ASCII, compared byte by byte. */
export function ascii(lengthMax: number, kind = 'varchar'): ColumnType {
  return { sqlite: 'text', mysql: `${kind}(${lengthMax}) character set ascii collate ascii_bin` };
}

/** UTF-8, compared byte by byte; the length in code points. */
export function text(lengthMax: number): ColumnType {
  return {
    sqlite: 'text',
    mysql: `varchar(${lengthMax}) character set utf8mb4 collate utf8mb4_bin`,
  };
}

/** Up to 36 ASCII characters. */
export const ID = ascii(36);
/** 64 hexadecimal characters. */
export const HASH = ascii(64, 'char');
/** UTF-8 up to 16 MB, never compared. */
export const LONG_TEXT: ColumnType = {
  sqlite: 'text',
  mysql: 'mediumtext character set utf8mb4 collate utf8mb4_bin',
};
/** Signed, 64 bits; the program keeps to 53. */
export const INTEGER: ColumnType = { sqlite: 'integer', mysql: 'bigint' };
/** An integer that an insert may leave out. */
export const COUNT_FROM_0: ColumnType = { sqlite: 'integer default 0', mysql: 'bigint default 0' };
/** Up to 1 KB. */
export const BYTES: ColumnType = { sqlite: 'blob', mysql: 'varbinary(1024)' };

export interface TableDefinition {
  readonly name: string;
  /** NOT NULL. */
  readonly columns: Readonly<Record<string, ColumnType>>;
  readonly nullable?: Readonly<Record<string, ColumnType>>;
  readonly primaryKey: readonly string[];
  /** By constraint name. */
  readonly unique?: Readonly<Record<string, readonly string[]>>;
  /** By constraint name; names are unique in the whole database. */
  readonly checks?: Readonly<Record<string, string>>;
  /** By the index's name. */
  readonly indexes?: Readonly<Record<string, readonly string[]>>;
}

/** The table and its indexes; leaves alone what is there by that name. */
export async function createTable(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  table: TableDefinition,
): Promise<void> {
  const column = (name: string, type: ColumnType, constraint: string) =>
    sql`${sql.ref(name)} ${sql.raw(type[dialect])} ${sql.raw(constraint)}`;
  const parts = [
    ...Object.entries(table.columns).map(([name, type]) => column(name, type, 'not null')),
    ...Object.entries(table.nullable ?? {}).map(([name, type]) => column(name, type, 'null')),
    sql`primary key (${refs(table.primaryKey)})`,
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
  for (const [index, columns] of Object.entries(table.indexes ?? {})) {
    await createIndex(db, dialect, index, table.name, columns);
  }
}

/** MySQL's ER_DUP_KEYNAME: it has no "create index if not exists". */
const INDEX_EXISTS = 1061;

/**
 * Leaves an index of that name alone.
 * @param notNull on SQLite, which alone has such indexes, only rows where this is set are in it
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
    const isPartial = dialect === 'sqlite' && notNull !== undefined;
    const some = isPartial ? sql`where ${sql.ref(notNull)} is not null` : sql``;
    await sql`${create} ${sql.ref(name)} on ${sql.table(table)} (${refs(columns)}) ${some}`.execute(
      db,
    );
  } catch (error) {
    if ((error as { errno?: unknown }).errno !== INDEX_EXISTS) throw error;
  }
}

function refs(columns: readonly string[]): RawBuilder<unknown> {
  return sql.join(columns.map(column => sql.ref(column)));
}
