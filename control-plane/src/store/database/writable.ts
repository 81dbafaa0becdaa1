/**
 * Whether the database takes writes at this moment. A server that was demoted goes on to answer
 * every read, and a file whose disk was mounted read-only goes on to be read.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import path from 'node:path';
import { sql } from 'kysely';
import { ContractError } from '#contract/errors.ts';
import type { Database } from './connect.ts';
import { query } from './transact.ts';

/** Rejects with SERVICE_UNAVAILABLE where it does not answer, or answers and takes no writes. */
export async function requireWritable(database: Database): Promise<void> {
  if (database.dialect === 'sqlite') await requireWritableFile(database);
  else await writeNothing(database);
}

/**
 * A write that matches no row: no lock, no page, no entry in a binary log, but a read-only server
 * refuses it as it refuses any other, whichever of its variables made it so.
 */
async function writeNothing(database: Database): Promise<void> {
  await query(database, db =>
    db.updateTable('secrets_canary').set({ key_id: '' }).where('id', '=', '').execute(),
  );
}

/** On SQLite such a write touches nothing, so the system is asked instead. */
async function requireWritableFile(database: Database): Promise<void> {
  const { rows } = await query(database, db =>
    sql<{ file: string }>`select file from pragma_database_list where name = 'main'`.execute(db),
  );
  const [main] = rows;
  assert(main !== undefined, 'SQLite has a main database');
  const { file } = main;
  try {
    await access(file, constants.R_OK | constants.W_OK);
    // The write-ahead log lies beside it.
    await access(path.dirname(file), constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new ContractError('SERVICE_UNAVAILABLE', 'the database file cannot be written', {
      cause,
    });
  }
}
