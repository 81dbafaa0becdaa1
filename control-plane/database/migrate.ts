/**
 * Brings the schema up to date, and has the words of DDL in which engines differ. Any number of
 * processes may migrate at once: MySQL's get_lock or SQLite's write lock lets in one after the
 * other, and the later ones find nothing to do. On Galera get_lock keeps out nobody at another
 * member: two then run the same migration, which may be repeated at any of its statements; the
 * later one fails to enter it in the list, and looks again.
 */

import { setTimeout as delay } from 'node:timers/promises';
import { type Kysely, type RawBuilder, sql } from 'kysely';
import { type Migration, Migrator } from 'kysely/migration';
import { type Database, query } from './database.ts';
import { CHANGES_NO_TABLE, type DatabaseDialect, databaseErrorKind, isDenied } from './engines.ts';

/**
 * The migrations of one package: they make its own tables alone, and a table of their own lists
 * those that ran. A database that has a package's tables serves without the package.
 */
export interface MigrationSeries {
  /** A word for the name of that table; undefined: the core's, in the one Kysely has by default. */
  readonly package?: string;
  /** In the order of their names. It is a list, not a directory, so that only reviewed ones run. */
  readonly migrations: (dialect: DatabaseDialect) => Readonly<Record<string, Migration>>;
  /**
   * Migrations that the first one took the place of. A database that ran some of them keeps their
   * names, which replicas of that version ask for.
   */
  readonly folded?: readonly string[];
  /** Databases that ran this migration are not for this version. */
  readonly unreadable?: {
    readonly migration: string;
    /** Says what the database is; `advice` says what to do. */
    readonly found: string;
    readonly advice: string;
  };
}

const CORE_TABLE = 'kysely_migration';

function tableOf(series: MigrationSeries): string {
  return series.package === undefined ? CORE_TABLE : `${CORE_TABLE}_${series.package}`;
}

/** A migration as operators are told of it: `0001-baseline` of the core, `portal/0001-baseline`. */
function toldName(series: MigrationSeries, name: string): string {
  return series.package === undefined ? name : `${series.package}/${name}`;
}

/** The schema cannot be used by this version; the message says what to do. */
export class SchemaError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'SchemaError';
  }
}

/**
 * Whether a migration does more than add: no version that does not know it works on its schema, and
 * only a backup leads back. There is none so far (docs/adr/0037).
 */
function leavesNoWayBack(name: string): boolean {
  return name.endsWith('-no-way-back');
}

type SeriesState = Awaited<ReturnType<typeof seriesStates>>[number];

async function seriesStates(database: Database, all: readonly MigrationSeries[]) {
  const applied = await appliedMigrations(database, all);
  return all.map((series, index) => {
    const known = Object.keys(series.migrations(database.dialect));
    const entered = applied[index]!;
    const folded = entered.filter(name => series.folded?.includes(name));
    const told = (names: readonly string[]) => names.map(name => toldName(series, name));
    return {
      series,
      entered,
      older: entered.includes(series.unreadable?.migration ?? '') ? series.unreadable : undefined,
      folded,
      pending: told(known.filter(name => !entered.includes(name))),
      unknown: told(entered.filter(name => !known.includes(name) && !folded.includes(name))),
    };
  });
}

/** Whether a migration of any version ever ran here: what else it holds is not the service's. */
export async function hasSchema(database: Database, all: readonly MigrationSeries[]) {
  const applied = await appliedMigrations(database, all);
  return applied.some(names => names.length > 0);
}

/** When the core's first migration ran, by the clock of the process that ran it. */
export async function schemaMadeAtMs(database: Database): Promise<number> {
  const first = sql<{ at: string }>`select min(${sql.ref('timestamp')}) as at
    from ${sql.table(CORE_TABLE)}`;
  const { rows } = await query(database, db => first.execute(db));
  return Date.parse(rows[0]!.at);
}

/**
 * Runs what is pending.
 * @returns the names of the migrations that this call ran.
 * @throws SchemaError where the schema cannot be used, or a migration failed.
 */
export async function migrate(
  database: Database,
  all: readonly MigrationSeries[],
): Promise<string[]> {
  const states = await seriesStates(database, all);
  requireUsable(database, states);
  const ran: string[] = [];
  // Neither lock nor the right to change tables is needed to start on a current schema.
  for (const state of states.filter(({ pending }) => pending.length > 0)) {
    ran.push(...(await runPending(database, state)));
  }
  return ran;
}

/**
 * Beside one for each migration, which another member may enter first: on Galera its change of
 * tables ends what reads about them here.
 */
