/** Programs of the machine that some tests need and no test brings. */
import { accessSync, constants } from 'node:fs';
import path from 'node:path';

/** Its path, of PATH or of where Debian has servers; undefined: it is not installed. */
export function findProgram(name: string): string | undefined {
  const directories = [...(process.env.PATH ?? '').split(path.delimiter), '/usr/sbin', '/usr/bin'];
  return directories
    .map(directory => path.join(directory, name))
    .find(file => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}
