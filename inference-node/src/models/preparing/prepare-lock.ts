/**
 * One process makes a prepared file, others on the same cache wait for it and then find it there.
 * The lock saves work and nothing else: files are written whole under their names and proven by
 * their checksums, so a lock that is lost or overrun makes no wrong file. Hence its bounds may be
 * short: after them everybody goes on.
 */
import { open, rm, utimes } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { makeDirectory } from '#program/make-directory.ts';
import { statOrNull } from '../cache-files.ts';
import { diskError } from '../model-error.ts';

/** A holder touches its lock this often; one untouched for several times as long is dead. */
const TOUCH_INTERVAL_MS = 2_000;
export const LOCK_IDLE_MAX_MS = 10_000;
/** Preparing takes seconds, a minute on the slowest disk. */
export const LOCK_WAIT_MAX_MS = 120_000;
const POLL_INTERVAL_MS = 100;

/**
 * Runs `work` with the lock of the file at `path`, held where it could be had.
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
    // Where it is gone somebody took it for dead; see above.
    utimes(lock, now, now).catch(() => undefined);
  }, TOUCH_INTERVAL_MS);
  try {
    return await work();
  } finally {
    clearInterval(touch);
    await rm(lock, { force: true });
  }
}

/** False where the wait was over before it was free. */
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
