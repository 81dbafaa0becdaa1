/**
 * `mkdir -p` that always ends. Node's own (`recursive: true`) loops for ever where a parent exists
 * but answers ENOENT to a new entry, as /proc does, and takes a whole core with it.
 */
import { mkdirSync, statSync } from 'node:fs';
import path from 'node:path';

/**
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
      // Another process was faster.
      const raced = (error as NodeJS.ErrnoException).code === 'EEXIST';
      if (!raced || !statSync(at).isDirectory()) throw error;
    }
  }
}

function notADirectory(at: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`ENOTDIR: not a directory: ${at}`), { code: 'ENOTDIR' });
}
