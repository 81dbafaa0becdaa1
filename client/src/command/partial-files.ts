/**
 * Writes a result to `.<random>.<pid>.part` in its folder, and renames it when it is whole. A run
 * removes the partial files of killed runs.
 */
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';

const PARTIAL = /^\..*\.(\d{1,10})\.part$/;

export class PartialFiles {
  /** The removal in each folder, once a run. */
  readonly #cleared = new Map<string, Promise<void>>();

  /** Rejects with the errors of `fill` and of the system. Then no partial file is left. */
  async write(target: string, fill: (file: FileHandle) => Promise<void>): Promise<void> {
    const dir = path.dirname(target);
    const cleared = this.#cleared.get(dir) ?? clear(dir);
    this.#cleared.set(dir, cleared);
    await cleared;
    const name = partialName(target);
    // Exclusive, so that it does not follow a link of that name.
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

/** In the target's folder, and never longer than a name may be. */
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
