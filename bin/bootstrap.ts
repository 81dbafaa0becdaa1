/** Creates the first account by a command of the control plane. */
import { spawn } from 'node:child_process';
import { CommandError } from 'matting-client/src/command/command-error.ts';
import { endOf, killWithin, withinMs } from './child-end.ts';
import { CONTROL_PLANE_CLI, type SupervisorConfig } from './config.ts';
import { controlPlaneEnv } from './stack-programs.ts';

const CLI_OUTPUT_CHARACTERS_MAX = 64 * 1024;
/** Far more than a command with a few rows needs. */
const CLI_TIMEOUT_MS = 120_000;

/** Created at the first start of a data directory. */
export interface FirstAccount {
  readonly name: string;
  readonly credits: number;
  /** Email of the owner, for a sign-in link. */
  readonly owner?: string;
}

export interface Bootstrap {
  readonly created: boolean;
  readonly apiKey: string | undefined;
  /** Signs the owner in, once. undefined: not requested, or sign-in is off. */
  readonly signInLink: string | undefined;
}

/** Creates the account at the first start only, and a sign-in link at each start. */
export async function bootstrapAccount(
  config: SupervisorConfig,
  { name, credits, owner }: FirstAccount,
): Promise<Bootstrap> {
  const args = ['bootstrap', '--account', name, '--credits', String(credits), '--json'];
  if (owner !== undefined) args.push('--owner', owner);
  const output = await runCli(CONTROL_PLANE_CLI, args, controlPlaneEnv(config));
  const made = JSON.parse(output) as { created: boolean; api_key?: string; sign_in_link?: string };
  return { created: made.created, apiKey: made.api_key, signInLink: made.sign_in_link };
}

/** Returns the CLI's standard output. @throws CommandError */
async function runCli(
  main: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const child = spawn(process.execPath, [main, ...args], {
    env: { ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    // Ctrl-C is for the supervisor. A running command finishes and reports what it created.
    detached: true,
  });
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output = (output + text).slice(-CLI_OUTPUT_CHARACTERS_MAX);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(-CLI_OUTPUT_CHARACTERS_MAX);
  });
  const end = endOf(child);
  if (!(await withinMs(CLI_TIMEOUT_MS, end))) {
    const gone = await killWithin(child, end);
    const left = gone ? '' : `; process ${child.pid} does not end after SIGKILL`;
    throw new CommandError(`${args[0]} did not end within ${CLI_TIMEOUT_MS / 1000} s${left}`);
  }
  const { code } = await end;
  if (code !== 0) throw new CommandError(errors.trim() || `${args[0]} failed (exit code ${code})`);
  return output;
}
