import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import path from 'node:path';

/** Looks in `MATTING_TEST_TOOLS` (a directory), the PATH and the folders of daemons. */
export function findProgram(name: string): string | undefined {
  const given = process.env.MATTING_TEST_TOOLS;
  const directories = [
    ...(given ? [given] : []),
    ...(process.env.PATH ?? '').split(path.delimiter),
    '/usr/sbin',
    '/usr/bin',
  ];
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

/** Prefix: the command then ends with this process, however that ends. */
export const BOUND = ['setpriv']
  .flatMap(name => findProgram(name) ?? [])
  .flatMap(setpriv => [setpriv, '--pdeathsig', 'KILL']);

export function spawnBound(
  program: string,
  options: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): ChildProcess {
  const [file = '', ...args] = [...BOUND, program, ...options];
  const child = spawn(file, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const kill = () => child.kill('SIGKILL');
  process.prependOnceListener('exit', kill);
  child.once('exit', () => process.removeListener('exit', kill));
  child.unref();
  (child.stderr as unknown as { unref(): void } | null)?.unref();
  return child;
}

export async function killChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.ref();
  child.kill('SIGKILL');
  await gone;
}
