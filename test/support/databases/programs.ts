/** Programs of this machine that tests use where they are installed. */
import { accessSync, constants } from 'node:fs';
import path from 'node:path';

/** Where Debian puts servers, which is not in everybody's PATH. */
const MORE_DIRECTORIES = ['/usr/sbin', '/usr/bin'];

/** The program's path; undefined: it is not installed. */
export function findProgram(name: string): string | undefined {
  const directories = [...(process.env.PATH ?? '').split(path.delimiter), ...MORE_DIRECTORIES];
  return directories.map(directory => path.join(directory, name)).find(isProgram);
}

export function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
