/**
 * `providers install cuda`: ONNX Runtime's part for NVIDIA's GPUs, which npm does not bring, put
 * beside a copy of the runtime, where an installation of packages does not touch it. It reaches
 * into the runtime's structures and may do all that a node may. Hence two conditions: its words
 * name exactly our version where it has any, and its checksum is known or the operator names it.
 */

import { randomBytes } from 'node:crypto';
import { copyFile, open, rename, rm } from 'node:fs/promises';
import { arch, platform } from 'node:os';
import path from 'node:path';
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
  PROVIDER_LIBRARIES,
  ProviderError,
  packageFolder,
  RECORD_FILE,
  RUNTIME_FILES,
  runtimeVersion,
} from '@matting/serving/providers/provider-files.ts';
import { findLibraries, foldersToRecord } from './library-search.ts';
import { type CopiedLibrary, openPackageSource, type PackageSource } from './package-source.ts';

interface InstallOptions {
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
  for (const { name } of libraries) await requireForThisMachine(path.join(partial, name), name);
  const files: InstalledFile[] = [...libraries];
  for (const name of RUNTIME_FILES) files.push(await copyRuntime(partial, name));
  const search = { ldLibraryPath, further: libraryFolders };
  const found = await findLibraries(search);
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
  const missing = PROVIDER_LIBRARIES.filter(library => !there.has(library));
  if (missing.length > 0) throw new ProviderError(`${name} has no ${missing.join(' and no ')}`);
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
