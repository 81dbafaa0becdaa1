/** What file systems do otherwise than Node's own calls expect: directories, clocks, durability. */
import { mkdirSync, statSync } from 'node:fs';
import { open, unlink } from 'node:fs/promises';
import path from 'node:path';

/**
 * `mkdir -p` that always ends. Node's own (`recursive: true`) loops for ever where a parent exists
 * but answers ENOENT to a new entry, as /proc does, and takes a whole core with it.
 * @param mode rights of the directories that are made; those that are there keep theirs.
 * @throws the system's error (EACCES, EROFS, ENOENT, ENOTDIR …) where it cannot be made.
 */
export function makeDirectory(directory: string, mode = 0o777): void {
  const absolute = path.resolve(directory);
  const missing: string[] = [];
  for (let at = absolute; ; at = path.dirname(at)) {
    const found = statSync(at, { throwIfNoEntry: false });
    if (found?.isDirectory()) break;
    if (found !== undefined || at === path.dirname(at)) throw notADirectory(at);
    missing.unshift(at);
  }
  for (const at of missing) {
    try {
      mkdirSync(at, { mode });
    } catch (error) {
      const raced = (error as NodeJS.ErrnoException).code === 'EEXIST';
      if (!raced || !statSync(at).isDirectory()) throw error;
    }
  }
}

function notADirectory(at: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`ENOTDIR: not a directory: ${at}`), { code: 'ENOTDIR' });
}

/**
 * The clock that files' times go by, in UTC milliseconds: that of a file made at `path` and removed
 * again. A shared directory's clock is its server's, and may be hours off that of the process.
 * Rejects with the system's error where no file can be made there.
 */
export async function fileClockMs(path: string): Promise<number> {
  const file = await open(path, 'wx', 0o600);
  try {
    // The only time of a file that no program can set.
    return (await file.stat()).ctimeMs;
  } finally {
    await file.close();
    await unlink(path);
  }
}

/** Makes durable what was written into a file, or renamed into a directory. */
export async function syncPath(path: string): Promise<void> {
  await using handle = await open(path, 'r');
  await handle.sync();
}
