/**
 * The clock that files' times go by: the file system's, which for a directory that several machines
 * share is its server's. A process's own clock may be hours off, and comparing the two would then
 * tell an hour of age from a file that is written at this moment.
 */
import { open, unlink } from 'node:fs/promises';

/**
 * UTC milliseconds: the time of a file made at `path` for this, and removed again. Rejects with the
 * system's error where none can be made there.
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