const ROUNDS_MAX = 5;
const ROUND_PAUSE_MS = 200;

async function runPending(
  database: Database,
  { series, folded, pending }: SeriesState,
): Promise<string[]> {
  const ran: string[] = [];
  for (let round = 1; ; round += 1) {
    const { error, results = [] } = await migratorOf(database, series, folded).migrateToLatest();
    const done = results.filter(({ status }) => status === 'Success');
    ran.push(...done.map(({ migrationName }) => toldName(series, migrationName)));
    if (error === undefined) return ran;
    const kind = databaseErrorKind(error);
    if ((kind === 'duplicate' || kind === 'conflict') && round < pending.length + ROUNDS_MAX) {
      await delay(ROUND_PAUSE_MS * Math.min(round, ROUNDS_MAX));
      continue;
    }
    const failed = results.find(({ status }) => status === 'Error')?.migrationName;
    const which = failed === undefined ? 'migrations' : `migration ${toldName(series, failed)}`;
    const isRefused = isDenied((error as { errno?: unknown }).errno);
    const said = error instanceof Error ? error.message : String(error);
    const reason = isRefused ? CHANGES_NO_TABLE : said;
    throw new SchemaError(`the ${which} failed: ${reason}`, error);
  }
}

/**
 * One series alone.
 * @param folded those that the database ran: Kysely asks for every one that is entered
 */
export function migratorOf(
  { kysely, dialect }: Pick<Database, 'kysely' | 'dialect'>,
  series: MigrationSeries,
  folded: readonly string[] = [],
): Migrator {
  const table = tableOf(series);
  const entered = Object.fromEntries(folded.map(name => [name, { up: () => Promise.resolve() }]));
  return new Migrator({
    db: kysely,
    provider: { getMigrations: async () => ({ ...entered, ...series.migrations(dialect) }) },
    migrationTableName: table,
    migrationLockTableName: `${table}_lock`,
  });
}

/** The advice for an operator who looks at another database than the service's, or at none. */
export const ELSEWHERE =
  'set MATTING_DATA_DIR or MATTING_DATABASE_URL as the control planes have them, or run ' +
  '"matting migrate" to make a database';

/** @throws SchemaError unless the schema has all that this version needs. Changes nothing. */
export async function requireCurrentSchema(
  database: Database,
  all: readonly MigrationSeries[],
): Promise<void> {
  const states = await seriesStates(database, all);
  requireUsable(database, states);
  if (states.every(({ entered }) => entered.length === 0)) {
    throw new SchemaError(`there are no tables of a service in ${database.place}; ${ELSEWHERE}`);
  }
  const pending = states.flatMap(({ pending }) => pending);
  if (pending.length > 0) {
    throw new SchemaError(`the database lacks ${pending.join(', ')}: run "matting migrate" first`);
  }
}

/**
 * A newer version only adds, so that this one works on its schema, unless a name says otherwise.
 */
function requireUsable(database: Database, states: readonly SeriesState[]): void {
  const { older } = states.find(state => state.older) ?? {};
  if (older !== undefined) throw new SchemaError(`${older.found}: ${older.advice}`);
  const newer = states.filter(({ unknown }) => unknown.length > 0);
  for (const { unknown, pending } of newer) {
    const made = `the database was made by a newer version (${unknown.join(', ')})`;
    if (unknown.some(leavesNoWayBack)) {
      throw new SchemaError(
        `${made}, and there is no way back from it: run that one, or restore an older copy`,
      );
    }
    if (pending.length > 0) {
      throw new SchemaError(
        `${made} that lacks ${pending.join(', ')}: run one that has all of them`,
      );
    }
  }
  if (newer.length === 0) return;
  const migrations = newer.flatMap(({ unknown }) => unknown);
  database.log.warn({ migrations }, 'the schema is of a newer version, which only added');
}

/** Reads the names that are entered of each series. */
function appliedMigrations(database: Database, all: readonly MigrationSeries[]) {
  return query(database, async db => {
    const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
    const applied: string[][] = [];
    for (const table of all.map(tableOf)) {
      const names = sql<{ name: string }>`select name from ${sql.table(table)} order by name`;
      const isThere = tables.some(({ name }) => name === table);
      applied.push(isThere ? (await names.execute(db)).rows.map(({ name }) => name) : []);
    }
    return applied;
  });
}

type ColumnType = Readonly<Record<DatabaseDialect, string>>;

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
  /** The columns by the name of the constraint. */
  readonly unique?: Readonly<Record<string, readonly string[]>>;
  /** The checks by the name of the constraint. Names are unique in the whole database. */
  readonly checks?: Readonly<Record<string, string>>;
  /** The columns by the name of the index. */
  readonly indexes?: Readonly<Record<string, readonly string[]>>;
}

