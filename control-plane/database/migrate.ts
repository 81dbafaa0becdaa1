/**
 * Brings the schema up to date. Any number of processes may migrate at once: MySQL's get_lock or
 * SQLite's write lock admits one at a time. On Galera get_lock does not exclude other members, so
 * two may run the same migration. Each statement of a migration can be repeated; the later process
 * fails to record it and checks again.
 */

import { setTimeout as delay } from 'node:timers/promises';
import { type Kysely, type RawBuilder, sql } from 'kysely';
import { type Migration, Migrator } from 'kysely/migration';
import { type Database, query } from './database.ts';
import { CHANGES_NO_TABLE, type DatabaseDialect, databaseErrorKind, isDenied } from './engines.ts';

/** The migrations of one package, for its own tables, recorded in a table of their own. */
export interface MigrationSeries {
  /** Part of the name of that table. undefined: the core, which uses Kysely's default table. */
  readonly package?: string;
  /** In the order of their names. */
  readonly migrations: (dialect: DatabaseDialect) => Readonly<Record<string, Migration>>;
  /** Migrations that the first one replaced. Replicas of an earlier version need their names. */
  readonly folded?: readonly string[];
  /** This version cannot use databases that ran this migration. */
  readonly unreadable?: {
    readonly migration: string;
    readonly found: string;
    readonly advice: string;
  };
}

const CORE_TABLE = 'kysely_migration';

function tableOf(series: MigrationSeries): string {
  return series.package === undefined ? CORE_TABLE : `${CORE_TABLE}_${series.package}`;
}

/** For operators: `0001-baseline` of the core, `portal/0001-baseline`. */
function displayName(series: MigrationSeries, name: string): string {
  return series.package === undefined ? name : `${series.package}/${name}`;
}

export class SchemaError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'SchemaError';
  }
}

/** Older versions cannot use the schema of a migration with this ending (docs/adr/0037). */
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
    const displayed = (names: readonly string[]) => names.map(name => displayName(series, name));
    return {
      series,
      entered,
      older: entered.includes(series.unreadable?.migration ?? '') ? series.unreadable : undefined,
      folded,
      pending: displayed(known.filter(name => !entered.includes(name))),
      unknown: displayed(entered.filter(name => !known.includes(name) && !folded.includes(name))),
    };
  });
}

/** False: the tables of the database do not belong to the service. */
export async function hasSchema(database: Database, all: readonly MigrationSeries[]) {
  const applied = await appliedMigrations(database, all);
  return applied.some(names => names.length > 0);
}

/** By the clock of the process that ran the core's first migration. */
export async function schemaMadeAtMs(database: Database): Promise<number> {
  const first = sql<{ at: string }>`select min(${sql.ref('timestamp')}) as at
    from ${sql.table(CORE_TABLE)}`;
  const { rows } = await query(database, db => first.execute(db));
  return Date.parse(rows[0]!.at);
}

/**
 * @returns names of the migrations that this call ran
 * @throws SchemaError
 */
export async function migrate(
  database: Database,
  all: readonly MigrationSeries[],
): Promise<string[]> {
  const states = await seriesStates(database, all);
  requireUsable(database, states);
  const ran: string[] = [];
  // A current schema needs neither the lock nor the right to change tables.
  for (const state of states.filter(({ pending }) => pending.length > 0)) {
    ran.push(...(await runPending(database, state)));
  }
  return ran;
}

/**
 * Rounds beyond one per migration: on Galera, another member's change of tables ends reads here.
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
    ran.push(...done.map(({ migrationName }) => displayName(series, migrationName)));
    if (error === undefined) return ran;
    const kind = databaseErrorKind(error);
    if ((kind === 'duplicate' || kind === 'conflict') && round < pending.length + ROUNDS_MAX) {
      await delay(ROUND_PAUSE_MS * Math.min(round, ROUNDS_MAX));
      continue;
    }
    const failed = results.find(({ status }) => status === 'Error')?.migrationName;
    const which = failed === undefined ? 'migrations' : `migration ${displayName(series, failed)}`;
    const isRefused = isDenied((error as { errno?: unknown }).errno);
    const message = error instanceof Error ? error.message : String(error);
    const reason = isRefused ? CHANGES_NO_TABLE : message;
    throw new SchemaError(`the ${which} failed: ${reason}`, error);
  }
}

/** @param folded recorded ones only: Kysely requires a migration for each recorded name */
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

