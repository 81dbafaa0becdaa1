/**
 * One process makes a prepared file; others on the same cache wait for it and then use it. The lock
 * only saves work: files are written whole and checked by their checksums, so a lock that is lost
 * or ignored makes no wrong file. So its bounds may be short: after them every process continues.
 */
import { open, rm, utimes } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { makeDirectory } from '#program/make-directory.ts';
import { statOrNull } from '../cache-files.ts';
import { diskError } from '../model-error.ts';

/** A holder touches its lock this often; after several times as long it is taken for dead. */
const TOUCH_INTERVAL_MS = 2_000;
export const LOCK_IDLE_MAX_MS = 10_000;
/** Preparing takes seconds, a minute on the slowest disk. */
export const LOCK_WAIT_MAX_MS = 120_000;
const POLL_INTERVAL_MS = 100;

/**
 * Runs `work` with the lock of the file at `path`, or without it after LOCK_WAIT_MAX_MS.
 * @param onWait called once when another process holds it.
 */
export async function withPrepareLock<Result>(
  path: string,
  onWait: () => void,
  work: () => Promise<Result>,
): Promise<Result> {
  const lock = `${path}.lock`;
  const held = await takeLock(lock, onWait);
  if (!held) return work();
  const touch = setInterval(() => {
    const now = new Date();
    // Where it is gone another process took this one for dead; see above.
    utimes(lock, now, now).catch(() => undefined);
  }, TOUCH_INTERVAL_MS);
  try {
    return await work();
  } finally {
    clearInterval(touch);
    await rm(lock, { force: true });
  }
}

/** False where the lock did not become free in time. */
async function takeLock(lock: string, onWait: () => void): Promise<boolean> {
  const deadlineMs = performance.now() + LOCK_WAIT_MAX_MS;
  for (let waits = 0; performance.now() < deadlineMs; waits++) {
    if (await createLock(lock)) return true;
    const idleMs = Date.now() - ((await statOrNull(lock))?.mtimeMs ?? Date.now());
    if (idleMs > LOCK_IDLE_MAX_MS) await rm(lock, { force: true });
    else {
      if (waits === 0) onWait();
      await wait(POLL_INTERVAL_MS);
    }
  }
  return false;
}

async function createLock(lock: string): Promise<boolean> {
  try {
    makeDirectory(dirname(lock));
    const file = await open(lock, 'wx');
    await file.close();
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw diskError(error, 'write', lock);
  }
}
