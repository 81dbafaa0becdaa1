/**
 * A copy of a SQLite file while other processes read and write it. It is made within one read
 * transaction, so it has what was committed when it began: without one, SQLite's own backup begins
 * again with each commit of another process, and under load never ends.
 */
import { constants } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { backup, DatabaseSync } from 'node:sqlite';
import { DatabaseCopyError } from '../copy-error.ts';

/** Pages of 4 KiB between two turns of the event loop: some milliseconds. */
const PAGES_A_STEP = 1000;
/** A process that is just switching the file to WAL holds its lock for so long. */
const BUSY_MS_MAX = 5000;

/**
 * Resolves when the copy is whole, checked and durable. `to` must not be there, and is not where it
 * rejects; only its owner can read it, from its first byte. While it is made the write-ahead log of
 * `from` grows with what is written meanwhile.
 * @throws SQLite's errors; DatabaseCopyError
 */
export async function copySqlite(from: string, to: string): Promise<void> {
  // SQLite fills an empty file that is there, and keeps its rights: one that it makes itself is
  // readable by others, as the process's mask allows.
  await (await open(to, 'wx', 0o600)).close();
  try {
    await fill(from, to);
    requireSound(to);
    const file = await open(to, constants.O_RDWR);
    try {
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (error) {
    await rm(to, { force: true });
    throw error;
  }
}

async function fill(from: string, to: string): Promise<void> {
  // Not read-only: the last one to leave a file in WAL mode has to tidy it.
  const source = new DatabaseSync(from, { timeout: BUSY_MS_MAX });
  try {
    source.exec('begin');
    // The snapshot is taken by the first read.
    source.prepare('select count(*) from sqlite_schema').get();
    await backup(source, to, { rate: PAGES_A_STEP });
    source.exec('rollback');
  } finally {
    source.close();
  }
}

/** Reads all of it. @throws DatabaseCopyError */
function requireSound(file: string): void {
  const copy = new DatabaseSync(file);
  try {
    // One file that stands for itself: no log beside it.
    copy.exec('pragma journal_mode = delete');
    const said = copy.prepare('pragma integrity_check(1)').get() as { integrity_check: string };
    if (said.integrity_check !== 'ok')
      throw new DatabaseCopyError(`the copy of the database is damaged: ${said.integrity_check}`);
  } finally {
    copy.close();
  }
}
