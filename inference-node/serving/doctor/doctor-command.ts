/** `doctor`: one page about what this node needs, and whether it has it. */
import type { Writable } from 'node:stream';
import type { Command } from 'commander';
import { jsonOf, pageOf, summaryOf } from '#program/doctor/findings.ts';
import { SecretsOut } from '#program/doctor/secrets-out.ts';
import type { Environment } from '../start/pool-settings.ts';
import { type ExaminedConfig, examineNode } from './examine.ts';

/** As commander gives them. */
interface DoctorOptions {
  readonly json?: boolean;
  readonly strict?: boolean;
}

export interface DoctorContext {
  /** @throws ConfigError where commands have no configuration to go by. */
  environment(): Environment;
  /** @throws ConfigError */
  load(env: Environment): ExaminedConfig;
  /** Something was found bad, and was said. */
  failed(): void;
}

export function addDoctorCommand(program: Command, context: DoctorContext): void {
  program
    .command('doctor')
    .description('look at everything this node needs; exits 1 where something fails')
    .option('--node', 'this, and not a control plane')
    .option('--json', 'print JSON')
    .option('--strict', 'exit 1 where there are warnings, too')
    .action(async (options: DoctorOptions) => {
      const env = context.environment();
      const good = await doctor(options, env, () => context.load(env), process.stdout);
      if (!good) context.failed();
    });
}

/** @returns whether nothing fails; with `strict`, nothing warns either. */
export async function doctor(
  options: DoctorOptions,
  env: Environment,
  load: () => ExaminedConfig,
  out: Writable,
): Promise<boolean> {
  const findings = await examineNode(load);
  const text = options.json ? JSON.stringify(jsonOf(findings)) : pageOf(findings).join('\n');
  out.write(`${new SecretsOut(env).of(text)}\n`);
  const { failures, warnings } = summaryOf(findings);
  return failures === 0 && (options.strict !== true || warnings === 0);
}
