/** `doctor`: one page about what a control plane needs, and whether it has it. */
import type { Command } from 'commander';
import { counted, jsonOf, pageOf, summaryOf } from '#program/doctor/findings.ts';
import { SecretsOut } from '#program/doctor/secrets.ts';
import { type CliContext, CommandError } from '../../core/cli/context.ts';
import type { ComposedProgram } from '../composed-program.ts';
import { secretsOfDirectory } from './configuration-findings.ts';
import { examineControlPlane } from './examine.ts';

type DoctorOptions = { readonly strict?: boolean };

export function addDoctorCommand(
  program: Command,
  context: CliContext,
  composed: ComposedProgram,
): void {
  program
    .command('doctor')
    .description(
      'look at everything this control plane needs; exits 1 where something fails (--node: a node)',
    )
    .option('--json', 'print JSON')
    .option('--strict', 'exit 1 where there are warnings, too')
    .action((options: DoctorOptions) => examine(context, options, composed));
}

async function examine(
  context: CliContext,
  options: DoctorOptions,
  composed: ComposedProgram,
): Promise<void> {
  const { environment } = context;
  const findings = await examineControlPlane(environment, composed);
  const dataDir = environment.MATTING_DATA_DIR || 'data';
  const secretsOut = new SecretsOut(environment, await secretsOfDirectory(dataDir));
  const { failures, warnings } = summaryOf(findings);
  const text = context.json ? JSON.stringify(jsonOf(findings)) : pageOf(findings).join('\n');
  context.print(secretsOut.of(text));
  if (failures > 0) throw new CommandError(counted(failures, 'failure'));
  if (options.strict && warnings > 0) throw new CommandError(counted(warnings, 'warning'));
}
