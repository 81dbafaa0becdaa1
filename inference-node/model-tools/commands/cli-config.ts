/** What the commands of models and providers go by. */
import { EnvReader } from '#program/env.ts';
import { type ModelSettings, readModelSettings } from '../../serving/models/plan.ts';
import { readChildEnv, readProviderDir } from '../../serving/start/pool-settings.ts';

export interface CliConfig {
  readonly settings: ModelSettings;
  /** Where providers are installed; absolute. */
  readonly providerDir: string;
  /** For npm's configuration, which names registries, proxies and logins in variables too. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** Environment of the engine that checks whether a model computes right here. */
  readonly childEnv: Readonly<Record<string, string>>;
}

/** @throws ConfigError naming every variable that is not usable. */
export function readCliConfig(env: CliConfig['env'], cwd: string): CliConfig {
  const reader = new EnvReader(env);
  const settings = readModelSettings(reader, cwd);
  const providerDir = readProviderDir(reader, settings, cwd);
  reader.requireValid();
  return { settings, providerDir, env, cwd, childEnv: readChildEnv(env) };
}

export interface CommandContext {
  /** @throws ConfigError */
  config(): CliConfig;
  /** Aborted where the command is to end. */
  readonly signal: AbortSignal;
  /** What a command looked at is bad, and was said. */
  failed(): void;
}
