/** Runs in this process, in milliseconds. */

import type { Package } from '../../package.ts';
import { runCommand } from '../../run-command.ts';

export type Env = Readonly<Record<string, string>>;

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export function cliWith(packages: readonly Package[]) {
  return async (env: Env, ...args: string[]): Promise<Ran> => {
    let out = '';
    let err = '';
    const output = {
      out: (text: string) => {
        out += text;
      },
      err: (text: string) => {
        err += text;
      },
    };
    return { code: await runCommand(args, output, env, packages), out, err };
  };
}

export const runCli = cliWith([]);
