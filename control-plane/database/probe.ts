import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import path from 'node:path';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { sql } from 'kysely';
import { type Database, type Db, query } from './database.ts';

/**
 * `answerMs`: one round trip. `clockAheadMs`: the database's clock minus this machine's, wrong by
 * half of answerMs at most.
 */
export async function probeDatabase(database: Database) {
  const { engine, kysely, nowMs, dialect } = database;
  const version = dialect === 'sqlite' ? sql<string>`sqlite_version()` : sql<string>`version()`;
  const beganMs = performance.now();
  const { rows } = await sql<{ at: number; version: string }>`
    select ${nowMs} as at, ${version} as version`.execute(kysely);
  const answerMs = performance.now() - beganMs;
  const [row] = rows;
  if (row === undefined) throw new Error('the database answered without a row');
  const clockAheadMs = row.at - (Date.now() - answerMs / 2);
  return { engine: engine.name, version: row.version, answerMs, clockAheadMs };
}

export async function hasTables(database: Database): Promise<boolean> {
  const tables = await query(database, db =>
    db.introspection.getTables({ withInternalKyselyTables: true }),
  );
  return tables.length > 0;
}

/**
 * A demoted server, or a file on a disk mounted read-only, still answers every read.
 * @param writeNothing a write that matches no row: it takes no lock and adds nothing to a binary
 * log, but a read-only server refuses it
 * @throws ContractError SERVICE_UNAVAILABLE
 */
export async function requireWritable(
  database: Database,
  writeNothing: (db: Db) => Promise<unknown>,
): Promise<void> {
  if (database.dialect === 'sqlite') await requireWritableFile(database);
  else await query(database, writeNothing);
}

/** SQLite does not touch the file for a write that matches no row, so this asks the system. */
async function requireWritableFile(database: Database): Promise<void> {
  const { rows } = await query(database, db =>
    sql<{ file: string }>`select file from pragma_database_list where name = 'main'`.execute(db),
  );
  const [main] = rows;
  assert(main !== undefined, 'SQLite has a main database');
  const { file } = main;
  try {
    await access(file, constants.R_OK | constants.W_OK);
    // The write-ahead log is in the same directory.
    await access(path.dirname(file), constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new ContractError('SERVICE_UNAVAILABLE', 'The database file cannot be written.', {
      cause,
    });
  }
}
