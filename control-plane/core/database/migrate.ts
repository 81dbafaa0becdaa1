/**
 * Brings the schema up to date. Any number of processes may do so at once: MySQL's get_lock or
 * SQLite's write lock lets them in one after the other, and the later ones find nothing to do. On
 * Galera get_lock keeps out nobody at another member: two then run the same migration, which may
 * be repeated at any of its statements; the later one fails to enter it in the list,
 * and looks again.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type Migration, type MigrationResultSet, Migrator } from 'kysely/migration';
import type { Database } from './connect.ts';
import { databaseErrorKind } from './database-errors.ts';
import { baseline } from './migrations/0001-baseline.ts';
import { query } from './transact.ts';

/** In the order of their names. A list, not a directory: what runs is what was reviewed. */
export function migrationsOf(database: Database): Record<string, Migration> {
  return { '0001-baseline': baseline(database.dialect) };
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

export async function schemaState(database: Database): Promise<SchemaState> {
  const known = Object.keys(migrationsOf(database));
  const applied = await appliedMigrations(database);
  return {
    older: applied.includes(FIRST_OF_0_1_0),
    pending: known.filter(name => !applied.includes(name)),
    unknown: applied.filter(name => !known.includes(name)),
  };
}

/** Whether a migration of any version ever ran here: what else it holds is not the service's. */
export async function hasSchema(database: Database): Promise<boolean> {
  return (await appliedMigrations(database)).length > 0;
}

/**
 * Runs what is pending.
 * @returns the names of the migrations that this call ran.
 * @throws SchemaError where the schema is of an older version, a newer one has left no way back, or
 * a migration failed.
 */
export async function migrate(database: Database): Promise<string[]> {
  const state = await schemaState(database);
  requireUsable(database, state);
  // Neither lock nor the right to change tables is needed to start on a current schema.
  if (state.pending.length === 0) return [];
  return runPending(database, state.pending.length);
}

/**
 * Beside one for each migration, which another member may enter first: a change of tables that
 * comes from another member ends what reads about them here, on Galera even a mere read.
 */
const ROUNDS_MAX = 5;
const ROUND_PAUSE_MS = 200;

async function runPending(database: Database, pending: number): Promise<string[]> {
  const ran: string[] = [];
  for (let round = 1; ; round += 1) {
    const { error, results = [] } = await migrateToLatest(database);
    ran.push(...results.flatMap(one => (one.status === 'Success' ? [one.migrationName] : [])));
    if (error === undefined) return ran;
    const kind = databaseErrorKind(error);
    if ((kind === 'duplicate' || kind === 'conflict') && round < pending + ROUNDS_MAX) {
      await delay(ROUND_PAUSE_MS * Math.min(round, ROUNDS_MAX));
      continue;
    }
    const failed = results.find(result => result.status === 'Error')?.migrationName;
    const which = failed === undefined ? 'the migrations' : `the migration ${failed}`;
    const reason = error instanceof Error ? error.message : String(error);
    throw new SchemaError(`${which} failed: ${reason}`, error);
  }
}

function migrateToLatest(database: Database): Promise<MigrationResultSet> {
  const provider = { getMigrations: async () => migrationsOf(database) };
  return new Migrator({ db: database.kysely, provider }).migrateToLatest();
}

/** @throws SchemaError unless the schema has all that this version needs. Changes nothing. */
export async function requireCurrentSchema(database: Database): Promise<void> {
  const state = await schemaState(database);
  requireUsable(database, state);
  if (state.pending.length > 0) {
    throw new SchemaError(
      `the database lacks ${state.pending.join(', ')}: run "npm run matting -- migrate" first`,
    );
  }
}

/** A newer version only adds, so that this one works on its schema, unless a name says otherwise. */
function requireUsable(database: Database, { older, unknown, pending }: SchemaState): void {
  if (older) throw new SchemaError(`${OLDER_FOUND}: ${OLDER_ADVICE}`);
  if (unknown.length === 0) return;
  const newer = `the database was made by a newer version (${unknown.join(', ')})`;
  if (unknown.some(leavesNoWayBack)) {
    throw new SchemaError(
      `${newer}, and there is no way back from it: run that one, or restore an older copy`,
    );
  }
  if (pending.length > 0) {
    throw new SchemaError(
      `${newer} that lacks ${pending.join(', ')}: run one that has all of them`,
    );
  }
  database.log.warn({ migrations: unknown }, 'the schema is of a newer version, which only added');
}

type MigrationTable = Record<'kysely_migration', { name: string }>;

function appliedMigrations(database: Database): Promise<string[]> {
  return query(database, async db => {
    const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
    if (!tables.some(table => table.name === 'kysely_migration')) return [];
    const rows = await db
      .withTables<MigrationTable>()
      .selectFrom('kysely_migration')
      .select('name')
      .orderBy('name')
      .execute();
    return rows.map(row => row.name);
  });
}
