import { EnvReader } from '@matting/program/env.ts';
import { readModelsOffered } from '@matting/program/shared-settings.ts';
import { SELECTABLE_NAME } from '@matting/proto/contract/selectable-names.ts';
import { readToolSettings, type ToolSettings } from '@matting/serving/settings.ts';

export interface CliConfig extends ToolSettings {
  /** MATTING_MODELS_OFFERED: plans and models, also of the catalogue. Checked when fetched. */
  readonly offered: readonly string[];
  readonly catalogueFile?: string;
  /** npm's settings too: registries, proxies and logins. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

export function readCliConfig(
  env: CliConfig['env'],
  cwd: string,
  reader: EnvReader = new EnvReader(env),
): CliConfig {
  const shared = readToolSettings(reader, env, cwd);
  const offered = readModelsOffered(reader, SELECTABLE_NAME);
  reader.requireValid();
  return { ...shared, offered, env, cwd };
}

export class UsageError extends Error {}

export interface CommandContext {
  config(): CliConfig;
  readonly signal: AbortSignal;
  failed(): void;
}
