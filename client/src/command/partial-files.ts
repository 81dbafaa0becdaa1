/**
 * A result is first written to `.<random>.<pid>.part` in the target's folder. A run removes the
 * files that killed runs left.
 */
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';

const PARTIAL = /^\..*\.(\d{1,10})\.part$/;

export class PartialFiles {
  /** Each folder is cleared once. */
  readonly #cleared = new Map<string, Promise<void>>();

  /** Rejects with errors of `fill` and the system, and then leaves no file. */
  async write(target: string, fill: (file: FileHandle) => Promise<void>): Promise<void> {
    const dir = path.dirname(target);
    const cleared = this.#cleared.get(dir) ?? clear(dir);
    this.#cleared.set(dir, cleared);
    await cleared;
    const name = partialName(target);
    // Exclusive, so that an existing link is not followed.
    const file = await open(name, 'wx+');
    try {
      await fill(file).finally(() => file.close());
      await rename(name, target);
    } catch (error) {
      await rm(name, { force: true });
      throw error;
    }
  }
}

/** The name is short enough for any file system. */
export function partialName(target: string): string {
  return path.join(path.dirname(target), `.${randomUUID()}.${process.pid}.part`);
}

async function clear(folder: string): Promise<void> {
  for (const entry of await readdir(folder)) {
    const [, pid] = PARTIAL.exec(entry) ?? [];
    if (pid === undefined || isRunning(Number(pid))) continue;
    await rm(path.join(folder, entry), { recursive: true, force: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
