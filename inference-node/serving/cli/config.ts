/** The CLI's configuration: the only file of it that reads the environment. */
import { EnvReader } from '#program/env.ts';
import { readChildEnv, readProviderDir } from '../../config.ts';
import { type ModelSettings, readModelSettings } from '../models/model-settings.ts';

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
export function loadCliConfig(): CliConfig {
  const cwd = process.cwd();
  const { env } = process;
  const reader = new EnvReader(env);
  const settings = readModelSettings(reader, cwd);
  const providerDir = readProviderDir(reader, settings, cwd);
  reader.requireValid();
  return { settings, providerDir, env, cwd, childEnv: readChildEnv(env) };
}
