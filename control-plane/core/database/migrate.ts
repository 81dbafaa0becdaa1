/**
 * Brings the schema up to date. Any number of processes may do so at once: MySQL's get_lock or
 * SQLite's write lock lets them in one after the other, and the later ones find nothing to do. On
 * Galera get_lock keeps out nobody at another member: two then run the same migration, which may
 * be repeated at any of its statements; the later one fails to enter it in the list,
 * and looks again.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import { type Migration, Migrator } from 'kysely/migration';
import type { DatabaseDialect } from './clock.ts';
import type { Database } from './connect.ts';
import { databaseErrorKind } from './database-errors.ts';
import { baseline } from './migrations/0001-baseline.ts';
import { unsettledJobs } from './migrations/0002-unsettled-jobs.ts';
import type { Db } from './schema.ts';
import { query } from './transact.ts';

/**
 * The migrations of one package: they make its own tables alone, and a table of their own lists
 * those that ran. A database that has a package's tables serves without the package.
 */
export interface MigrationSeries {
  /** A word for the name of a table. */
  readonly package: string;
  /** In the order of their names. A list, not a directory: what runs is what was reviewed. */
  readonly migrations: (dialect: DatabaseDialect) => Readonly<Record<string, Migration>>;
}

/** It runs before those of the packages. */
export const CORE_MIGRATIONS: MigrationSeries = {
  package: 'core',
  migrations: dialect => ({
    '0001-baseline': baseline(dialect),
    '0002-unsettled-jobs': unsettledJobs(dialect),
  }),
};

/** Where a series is entered: the core's in the table that Kysely has by default. */
function tableOf(series: MigrationSeries): string {
  return series === CORE_MIGRATIONS ? 'kysely_migration' : `kysely_migration_${series.package}`;
}

/** A migration as operators are told of it: `0001-baseline` of the core, `portal/0001-baseline`. */
function toldName(series: MigrationSeries, name: string): string {
  return series === CORE_MIGRATIONS ? name : `${series.package}/${name}`;
}

/** The schema cannot be used by this version; the message says what to do. */
export class SchemaError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(detail, { cause });
    this.name = 'SchemaError';
  }
}

/**
 * Ends the name of a migration that does more than add: no version from before it can work on its
 * schema, and only a backup leads back. There is none so far (docs/adr/0037).
 */
const NO_WAY_BACK = '-no-way-back';

/** Whether no version works on a schema with this migration that does not know it. */
export function leavesNoWayBack(name: string): boolean {
  return name.endsWith(NO_WAY_BACK);
}

/** The first migration of 0.1.0, whose databases this version does not read. */
const FIRST_OF_0_1_0 = '0001-initial';

export const OLDER_FOUND = 'the database was made by 0.1.0, which this version does not read';
export const OLDER_ADVICE =
  'give MATTING_DATABASE_URL or MATTING_DATA_DIR a place without one; it stays as it is, and 0.1.0 can go on with it';

export interface SchemaState {
  /** 0.1.0 made it. */
  readonly older: boolean;
  /** Migrations that this version has and the database has not. */
  readonly pending: readonly string[];
  /** Migrations that the database has and this version does not know: a newer version made them. */
  readonly unknown: readonly string[];
}

/** Of the core and of these packages. */
export async function schemaState(
  database: Database,
  packages: readonly MigrationSeries[],
): Promise<SchemaState> {
  const states = await seriesStates(database, packages);
  return {
    older: states.some(({ older }) => older),
    pending: states.flatMap(({ pending }) => pending),
    unknown: states.flatMap(({ unknown }) => unknown),
  };
}

interface SeriesState extends SchemaState {
  readonly series: MigrationSeries;
}

async function seriesStates(
  database: Database,
  packages: readonly MigrationSeries[],
): Promise<SeriesState[]> {
  const all = [CORE_MIGRATIONS, ...packages];
  const applied = await appliedMigrations(database, all);
  return all.map((series, index) => {
    const known = Object.keys(series.migrations(database.dialect));
    const entered = applied[index]!;
    const told = (names: readonly string[]) => names.map(name => toldName(series, name));
    return {
      series,
      older: series === CORE_MIGRATIONS && entered.includes(FIRST_OF_0_1_0),
      pending: told(known.filter(name => !entered.includes(name))),
      unknown: told(entered.filter(name => !known.includes(name))),
    };
  });
}

