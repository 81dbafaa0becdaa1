import { EnvReader } from '@matting/program/env.ts';
import { readModelsOffered } from '@matting/program/shared-settings.ts';
import { SELECTABLE_NAME } from '@matting/proto/contract/selectable-names.ts';
import { readToolSettings, type ToolSettings } from '@matting/serving/settings.ts';

export interface CliConfig extends ToolSettings {
  /** MATTING_MODELS_OFFERED: plans and models, of the catalogue too. Looked up when fetched. */
  readonly offered: readonly string[];
  /** Absent: models/catalogue.json. */
  readonly catalogueFile?: string;
  /** npm's configuration reads it: variables name registries, proxies and logins too. */
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

/** An option is missing, or is none that can be used; what it is, in one line. */
export class UsageError extends Error {}

export interface CommandContext {
  config(): CliConfig;
  readonly signal: AbortSignal;
  /** Records that something the command examined is bad, and that it was reported. */
  failed(): void;
}
