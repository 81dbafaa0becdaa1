import { type Environment, EnvReader } from '@matting/program/env.ts';
import { warnOfVariables } from '@matting/program/env-names.ts';
import { readLogSettings } from '@matting/program/log.ts';
import { readTracingSettings } from '@matting/program/tracing/tracing-settings.ts';
import { type ConfiguredPackage, type Package, storageKindsOf } from './package.ts';
import { readCoreSettings, requireDistinctPorts, warnOfHosts } from './settings.ts';

type Settings = ReturnType<typeof readSettings>;

export interface Config extends Settings {
  readonly packages: readonly ConfiguredPackage[];
  readonly warnings: readonly string[];
}

/** @throws ConfigError that names every wrong variable and its form, never its value */
export function loadConfig(
  env: Environment,
  packages: readonly Package[],
  reader: EnvReader = new EnvReader(env),
): Config {
  const settings = readSettings(reader, env, packages);
  const configured = packages.map(use => ({
    use,
    settings: use.readSettings?.(reader, settings),
  }));
  requireDistinctPorts(reader, settings);
  reader.requireValid();
  const warnings = [
    ...warnOfHosts(reader, settings),
    ...configured.flatMap(({ use, settings }) => use.warnings?.(settings) ?? []),
    ...warnOfVariables(env),
  ];
  return {
    ...settings,
    packages: configured,
    warnings: warnings.filter(line => line !== undefined),
  };
}

function readSettings(reader: EnvReader, env: Environment, packages: readonly Package[]) {
  return {
    ...readCoreSettings(reader, env, storageKindsOf(packages)),
    ...readLogSettings(reader),
    traces: readTracingSettings(reader),
  };
}
