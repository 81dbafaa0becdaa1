/**
 * The control plane's configuration: the only file that reads the environment, by what the core and
 * each package read of it. Every bad variable is named at once with the form it should have, never
 * with its value, before anything is opened.
 */
import { type Environment, EnvReader } from '#program/env.ts';
import { warnOfUnknownVariables } from '#program/env-names.ts';
import { readLogSettings } from '#program/log.ts';
import { readTracingSettings } from '#program/tracing/tracing-settings.ts';
import { readCoreSettings, requireDistinctPorts, warnOfHosts } from './core/settings.ts';
import type { StorageKind } from './core/storage/blob-store.ts';
import { asksForStorageKinds } from './core/storage/open-storage.ts';
import { readPortalSettings, warnOfAccountArea } from './portal/settings.ts';
import { readRemovebg, warnOfOrigins } from './removebg/settings.ts';

type Settings = ReturnType<typeof readSettings>;

export interface Config extends Settings {
  /** Lines that every start logs. */
  readonly warnings: readonly string[];
}

/** For 32 look-ups for callers and two of the service; half of the threads resolve names. */
const THREADS_FOR_LOOKUPS = 67;

/**
 * Called before the first file is read, which starts the pool: sets enough threads for the names of
 * callers where the system's resolver is used, whose look-ups cannot be cancelled. A number that the
 * environment already has is kept.
 */
export function growThreadPool(env: NodeJS.ProcessEnv = process.env): void {
  if (env.MATTING_ALLOW_PRIVATE_ADDRESSES !== 'true') return;
  env.UV_THREADPOOL_SIZE ??= String(THREADS_FOR_LOOKUPS);
}

/** For commands that look at all of it. */
export function wholeEnvironment(): Environment {
  return process.env;
}

/** Kinds of storage beside directories: loaded where a URL asks for one, since the SDK is large. */
export async function loadStorageKinds(
  env: Environment = process.env,
): Promise<readonly StorageKind[]> {
  if (!asksForStorageKinds(env)) return [];
  return [(await import('./object-storage/bucket-storage.ts')).bucketStorage];
}

/**
 * @param storageKinds those that its URLs ask for
 * @throws ConfigError naming every variable that is not usable.
 */
export function loadConfig(
  env: Environment = process.env,
  storageKinds: readonly StorageKind[] = [],
): Config {
  const reader = new EnvReader(env);
  const settings = readSettings(reader, env, storageKinds);
  requireDistinctPorts(reader, settings);
  reader.requireValid();
  const warnings = [
    ...warnOfHosts(reader, settings),
    warnOfOrigins(settings.removebg),
    warnOfAccountArea(settings),
    warnOfUnknownVariables(env),
  ];
  return { ...settings, warnings: warnings.filter(line => line !== undefined) };
}

function readSettings(reader: EnvReader, env: Environment, storageKinds: readonly StorageKind[]) {
  const core = readCoreSettings(reader, env, storageKinds);
  return {
    ...core,
    removebg: readRemovebg(reader),
    ...readPortalSettings(reader, core.baseUrl),
    ...readLogSettings(reader),
    /** Undefined: there are no traces. */
    traces: readTracingSettings(reader),
  };
}
