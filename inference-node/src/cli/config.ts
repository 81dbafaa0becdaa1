/** The CLI's configuration: the only file of it that reads the environment. */
import { type ModelSettings, parseModelSettings } from '../models/model-settings.ts';

export interface CliConfig {
  readonly settings: ModelSettings;
  /** For npm's configuration, which names registries, proxies and logins in variables too. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

/** @throws ConfigError naming every variable that is not usable. */
export function loadCliConfig(): CliConfig {
  const cwd = process.cwd();
  return { settings: parseModelSettings(process.env, cwd), env: process.env, cwd };
}