export const WRONG_DATABASE_ADVICE =
  'set MATTING_DATA_DIR or MATTING_DATABASE_URL as the control planes have them, or run ' +
  '"matting migrate" to make a database';

/** Changes nothing. @throws SchemaError */
export async function requireCurrentSchema(
  database: Database,
  all: readonly MigrationSeries[],
): Promise<void> {
  const states = await seriesStates(database, all);
  requireUsable(database, states);
  if (states.every(({ entered }) => entered.length === 0)) {
    throw new SchemaError(
      `there are no tables of a service in ${database.location}; ${WRONG_DATABASE_ADVICE}`,
    );
  }
  const pending = states.flatMap(({ pending }) => pending);
  if (pending.length > 0) {
    throw new SchemaError(`the database lacks ${pending.join(', ')}: run "matting migrate" first`);
  }
}

/**
 * A newer version only adds to the schema, so this one works on it, unless a migration leaves no
 * way back.
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

/** Compared byte by byte. */
export function ascii(lengthMax: number, kind = 'varchar'): ColumnType {
  return { sqlite: 'text', mysql: `${kind}(${lengthMax}) character set ascii collate ascii_bin` };
}

/** UTF-8, compared byte by byte; the length counts code points. */
export function text(lengthMax: number): ColumnType {
  return {
    sqlite: 'text',
    mysql: `varchar(${lengthMax}) character set utf8mb4 collate utf8mb4_bin`,
  };
}

export const ID = ascii(36);
export const HASH = ascii(64, 'char');
/** UTF-8 up to 16 MB, never compared. */
export const LONG_TEXT: ColumnType = {
  sqlite: 'text',
  mysql: 'mediumtext character set utf8mb4 collate utf8mb4_bin',
};
/** Signed, 64 bits; the program uses 53. */
export const INTEGER: ColumnType = { sqlite: 'integer', mysql: 'bigint' };
export const COUNT_FROM_0: ColumnType = { sqlite: 'integer default 0', mysql: 'bigint default 0' };
export const BYTES: ColumnType = { sqlite: 'blob', mysql: 'varbinary(1024)' };

export interface TableDefinition {
  readonly name: string;
  /** NOT NULL. */
  readonly columns: Readonly<Record<string, ColumnType>>;
  readonly nullable?: Readonly<Record<string, ColumnType>>;
  readonly primaryKey: readonly string[];
  readonly unique?: Readonly<Record<string, readonly string[]>>;
  /** Names are unique in the whole database. */
  readonly checks?: Readonly<Record<string, string>>;
  readonly indexes?: Readonly<Record<string, readonly string[]>>;
}

/** Adds missing tables, and missing nullable columns and indexes of existing tables. */
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
  // STRICT makes SQLite check types as servers do.
  const options =
    dialect === 'sqlite'
      ? sql`strict`
      : // Other row formats hold less, and a host may have made one the default.
        sql`engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin`;
  const name = sql.table(table.name);
  await sql`create table if not exists ${name} (${sql.join(parts)}) ${options}`.execute(db);
}

const TABLE_IN_USE = 1205;
const TABLE_WAIT_S = 1;
/** Long enough for the queued statements of a busy server. */
const TABLE_PAUSE_MS = 5000;
/** Ten minutes of waits and pauses. */
const TABLE_TRIES_MAX = 100;

/**
 * A server changes a table only when no transaction uses it, and later statements queue up after
 * the change. So the change waits a second, lets the others pass, and tries again.
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

/** Adds nullable columns at the table's end. Skips an existing name. */
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

/** Skips a missing table. */
export async function dropTable(
  db: Kysely<unknown>,
  dialect: DatabaseDialect,
  name: string,
): Promise<void> {
  await changeTable(db, dialect, sql`drop table if exists ${sql.table(name)}`);
}

/** MySQL's ER_DUP_KEYNAME. It has no "create index if not exists". */
const INDEX_EXISTS = 1061;

/**
 * Skips an existing name.
 * @param options.notNull leaves out rows whose column is null, on SQLite alone
 * @param options.isUnique unique among rows without a null
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
