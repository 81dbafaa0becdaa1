/** `doctor`: one page about what this node needs, and whether it has it. */
import type { Writable } from 'node:stream';
import { jsonOf, pageOf, summaryOf } from '#program/doctor/findings.ts';
import { SecretsOut } from '#program/doctor/secrets-out.ts';
import { examineNode } from '../doctor/examine.ts';
import type { CliConfig } from './config.ts';

/** As commander gives them. */
export interface DoctorOptions {
  readonly json?: boolean;
  readonly strict?: boolean;
}

/** @returns whether nothing fails; with `strict`, nothing warns either. */
export async function doctor(
  options: DoctorOptions,
  { env }: Pick<CliConfig, 'env'>,
  out: Writable,
): Promise<boolean> {
  const findings = await examineNode(env);
  const text = options.json ? JSON.stringify(jsonOf(findings)) : pageOf(findings).join('\n');
  out.write(`${new SecretsOut(env).of(text)}\n`);
  const { failures, warnings } = summaryOf(findings);
  return failures === 0 && (options.strict !== true || warnings === 0);
}
