/** The CLI's configuration: the only file of it that reads the environment. */
import { readChildEnv } from '../config.ts';
import { type ModelSettings, parseModelSettings } from '../models/model-settings.ts';

export interface CliConfig {
  readonly settings: ModelSettings;
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
  return { settings: parseModelSettings(env, cwd), env, cwd, childEnv: readChildEnv(env) };
}
