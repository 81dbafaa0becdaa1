import { mkdirSync, statSync } from 'node:fs';
import { open, unlink } from 'node:fs/promises';
import { userInfo } from 'node:os';
import path from 'node:path';

/**
 * `mkdir -p`. Node's (`recursive: true`) loops forever if a parent exists but answers ENOENT to a
 * new entry, as /proc does.
 * @param mode rights of created directories
 * @throws the system's error (EACCES, EROFS, ENOENT, ENOTDIR …)
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
 * The clock of a file system, in UTC milliseconds, from a file made at `path` and removed. A shared
 * directory has its server's clock, which may be hours off. Rejects with the system's error.
 */
export async function fileClockMs(path: string): Promise<number> {
  const file = await open(path, 'wx', 0o600);
  try {
    // No program can set this time of a file.
    return (await file.stat()).ctimeMs;
  } finally {
    await file.close();
    await unlink(path);
  }
}

/** Makes a file's content, or a directory's entries, durable. */
export async function syncPath(path: string): Promise<void> {
  await using handle = await open(path, 'r');
  await handle.sync();
}

/**
 * @returns the text after "cannot be read": the system's code and advice, never the path, which may
 * be secret
 */
export function whyUnreadable(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown error';
  switch (code) {
    case 'EACCES':
    case 'EPERM':
      return `${code}: ${userName()} needs the right to read it, and to enter each folder above it`;
    case 'ENOENT':
      return `${code}: no file has this name`;
    case 'ENOTDIR':
      return `${code}: a part of its path is a file, and not a folder`;
    case 'EISDIR':
      return `${code}: it is a folder`;
    default:
      return code;
  }
}

function userName(): string {
  const id = process.getuid?.();
  try {
    return `the user ${userInfo().username}`;
  } catch {
    // A container's user may have no name.
    return `the user ${id}`;
  }
}
