/**
 * Only this file handles signals and ends the process.
 *
 * | exit code | when                                                                    |
 * |-----------|-------------------------------------------------------------------------|
 * | 0         | done                                                                    |
 * | 1         | it cannot be done, one line on stderr says why and what to do, or a bug |
 * | 64        | the command could not be understood                                     |
 * | 78        | the configuration is not valid: every bad variable is on stderr, and    |
 * |           | every model that MATTING_COMMERCIAL_USE refuses                         |
 * | 130, 143  | ended by SIGINT, SIGTERM; partial downloads are removed                 |
 */

import { readCliConfig, UsageError } from '@matting/model-tools/commands/cli-config.ts';
import { addModelCommands } from '@matting/model-tools/commands/models.ts';
import { addProviderCommands } from '@matting/model-tools/commands/providers.ts';
import { CONFIG_EXIT_CODE, ConfigError } from '@matting/program/config-error.ts';
import { addDoctorCommand } from '@matting/serving/doctor.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { ProviderError } from '@matting/serving/providers/provider-files.ts';
import { Command, CommanderError } from 'commander';
import { loadConfig, wholeEnvironment } from './config.ts';

const USAGE_EXIT_CODE = 64;
const SIGNAL_EXIT_CODES = { SIGINT: 130, SIGTERM: 143 } as const;

const ending = new AbortController();
let signalExitCode: number | undefined;
let failed = false;

for (const [signal, code] of Object.entries(SIGNAL_EXIT_CODES)) {
  process.on(signal, () => {
    signalExitCode ??= code;
    ending.abort();
  });
}

function createProgram(): Command {
  const program = new Command('matting')
    .exitOverride()
    .showHelpAfterError('Use --help to list the commands and options.')
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error: /, 'matting: ')),
    });
  const config = () => readCliConfig(wholeEnvironment(), process.cwd());
  const context = {
    config,
    signal: ending.signal,
    failed: () => {
      failed = true;
    },
  };
  addModelCommands(program, context);
  addDoctorCommand(program, { ...context, environment: () => config().env, load: loadConfig });
  addProviderCommands(program, context);
  return program;
}

/** Prints a stack only for unexpected errors. */
function explain(error: unknown): number {
  if (signalExitCode !== undefined) return signalExitCode;
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
  if (error instanceof UsageError) {
    process.stderr.write(`matting: ${error.message}\n`);
    return USAGE_EXIT_CODE;
  }
  const isConfig = error instanceof ConfigError;
  if (isConfig || error instanceof ModelError || error instanceof ProviderError) {
    process.stderr.write(`matting: ${error.message}\n`);
  } else console.error('matting: unexpected error:', error);
  return isConfig ? CONFIG_EXIT_CODE : 1;
}

let exitCode = 0;
try {
  await createProgram().parseAsync(process.argv);
  if (failed) exitCode = 1;
} catch (error) {
  exitCode = explain(error);
}
process.exitCode = exitCode;
// Idle connections of the registry must not hold the terminal; flush first.
process.stdout.write('', () => process.exit());
