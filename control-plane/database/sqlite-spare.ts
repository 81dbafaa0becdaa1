/**
 * Reserves space next to a SQLite file. On a full disk SQLite opens no file and cannot even record
 * that a result was deleted to make room.
 */

import { randomBytes } from 'node:crypto';
import { existsSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { StoreLog } from './database.ts';

/** Twice the size at which SQLite restarts the write-ahead log. */
const SPARE_BYTES = 8 * 1024 * 1024;
const CHECK_MS = 1000;

const spareOf = (path: string) => `${path}-spare`;

/** Returns whether there was a reserve. */
export function freeSpare(path: string): boolean {
  const found = existsSync(spareOf(path));
  rmSync(spareOf(path), { force: true });
  return found;
}

/** Reserves the space again whenever the disk has room. @returns a function that stops it */
export function keepSpare(path: string, log: StoreLog): () => void {
  let warned = false;
  const warn = (about: object) => {
    if (!warned) log.warn(about, 'the disk of the database is full');
    warned = true;
  };
  const timer = setInterval(() => {
    try {
      if (existsSync(spareOf(path))) return;
      const { bavail, bsize } = statfsSync(dirname(path));
      if (bavail * bsize < 2 * SPARE_BYTES) return warn({ freeBytes: bavail * bsize });
      // A compressing file system would reserve nothing for zeros.
      const bytes = Buffer.alloc(SPARE_BYTES, randomBytes(SPARE_BYTES / 64));
      writeFileSync(spareOf(path), bytes, { flag: 'wx', mode: 0o600 });
      warned = false;
    } catch (err) {
      if ((err as NodeJS.ErrnoException).code !== 'EEXIST') warn({ err });
    }
  }, CHECK_MS);
  timer.unref();
  return () => clearInterval(timer);
}
