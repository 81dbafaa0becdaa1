/** A command of the operator in this process, so that it costs milliseconds. */
import { PACKAGES } from '../../../packages.ts';
import { runCommand } from '../../cli/program.ts';

export type Env = Readonly<Record<string, string>>;

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export async function runCli(env: Env, ...args: string[]): Promise<Ran> {
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
  return { code: await runCommand(args, output, env, PACKAGES), out, err };
}