/** Whether a migration of any version ever ran here: what else it holds is not the service's. */
export async function hasSchema(database: Database): Promise<boolean> {
  const [entered = []] = await appliedMigrations(database, [CORE_MIGRATIONS]);
  return entered.length > 0;
}

/**
 * Runs what is pending.
 * @returns the names of the migrations that this call ran.
 * @throws SchemaError where the schema is of an older version, a newer one has left no way back, or
 * a migration failed.
 */
export async function migrate(
  database: Database,
  packages: readonly MigrationSeries[],
): Promise<string[]> {
  const states = await seriesStates(database, packages);
  requireUsable(database, states);
  const ran: string[] = [];
  // Neither lock nor the right to change tables is needed to start on a current schema.
  for (const { series, pending } of states.filter(({ pending }) => pending.length > 0)) {
    ran.push(...(await runPending(database, series, pending.length)));
  }
  return ran;
}

/**
 * Beside one for each migration, which another member may enter first: a change of tables that
 * comes from another member ends what reads about them here, on Galera even a mere read.
 */
const ROUNDS_MAX = 5;
const ROUND_PAUSE_MS = 200;

async function runPending(
  database: Database,
  series: MigrationSeries,
  pending: number,
): Promise<string[]> {
  const ran: string[] = [];
  for (let round = 1; ; round += 1) {
    const { error, results = [] } = await migratorOf(database, series).migrateToLatest();
    ran.push(
      ...results
        .filter(({ status }) => status === 'Success')
        .map(({ migrationName }) => toldName(series, migrationName)),
    );
    if (error === undefined) return ran;
    const kind = databaseErrorKind(error);
    if ((kind === 'duplicate' || kind === 'conflict') && round < pending + ROUNDS_MAX) {
      await delay(ROUND_PAUSE_MS * Math.min(round, ROUNDS_MAX));
      continue;
    }
    const failed = results.find(result => result.status === 'Error')?.migrationName;
    const which =
      failed === undefined ? 'the migrations' : `the migration ${toldName(series, failed)}`;
    const reason = error instanceof Error ? error.message : String(error);
    throw new SchemaError(`${which} failed: ${reason}`, error);
  }
}

/** One series alone. */
export function migratorOf(
  { kysely, dialect }: Pick<Database, 'kysely' | 'dialect'>,
  series: MigrationSeries,
): Migrator {
  const table = tableOf(series);
  return new Migrator({
    db: kysely,
    provider: { getMigrations: async () => series.migrations(dialect) },
    migrationTableName: table,
    migrationLockTableName: `${table}_lock`,
  });
}

/** @throws SchemaError unless the schema has all that this version needs. Changes nothing. */
export async function requireCurrentSchema(
  database: Database,
  packages: readonly MigrationSeries[],
): Promise<void> {
  const states = await seriesStates(database, packages);
  requireUsable(database, states);
  const pending = states.flatMap(({ pending }) => pending);
  if (pending.length > 0) {
    throw new SchemaError(
      `the database lacks ${pending.join(', ')}: run "npm run matting -- migrate" first`,
    );
  }
}

/** A newer version only adds, so that this one works on its schema, unless a name says otherwise. */
function requireUsable(database: Database, states: readonly SeriesState[]): void {
  if (states.some(({ older }) => older)) throw new SchemaError(`${OLDER_FOUND}: ${OLDER_ADVICE}`);
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

/** Of each series the names that are entered. */
function appliedMigrations(
  database: Database,
  all: readonly MigrationSeries[],
): Promise<string[][]> {
  return query(database, async db => {
    const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
    const applied: string[][] = [];
    for (const table of all.map(tableOf)) {
      applied.push(tables.some(({ name }) => name === table) ? await namesIn(db, table) : []);
    }
    return applied;
  });
}

async function namesIn(db: Db, table: string): Promise<string[]> {
  const { rows } = await sql<{
    name: string;
  }>`select name from ${sql.table(table)} order by name`.execute(db);
  return rows.map(({ name }) => name);
}
