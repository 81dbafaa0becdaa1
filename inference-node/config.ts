/** The only reader of the environment. Errors name bad variables at once, never values. */
import { EnvReader } from '@matting/program/env.ts';
import { warnOfVariables } from '@matting/program/env-names.ts';
import { type NodeSettings, readNodeSettings } from '@matting/serving/settings.ts';

export interface Config extends NodeSettings {
  readonly warnings: readonly string[];
}

type Environment = Readonly<Record<string, string | undefined>>;

export function wholeEnvironment(): Environment {
  return process.env;
}

export function loadConfig(
  env: Environment = process.env,
  reader: EnvReader = new EnvReader(env),
): Config {
  const settings = readNodeSettings(reader, env, process.cwd());
  reader.requireValid();
  return { ...settings, warnings: warnOfVariables(env) };
}
