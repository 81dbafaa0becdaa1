/** The database with every table that this version expects. */
import { type Database, DatabaseOpenError, openDatabase, type StoreLog } from './connect.ts';
import { requireAgreeingClocks } from './member-clocks.ts';
import { type MigrationSeries, migrate, requireCurrentSchema } from './migrate.ts';

export interface OpenOptions {
  readonly log: StoreLog;
  /**
   * 'run', for a control plane: pending migrations are run, under a lock that lets any number of
   * processes start at once, and clocks of members that differ too much are an error. 'require':
   * pending migrations are an error.
   */
  readonly migrations: 'run' | 'require';
  /** Whose tables are expected beside the core's. */
  readonly packages: readonly MigrationSeries[];
}

/** @throws DatabaseOpenError, SchemaError: for the operator, in one line. */
export async function openCurrentDatabase(
  databaseUrl: string,
  { log, migrations, packages }: OpenOptions,
): Promise<Database> {
  const database = await openDatabase(databaseUrl, { log });
  try {
    if (migrations === 'run') {
      await requireClocks(database);
      const ran = await migrate(database, packages);
      if (ran.length > 0) log.info({ migrations: ran }, 'the database was migrated');
    } else {
      await requireCurrentSchema(database, packages);
    }
  } catch (error) {
    await database.close();
    throw error;
  }
  return database;
}

async function requireClocks(database: Database): Promise<void> {
  try {
    await requireAgreeingClocks(database);
  } catch (error) {
    throw new DatabaseOpenError(error instanceof Error ? error.message : String(error), error);
  }
}
