/** Runs the release command's programs, each to its end; an error has the program's output. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';

export interface RunOptions {
  readonly cwd: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Passes what the program says on, for what takes minutes; nothing is returned then. */
  readonly show?: boolean;
}

/** @returns standard output, without the last line break */
export async function run(
  program: string,
  args: readonly string[],
  { cwd, env = process.env, show = false }: RunOptions,
): Promise<string> {
  const child = spawn(program, [...args], {
    cwd,
    env,
    stdio: ['ignore', show ? 'inherit' : 'pipe', show ? 'inherit' : 'pipe'],
  });
  const ended = once(child, 'close');
  const [said, complaint] = await Promise.all([
    child.stdout === null ? '' : text(child.stdout),
    child.stderr === null ? '' : text(child.stderr),
  ]);
  const [code, signal] = await ended;
  if (code === 0) return said.replace(/\n$/, '');
  const what = [program, ...args].join(' ');
  throw new Error(`${what}: ended with ${code ?? signal}\n${complaint || said}`);
}

/** Whether the PATH has the program. */
export function isInstalled(program: string): boolean {
  return (process.env.PATH ?? '').split(path.delimiter).some(directory => {
    try {
      accessSync(path.join(directory, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
