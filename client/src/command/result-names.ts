/** Checks names on the results' disk before a picture is charged. */
import { lstat, mkdir, open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { CANNOT_CREATE_EXIT_CODE, CommandError } from './command-error.ts';
import { onDisk, realPath } from './file-names.ts';
import { partialName } from './partial-files.ts';

/** Errors of a name that the disk does not take. exFAT reports ENOENT for a name with a colon. */
const CODES_OF_NAMES: readonly unknown[] = ['EINVAL', 'EILSEQ', 'ENAMETOOLONG', 'ENOENT'];

/** Tries the name, since each disk has its own rules. Rejects with system errors. */
export async function requireWritableName(target: string): Promise<void> {
  try {
    if ((await stat(target).catch(() => undefined))?.isDirectory()) {
      throw Object.assign(new Error(`${target} is a folder`), { code: 'EISDIR' });
    }
    if ((await lstat(target).catch(() => undefined)) !== undefined) return;
    await mkdir(path.dirname(target), { recursive: true });
    const file = await open(target, 'wx').catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    // Another command is testing the same name.
    if (file === undefined) return;
    await file.close();
    await rm(target);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const wrong = CODES_OF_NAMES.includes(code)
      ? `the disk does not take its name; ${message}`
      : message;
    throw Object.assign(new Error(`cannot write the result: ${wrong}`), { code });
  }
}

/** Finds two pictures whose results are one file on this disk. */
export async function findCollision<Picture extends { readonly output: string }>(
  to: string,
  groups: readonly (readonly Picture[])[],
): Promise<[Picture, Picture] | undefined> {
  if (groups.length === 0) return undefined;
  const scratch = partialName(path.join(to, 'names'));
  try {
    for (const [groupIndex, group] of groups.entries()) {
      for (const [index, picture] of group.entries()) {
        const name = path.join(scratch, `${groupIndex}`, picture.output);
        const isTaken = (await claim(name, index)) === 'EEXIST';
        const other = isTaken ? group[Number(await readFile(name, 'utf8'))] : undefined;
        if (other !== undefined) return [other, picture];
      }
    }
    return undefined;
  } catch (error) {
    throw new CommandError((error as Error).message, CANNOT_CREATE_EXIT_CODE);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/**
 * Creates a file of this name.
 * @returns the error's code. Only EEXIST matters here: `requirePlace` reports names that the disk
 * does not take.
 */
function claim(name: string, index: number): Promise<string | undefined> {
  return mkdir(path.dirname(name), { recursive: true })
    .then(() => writeFile(name, `${index}`, { flag: 'wx' }))
    .then(
      () => undefined,
      (error: NodeJS.ErrnoException) => error.code,
    );
}

export async function isSameFile(one: string, other: string): Promise<boolean> {
  if ((await realPath(one)) === (await realPath(other))) return true;
  const first = await stat(onDisk(one), { bigint: true });
  const second = await stat(onDisk(other), { bigint: true });
  // Some network disks number all files 0.
  return first.ino !== 0n && first.ino === second.ino && first.dev === second.dev;
}