/**
 * The tables and their indexes. A table that is there gets the nullable columns and the indexes
 * that it lacks, and is left alone otherwise.
 */
export async function createTables(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  tables: readonly TableDefinition[],
): Promise<void> {
  const there = await db.introspection.getTables();
  for (const table of tables) {
    const had = there.find(({ name }) => name === table.name)?.columns.map(({ name }) => name);
    if (had === undefined) await createTable(db, dialect, table);
    const columns = Object.entries(table.nullable ?? {});
    const lacking = columns.filter(([name]) => had && !had.includes(name));
    await addColumns(db, dialect, table.name, Object.fromEntries(lacking));
    for (const [index, columns] of Object.entries(table.indexes ?? {})) {
      await createIndex(db, dialect, index, table.name, columns);
    }
  }
}

async function createTable(
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
      : // Rows of other formats hold less, and a host may have made one of them the default.
        sql`engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin`;
  const name = sql.table(table.name);
  await sql`create table if not exists ${name} (${sql.join(parts)}) ${options}`.execute(db);
}

/** MySQL's ER_LOCK_WAIT_TIMEOUT. */
const TABLE_IN_USE = 1205;
const TABLE_WAIT_S = 1;
/** What queued meanwhile is done by then, on a busy server too. */
const TABLE_PAUSE_MS = 5000;
/** Ten minutes of waits and pauses. */
const TABLE_TRIES_MAX = 100;

/**
 * A server changes a table when no transaction uses it, and every later statement waits behind the
 * change. So the change waits for a second only, lets the others pass, and tries again.
 */
async function changeTable(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  change: RawBuilder<unknown>,
): Promise<void> {
  if (dialect === 'sqlite') return void (await change.execute(db));
  await sql`set session lock_wait_timeout = ${sql.lit(TABLE_WAIT_S)}`.execute(db);
  try {
    for (let tries = 1; ; tries += 1) {
      try {
        return void (await change.execute(db));
      } catch (error) {
        const isInUse = (error as { errno?: unknown }).errno === TABLE_IN_USE;
        if (!isInUse || tries === TABLE_TRIES_MAX) throw error;
        await delay(TABLE_PAUSE_MS);
      }
    }
  } finally {
    await sql`set session lock_wait_timeout = default`.execute(db);
  }
}

/** MySQL's ER_DUP_FIELDNAME. */
const COLUMN_EXISTS = 1060;

/** Nullable, at the table's end; leaves alone what is there by that name. */
export async function addColumns(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  table: string,
  columns: Readonly<Record<string, ColumnType>>,
): Promise<void> {
  for (const [name, type] of Object.entries(columns)) {
    const column = sql`${sql.ref(name)} ${sql.raw(type[dialect])} null`;
    try {
      await changeTable(db, dialect, sql`alter table ${sql.table(table)} add column ${column}`);
    } catch (error) {
      const { errno, message } = error as { errno?: unknown; message: string };
      if (errno !== COLUMN_EXISTS && !message.startsWith('duplicate column name')) throw error;
    }
  }
}

/** MySQL's ER_DUP_KEYNAME: it has no "create index if not exists". */
const INDEX_EXISTS = 1061;

/**
 * Leaves an index of that name alone.
 * @param options.notNull on SQLite, which alone has such indexes, only rows where it is set
 * @param options.isUnique of rows that have no null in it
 */
export async function createIndex(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  name: string,
  table: string,
  columns: readonly string[],
  { notNull, isUnique = false }: { readonly notNull?: string; readonly isUnique?: boolean } = {},
): Promise<void> {
  try {
    const index = isUnique ? 'unique index' : 'index';
    const create = sql.raw(`create ${index}${dialect === 'sqlite' ? ' if not exists' : ''}`);
    const isPartial = dialect === 'sqlite' && notNull !== undefined;
    const some = isPartial ? sql`where ${sql.ref(notNull)} is not null` : sql``;
    const on = sql`on ${sql.table(table)} (${refs(columns)}) ${some}`;
    await changeTable(db, dialect, sql`${create} ${sql.ref(name)} ${on}`);
  } catch (error) {
    if ((error as { errno?: unknown }).errno !== INDEX_EXISTS) throw error;
  }
}

function refs(columns: readonly string[]): RawBuilder<unknown> {
  return sql.join(columns.map(column => sql.ref(column)));
}
