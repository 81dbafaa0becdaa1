import { setTimeout as delay } from 'node:timers/promises';
import { DatabaseOpenError } from '@matting/database/connect.ts';
import { migrate, SchemaError } from '@matting/database/migrate.ts';
import { CONFIG_EXIT_CODE, ConfigError } from '@matting/program/config-error.ts';
import type { Environment } from '@matting/program/env.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { StorageConfigError } from '@matting/storage/open-storage.ts';
import { Command, CommanderError } from 'commander';
import { addAccountCommands, addBootstrapCommand } from './cli/account-commands.ts';
import { wholeNumber } from './cli/arguments.ts';
import { type AddCommands, CliContext, type CliOutput, CommandError } from './cli/context.ts';
import { addCreditCommands } from './cli/credit-commands.ts';
import { addJobCommands } from './cli/job-commands.ts';
import { addKeyCommands } from './cli/key-commands.ts';
import { addNodeCommands } from './cli/node-commands.ts';
import { addWebhookCommands } from './cli/webhook-commands.ts';
import { loadConfig } from './config.ts';
import { migrationsOf, type Package, stepsOf, storageKindsOf } from './package.ts';
import { SecretsKeyError } from './secrets/secrets-key.ts';

const CORE_COMMANDS: readonly AddCommands[] = [
  addMigrateCommand,
  addBootstrapCommand,
  addAccountCommands,
  addKeyCommands,
  addCreditCommands,
  addJobCommands,
  addNodeCommands,
  addWebhookCommands,
];

const FAILED_EXIT_CODE = 1;
/** EX_USAGE of sysexits.h: the command line is wrong. */
const USAGE_EXIT_CODE = 64;

/** Commands not listed here come last. */
const HELP_ORDER = [
  ...['migrate', 'bootstrap', 'accounts', 'keys', 'credits', 'jobs', 'batches', 'mails', 'nodes'],
  ...['orders', 'storage', 'doctor', 'backup', 'restore', 'webhooks'],
];

/** They may create the database or change its tables. */
const SETTING_UP: readonly string[] = ['migrate', 'bootstrap'];

export async function runCommand(
  args: readonly string[],
  output: CliOutput,
  environment: Environment,
  packages: readonly Package[],
): Promise<number> {
  const context = new CliContext(output, environment, {
    storageKinds: storageKindsOf(packages),
    migrations: migrationsOf(packages),
    steps: stepsOf(packages),
    loadConfig: env => loadConfig(env, packages),
  });
  const loaded = await Promise.all(packages.map(({ loadCommands }) => loadCommands?.() ?? []));
  try {
    await createProgram(context, output, loaded.flat()).parseAsync(args, { from: 'user' });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
    const expected = expectedExitCode(error);
    if (expected === undefined) {
      output.err(`matting: ${error instanceof Error ? error.stack : error}\n`);
      return FAILED_EXIT_CODE;
    }
    output.err(`matting: ${errorText(error as Error)}\n`);
    return expected;
  }
}

/** @returns undefined for a bug, whose stack the caller prints */
function expectedExitCode(error: unknown): number | undefined {
  if (error instanceof ConfigError) return CONFIG_EXIT_CODE;
  const known = [
    CommandError,
    DatabaseOpenError,
    SchemaError,
    ContractError,
    StorageConfigError,
    SecretsKeyError,
  ];
  return known.some(kind => error instanceof kind) ? FAILED_EXIT_CODE : undefined;
}

/** Appends the message of the database or the system, which says what failed in an outage. */
function errorText(error: Error): string {
  const { message, cause } = error;
  const causeMessage =
    error instanceof ContractError && cause instanceof Error ? cause.message : '';
  return causeMessage === '' ? message : `${message.replace(/\.$/, '')}: ${causeMessage}`;
}

function createProgram(context: CliContext, output: CliOutput, ofPackages: readonly AddCommands[]) {
  const program = new Command('matting')
    .description('Manage the control plane.')
    .helpCommand(false)
    .exitOverride()
    .showHelpAfterError('Use --help to list the commands and options.')
    .configureOutput({
      writeOut: text => output.out(text),
      writeErr: text => output.err(text),
      outputError: (text, write) => write(text.replace(/^error: /, 'matting: ')),
    });
  for (const add of [...CORE_COMMANDS, ...ofPackages]) add(program, context);
  addJsonOptions(program);
  const helpPosition = (command: Command) => {
    const index = HELP_ORDER.indexOf(command.name());
    return index < 0 ? HELP_ORDER.length : index;
  };
  (program.commands as Command[]).sort((a, b) => helpPosition(a) - helpPosition(b));
  return program.hook('preAction', (_, command) => {
    context.json = command.opts().json === true;
    context.setsUp = command.parent === program && SETTING_UP.includes(command.name());
  });
}

/** Skips commands that define it themselves, and `lifecycle`, which prints only JSON. */
function addJsonOptions(command: Command): void {
  for (const sub of command.commands) addJsonOptions(sub);
  const isOwn = command.options.some(({ long }) => long === '--json');
  if (command.commands.length > 0 || isOwn || command.name() === 'lifecycle') return;
  command.option('--json', 'print JSON');
}

const WAIT_S_MAX = 3600;
const RETRY_MS = 1000;

function addMigrateCommand(program: Command, context: CliContext): void {
  const parseWait = wholeNumber(
    0,
    WAIT_S_MAX,
    `Use a whole number of seconds from 0 to ${WAIT_S_MAX}.`,
  );
  program
    .command('migrate')
    .description('bring the database up to date; other processes may start meanwhile')
    .option('--wait-s <seconds>', 'wait this long for the database to open', parseWait, 0)
    .action(async ({ waitS }: { readonly waitS: number }) => {
      const ran = await whenOpened(context, waitS, () =>
        context.withDatabase(database => migrate(database, context.packages.migrations)),
      );
      context.report({ migrations: ran }, () =>
        ran.length === 0 ? ['the database is up to date'] : ran.map(name => `${name}: done`),
      );
    });
}

/** @throws the last DatabaseOpenError when the time is up */
async function whenOpened<T>(
  context: CliContext,
  waitS: number,
  work: () => Promise<T>,
): Promise<T> {
  const endMs = performance.now() + waitS * 1000;
  let lastReason: string | undefined;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const passes = error instanceof DatabaseOpenError;
      if (!passes || performance.now() + RETRY_MS > endMs) throw error;
      if (error.message !== lastReason) context.warn(`waiting: ${error.message}`);
      lastReason = error.message;
    }
    await delay(RETRY_MS);
  }
}
