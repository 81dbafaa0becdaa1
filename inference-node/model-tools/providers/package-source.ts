/**
 * Source of a provider's libraries: an archive (a wheel or a NuGet package, both zip files), or a
 * folder with one unpacked.
 */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream, type Stats, writeSync } from 'node:fs';
import { copyFile, open, readFile } from 'node:fs/promises';
import path from 'node:path';
import { hashFile, listDirectory, statOrNull } from '@matting/serving/models/cache-files.ts';
import { diskError } from '@matting/serving/models/model-error.ts';
import {
  PROVIDER_LIBRARIES,
  ProviderError,
  type ProviderLibrary,
} from '@matting/serving/providers/provider-files.ts';
import { Unzip, type UnzipFile, UnzipInflate } from 'fflate';

export interface CopiedLibrary {
  readonly name: ProviderLibrary;
  readonly bytes: number;
  readonly sha256: string;
}

export interface PackageSource {
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
