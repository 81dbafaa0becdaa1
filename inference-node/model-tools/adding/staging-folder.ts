/**
 * A folder `.adding-<host>-<pid>-<random>` in the model folder, in which a model's files are put
 * together before they join the cache. A crash leaves a folder that nobody uses, which a later
 * `models add` removes. `.placing.json` names the model before its files move.
 */
import { randomBytes } from 'node:crypto';
import { constants, copyFile, link, mkdir, readFile, rename, rm, rmdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { makeDirectory, syncPath } from '@matting/program/files.ts';
import { hostLabel } from '@matting/program/host-label.ts';
import {
  fileSystemClockMs,
  isMissing,
  listDirectory,
  recordBytes,
  statOrNull,
  writeFileWhole,
} from '@matting/serving/models/cache-files.ts';
import {
  listManifests,
  loadManifest,
  MANIFEST_FILE,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import { diskError } from '@matting/serving/models/model-error.ts';
import {
  findWeightsFile,
  recordChecked,
  weightsDirectory,
  weightsPath,
} from '@matting/serving/prepared/weights-cache.ts';

export interface ModelFolders {
  readonly modelDir: string;
  readonly addedModelsDir: string;
}

interface Placing {
  readonly name: string;
  readonly version: string;
}

const PLACING_FILE = '.placing.json';
const HOST = hostLabel(64);
const STAGING_NAME = /^\.adding-(.*)-(\d+)-[0-9a-f]{12}$/;
/** A person may take this long to answer. A fetch gives up long before. */
const IDLE_MAX_MS = 30 * 60 * 1000;

export class StagingFolder {
  readonly directory: string;
  readonly #folders: ModelFolders;

  private constructor(directory: string, folders: ModelFolders) {
    this.directory = directory;
    this.#folders = folders;
  }

  static async open(folders: ModelFolders): Promise<StagingFolder> {
    const { modelDir } = folders;
    const name = `.adding-${HOST}-${process.pid}-${randomBytes(6).toString('hex')}`;
    const directory = join(modelDir, name);
    try {
      makeDirectory(modelDir);
      await mkdir(directory);
    } catch (error) {
      throw diskError(error, 'write', directory);
    }
    return new StagingFolder(directory, folders);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await clear(this.directory, this.#folders);
  }

  path(file: string): string {
    return join(this.directory, file);
  }

  /** Moves the files to the cache, but keeps equal bytes that are there already. */
  async moveToCache(manifest: ModelManifest): Promise<void> {
    const { name, version } = manifest;
    const { modelDir } = this.#folders;
    const placing: Placing = { name, version };
    await writeFileWhole(this.path(PLACING_FILE), file => file.write(recordBytes(placing), 0));
    makeDirectory(weightsDirectory(modelDir, manifest));
    for (const file of manifest.files) {
      const path = weightsPath(modelDir, manifest, file);
      const stored = await findStored(file.sha256, this.#folders);
      if (stored !== path) await linkOrCopy(stored ?? this.path(file.name), path);
      await recordChecked(path, file);
      // A new link changes the file's ctime, and so its record.
      if (stored !== undefined) await recordChecked(stored, file);
    }
  }
}

/** Removes folders of dead processes, and of other machines by their age alone. */
export async function removeStaleStagingFolders(folders: ModelFolders): Promise<void> {
  const { modelDir } = folders;
  const names = (await listDirectory(modelDir)).filter(name => STAGING_NAME.test(name));
  if (names.length === 0) return;
  const nowMs = await fileSystemClockMs(modelDir);
  if (nowMs === undefined) return;
  for (const name of names) {
    const directory = join(modelDir, name);
    const files = (await listDirectory(directory)).map(file => join(directory, file));
    const times = await Promise.all([directory, ...files].map(statOrNull));
    const touchedMs = Math.max(...times.map(found => found?.mtimeMs ?? 0));
    const [, host, pid] = STAGING_NAME.exec(name) ?? [];
    const isGone = host === HOST && !isAlive(Number(pid));
    if (isGone || nowMs - touchedMs > IDLE_MAX_MS) await clear(directory, folders);
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Removes the files in the cache too, unless the manifest, which is written last, exists. */
async function clear(directory: string, folders: ModelFolders): Promise<void> {
  const { modelDir, addedModelsDir } = folders;
  const placing = await readPlacing(directory);
  if (placing !== undefined) {
    const there = await addedVersion(placing.name, addedModelsDir);
    if (there !== placing.version) await removeFiles(modelDir, placing);
    if (there === undefined) await remove(join(addedModelsDir, placing.name));
  }
  await remove(directory);
}

async function readPlacing(directory: string): Promise<Placing | undefined> {
  try {
    return JSON.parse(await readFile(join(directory, PLACING_FILE), 'utf8')) as Placing;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw diskError(error, 'read', directory);
  }
}

async function addedVersion(name: string, addedModelsDir: string): Promise<string | undefined> {
  const names = await listManifests(addedModelsDir);
  return names.includes(name) ? (await loadManifest(name, addedModelsDir)).version : undefined;
}

/** The manifest first: without it there is no model. */
export async function removeAdded(manifest: ModelManifest, folders: ModelFolders): Promise<void> {
  const directory = join(folders.addedModelsDir, manifest.name);
  await remove(join(directory, MANIFEST_FILE));
  await remove(directory);
  await removeFiles(folders.modelDir, manifest);
}

async function removeFiles(modelDir: string, { name, version }: Placing): Promise<void> {
  await remove(join(modelDir, name, version));
  await rmdir(join(modelDir, name)).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST' && !isMissing(error)) throw error;
  });
}

async function remove(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    throw diskError(error, 'remove', path);
  }
}

export async function findStored(
  sha256: string,
  { modelDir: cacheDir, addedModelsDir }: ModelFolders,
): Promise<string | undefined> {
  for (const name of await listManifests(undefined, addedModelsDir)) {
    const manifest = await loadManifest(name, undefined, addedModelsDir);
    for (const file of manifest.files) {
      if (file.sha256 !== sha256) continue;
      const { path, check } = await findWeightsFile({ cacheDir }, manifest, file);
      if (check.state === 'checked') return path;
    }
  }
  return undefined;
}

/** The file system has no links, or the paths are on two file systems: the file is copied. */
const NO_LINK: ReadonlySet<unknown> = new Set(['EXDEV', 'EPERM', 'ENOTSUP', 'EMLINK', 'ENOSYS']);

export async function linkOrCopy(from: string, to: string): Promise<void> {
  const name = `.${basename(to)}.${process.pid}.${randomBytes(6).toString('hex')}.tmp`;
  const temporary = join(dirname(to), name);
  try {
    await link(from, temporary).catch(async error => {
      if (!NO_LINK.has((error as NodeJS.ErrnoException).code)) throw error;
      await copyFile(from, temporary, constants.COPYFILE_FICLONE);
      await syncPath(temporary);
    });
    await rename(temporary, to);
    await syncPath(dirname(to));
  } catch (error) {
    await rm(temporary, { force: true });
    throw diskError(error, 'write', to);
  }
}
