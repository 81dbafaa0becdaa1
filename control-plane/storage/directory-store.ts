/**
 * Blobs as private files of a directory, which all replicas share:
 *
 *     <root>/tmp/<random>      unfinished writes
 *     <root>/inputs/<id>       committed blobs, by the first part of their name
 *     <root>/backgrounds/<id>
 *     <root>/results/<id>
 *
 * A commit syncs the file in tmp, renames it and syncs the directory. The directories are flat:
 * ext4 and XFS index them, and a day has some hundred thousand results.
 */

import { randomUUID } from 'node:crypto';
import { constants, type Dir } from 'node:fs';
import { access, open, opendir, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { fileClockMs, makeDirectory, syncPath } from '@matting/program/files.ts';
import {
  BLOB_ID,
  BLOB_KINDS,
  type BlobKind,
  BlobNotFoundError,
  type BlobPart,
  type BlobReading,
  type BlobStore,
  type BlobWriter,
  isStorageFull,
  requireBlobName,
  requireRoom,
  roomOf,
  type StorageRoom,
  unreadable,
} from './blob-store.ts';
import {
  DirectoryBlobWriter,
  DirectorySync,
  isMissing,
  reading,
  unlinkIfThere,
  writing,
} from './directory-writer.ts';

const UNFINISHED = 'tmp';
const ENTRIES_READ = 256;
const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
/** As large as a chunk of the gRPC API. */
const READ_BYTES = 256 * 1024;

/** @throws TypeError: not the name of a blob or an unfinished write */
function fileOf(root: string, name: string): string {
  const unfinished = name.startsWith(`${UNFINISHED}/`) ? name.slice(UNFINISHED.length + 1) : '';
  if (!BLOB_ID.test(unfinished)) requireBlobName(name);
  return path.join(root, name);
}

class DirectoryBlobStore implements BlobStore {
  readonly #root: string;
  readonly #nowMs: () => number | Promise<number>;
  readonly #mayLack: boolean;
  readonly #syncs: Readonly<Record<BlobKind, DirectorySync>>;

  /** @param mayLack treats a missing directory as empty */
  constructor(root: string, nowMs: (() => number) | undefined, mayLack = false) {
    this.#root = root;
    this.#mayLack = mayLack;
    this.#nowMs = nowMs ?? (() => fileClockMs(path.join(root, UNFINISHED, randomUUID())));
    this.#syncs = {
      inputs: new DirectorySync(path.join(root, 'inputs')),
      backgrounds: new DirectorySync(path.join(root, 'backgrounds')),
      results: new DirectorySync(path.join(root, 'results')),
    };
  }

  async createWriter(name: string): Promise<BlobWriter> {
    const target = path.join(this.#root, name);
    const sync = this.#syncs[requireBlobName(name).kind];
    await requireRoom(this.#root);
    const temporary = path.join(this.#root, UNFINISHED, randomUUID());
    const file = await writing(open(temporary, 'wx+', FILE_MODE));
    return new DirectoryBlobWriter({ temporary, file, target, sync });
  }

  async openRead(name: string, reading: BlobReading = {}): Promise<Readable> {
    const file = await open(fileOf(this.#root, name), 'r').catch(async error => {
      if (!isMissing(error)) throw unreadable(error);
      await this.#requireDirectoryOf(name);
      throw new BlobNotFoundError(name, error);
    });
    const { pieceBytes = READ_BYTES, ...range } = reading;
    return file.createReadStream({ ...range, highWaterMark: pieceBytes });
  }

  async stat(name: string): Promise<{ readonly bytes: number } | undefined> {
    const file = fileOf(this.#root, name);
    const found = await stat(file).catch(async error => {
      if (!isMissing(error)) throw unreadable(error);
      await this.#requireDirectoryOf(name);
      return undefined;
    });
    return found && { bytes: found.size };
  }

  /** If even the directory is missing, the disk may not be mounted. */
  async #requireDirectoryOf(name: string): Promise<void> {
    if (!this.#mayLack) await reading(stat(path.dirname(fileOf(this.#root, name))));
  }

  async remove(name: string): Promise<void> {
    await writing(unlinkIfThere(fileOf(this.#root, name)));
  }

  async *listOlderThan(olderThanMs: number, part?: BlobPart): AsyncGenerator<string> {
    const before = (await writing(Promise.resolve(this.#nowMs()))) - olderThanMs;
    for (const kind of [UNFINISHED, ...BLOB_KINDS]) {
      const directory = await this.#open(kind);
      for await (const entry of directory ?? []) {
        if (part !== undefined && entry.name.charCodeAt(0) % part.of !== part.part) continue;
        if (!entry.isFile() || !BLOB_ID.test(entry.name)) continue;
        const name = `${kind}/${entry.name}`;
        const touchedMs = await this.#touchedMs(name);
        if (touchedMs !== undefined && touchedMs < before) yield name;
      }
    }
  }

  async #open(kind: string): Promise<Dir | undefined> {
    try {
      return await opendir(path.join(this.#root, kind), { bufferSize: ENTRIES_READ });
    } catch (error) {
      if (this.#mayLack && isMissing(error)) return undefined;
      throw error;
    }
  }

  async #touchedMs(name: string): Promise<number | undefined> {
    try {
      const { mtimeMs, ctimeMs } = await stat(fileOf(this.#root, name));
      return Math.max(mtimeMs, ctimeMs);
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  async check(): Promise<void> {
    // Includes the final directories; otherwise a failing rename would show only after the
    // inference.
    for (const kind of BLOB_KINDS) {
      await writing(access(path.join(this.#root, kind), constants.W_OK | constants.X_OK));
    }
    const writer = await this.createWriter(`inputs/${randomUUID()}`);
    try {
      await writer.write(Buffer.from('check'));
    } finally {
      await writer.abort();
    }
  }

  room(): Promise<StorageRoom> {
    return roomOf(this.#root);
  }
}

/**
 * Opens a directory for reading, without any test write. Ages follow this machine's clock. `aws s3
 * sync` and rclone leave out empty directories, so those may be missing.
 */
export function readDirectoryBlobs(root: string): BlobStore {
  return new DirectoryBlobStore(root, () => Date.now(), true);
}

export async function missingDirectories(root: string): Promise<readonly string[]> {
  const missing: string[] = [];
  for (const directory of [
    root,
    ...[UNFINISHED, ...BLOB_KINDS].map(kind => path.join(root, kind)),
  ]) {
    await stat(directory).catch(error => {
      if (isMissing(error) || error.code === 'ENOTDIR') missing.push(directory);
    });
  }
  return missing;
}

/** Creates missing directories. @throws ContractError */
export async function openDirectoryBlobStore(
  root: string,
  nowMs?: () => number,
): Promise<BlobStore> {
  for (const kind of [UNFINISHED, ...BLOB_KINDS]) {
    const directory = path.join(root, kind);
    await writing((async () => makeDirectory(directory, DIRECTORY_MODE))());
  }
  await writing(syncPath(root));
  const store = new DirectoryBlobStore(root, nowMs);
  // A full disk can be read, and removals make room. /readyz reports it.
  await store.check().catch(error => {
    if (!isStorageFull(error)) throw error;
  });
  return store;
}
