/** `support-bundle`: what a maintainer would ask for, without secrets. */
import path from 'node:path';
import type { Command } from 'commander';
import { SecretsOut } from '#program/doctor/secrets.ts';
import { type CliContext, CommandError } from '../../core/cli/context.ts';
import type { ComposedProgram } from '../composed-program.ts';
import { secretsOfDirectory } from '../doctor/configuration-findings.ts';
import { collectBundle, LOGS_MAX, writeBundle } from './make-bundle.ts';

interface BundleCommand {
  readonly log?: readonly string[];
}

export function addSupportBundleCommand(
  program: Command,
  context: CliContext,
  composed: ComposedProgram,
): void {
  program
    .command('support-bundle')
    .description('gather what a maintainer would ask for into a ZIP file, secrets left out')
    .argument('<file>', 'to write; it must not be there')
    .option('--log <file...>', `log lines of the programs, ${LOGS_MAX} files at most`)
    .action((file: string, options: BundleCommand) => gather(context, composed, file, options));
}

async function gather(
  context: CliContext,
  composed: ComposedProgram,
  file: string,
  options: BundleCommand,
): Promise<void> {
  const { log: logs = [] } = options;
  if (logs.length > LOGS_MAX) throw new CommandError(`--log takes ${LOGS_MAX} files at most`);
  const env = context.environment;
  const secrets = await secretsOfDirectory(env.MATTING_DATA_DIR || 'data');
  const secretsOut = new SecretsOut(env, secrets);
  const files = await collectBundle({ env, composed, logs, secretsOut });
  const place = path.resolve(file);
  const bytes = await writeBundle(place, files).catch((error: NodeJS.ErrnoException) => {
    throw new CommandError(`${place} cannot be written (${error.code ?? error.message})`);
  });
  const names = [...files.keys()];
  context.report({ file: place, bytes, files: names }, () => [
    `${place}: ${names.length} files, ${(bytes / 1000).toFixed(0)} KB`,
    'Look through it before you send it.',
  ]);
}
