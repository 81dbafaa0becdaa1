/**
 * Blobs as files of one directory, which all replicas share:
 *
 *     <root>/tmp/<random>      unfinished writes
 *     <root>/inputs/<id>       committed blobs, by the first part of their name
 *     <root>/backgrounds/<id>
 *     <root>/results/<id>
 *
 * A blob appears under its name whole and durable: written to tmp, synced, renamed, the directory
 * synced. Flat directories: ext4 and XFS index them, and a day's results are some hundred thousand.
 * Only the owner may read and write. It knows nothing of jobs.
 */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import {
  access,
  type FileHandle,
  open,
  opendir,
  rename,
  stat,
  statfs,
  unlink,
} from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { ContractError } from '#contract/errors.ts';
import { fileClockMs } from '#program/file-clock.ts';
import { makeDirectory } from '#program/make-directory.ts';
import {
  BlobNotFoundError,
  type BlobPart,
  type BlobReading,
  type BlobStore,
  type BlobWriter,
} from './blob-store.ts';

const UNFINISHED = 'tmp';
const KINDS = ['inputs', 'backgrounds', 'results'] as const;
/** Entries of a directory that are read at once. */
const ENTRIES_READ = 256;
/** What a name's second part may be made of: no dot, no slash, so no way out of the directory. */
const NAME = /^(inputs|backgrounds|results|tmp)\/[A-Za-z0-9_-]{1,128}$/;
const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
/** A piece of a file that is read for sending: as large as a chunk of the gRPC API. */
const READ_BYTES = 256 * 1024;

const UNWRITABLE = 'the storage cannot be written at the moment';
const UNREADABLE = 'the storage cannot be read at the moment';

type Kind = (typeof KINDS)[number];
type Syncs = Readonly<Record<Kind, DirectorySync>>;

export interface DirectoryBlobStoreOptions {
  /** Replaces the file system's clock, which files' times are compared with, in tests. */
  readonly nowMs?: () => number;
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === 'ENOENT';
}

/** No space, read-only, no rights, a bad disk: callers may retry, the operator must act. */
function writing<T>(work: Promise<T>): Promise<T> {
  return work.catch(cause => {
    throw unavailable(UNWRITABLE, cause);
  });
}

function reading<T>(work: Promise<T>): Promise<T> {
  return work.catch(cause => {
    throw unavailable(UNREADABLE, cause);
  });
}

function unavailable(detail: string, cause: unknown): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', detail, { cause });
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Syncs of one directory: one sync serves all calls made before it began. */
class DirectorySync {
  readonly #directory: string;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Resolves when what was renamed into it before the call is durable. */
  sync(): Promise<void> {
    this.#next ??= this.#after(this.#running);
    return this.#next;
  }

  async #after(running: Promise<void> | undefined): Promise<void> {
    await running?.catch(() => undefined);
    this.#running = this.#next;
    this.#next = undefined;
    await syncDirectory(this.#directory);
  }
}

async function unlinkIfThere(file: string): Promise<void> {
  await unlink(file).catch(error => {
    if (!isMissing(error)) throw error;
  });
}

async function writeFully(file: FileHandle, chunk: Uint8Array, position: number): Promise<void> {
  let done = 0;
  while (done < chunk.length) {
    const left = chunk.length - done;
    done += (await file.write(chunk, done, left, position + done)).bytesWritten;
  }
}

/**
 * | state     | entered by         | left by                       |
 * |-----------|--------------------|-------------------------------|
 * | open      | createWriter       | commit, abort                 |
 * | committed | commit             | -; abort does nothing         |
 * | aborted   | abort              | -; a second abort does nothing |
 *
 * A commit that fails leaves it open: the caller aborts.
 */
class DirectoryBlobWriter implements BlobWriter {
  readonly #root: string;
  readonly #syncs: Syncs;
  readonly #temporary: string;
  readonly #file: FileHandle;
  #state: 'open' | 'committed' | 'aborted' = 'open';
  #bytesWritten = 0;

  constructor(root: string, syncs: Syncs, temporary: string, file: FileHandle) {
    this.#root = root;
    this.#syncs = syncs;
    this.#temporary = temporary;
    this.#file = file;
  }

  get bytesWritten(): number {
    return this.#bytesWritten;
  }

  async write(chunk: Uint8Array): Promise<void> {
    await writing(writeFully(this.#file, chunk, this.#bytesWritten));
    this.#bytesWritten += chunk.length;
  }

  async readAt(offset: number, length: number): Promise<Uint8Array> {
    const available = Math.max(0, Math.min(length, this.#bytesWritten - offset));
    const buffer = Buffer.allocUnsafe(available);
    let done = 0;
    while (done < available) {
      const left = available - done;
      const reads = this.#file.read(buffer, done, left, offset + done);
      const { bytesRead } = await reading(reads);
      if (bytesRead === 0) break;
      done += bytesRead;
    }
    return buffer.subarray(0, done);
  }

  async commit(name: string): Promise<void> {
    await writing(this.#commit(fileOf(this.#root, name), kindOf(name)));
    this.#state = 'committed';
  }

  async #commit(target: string, kind: Kind): Promise<void> {
    // Data and length are all a new file needs: fdatasync writes both.
    await this.#file.datasync();
    await rename(this.#temporary, target);
    await this.#syncs[kind].sync();
    await this.#file.close();
  }

  async abort(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'aborted';
    await writing(this.#discard());
  }

  async #discard(): Promise<void> {
    try {
      await this.#file.close();
    } finally {
      await unlinkIfThere(this.#temporary);
    }
  }
}

/** Names come from this program only: a wrong one is a bug, not an input. */
function fileOf(root: string, name: string): string {
  if (!NAME.test(name))
    throw new TypeError('a blob name is <kind>/<id>, of letters, digits, _ and -');
  return path.join(root, name);
}

/** Files in tmp alone are not committed. */
function kindOf(name: string): Kind {
  const kind = KINDS.find(known => name.startsWith(`${known}/`));
  if (kind === undefined)
    throw new TypeError('a blob is committed as an input, a background or a result');
  return kind;
}

class DirectoryBlobStore implements BlobStore {
  readonly #root: string;
  readonly #nowMs: () => number | Promise<number>;
  readonly #syncs: Syncs;

  constructor(root: string, nowMs: (() => number) | undefined) {
    this.#root = root;
    this.#nowMs = nowMs ?? (() => fileClockMs(path.join(root, UNFINISHED, randomUUID())));
    this.#syncs = {
      inputs: new DirectorySync(path.join(root, 'inputs')),
      backgrounds: new DirectorySync(path.join(root, 'backgrounds')),
      results: new DirectorySync(path.join(root, 'results')),
    };
  }

  async createWriter(): Promise<BlobWriter> {
    const temporary = path.join(this.#root, UNFINISHED, randomUUID());
    const file = await writing(open(temporary, 'wx+', FILE_MODE));
    return new DirectoryBlobWriter(this.#root, this.#syncs, temporary, file);
  }

  async openRead(name: string, reading: BlobReading = {}): Promise<Readable> {
    const file = await open(fileOf(this.#root, name), 'r').catch(error => {
      if (isMissing(error)) throw new BlobNotFoundError(name, error);
      throw unavailable(UNREADABLE, error);
    });
    const { pieceBytes = READ_BYTES, ...range } = reading;
    return file.createReadStream({ ...range, highWaterMark: pieceBytes });
  }

  async stat(name: string): Promise<{ readonly bytes: number } | undefined> {
    try {
      return { bytes: (await stat(fileOf(this.#root, name))).size };
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  async remove(name: string): Promise<void> {
    await writing(unlinkIfThere(fileOf(this.#root, name)));
  }

  async *listOlderThan(olderThanMs: number, part?: BlobPart): AsyncGenerator<string> {
    const before = (await writing(Promise.resolve(this.#nowMs()))) - olderThanMs;
    for (const kind of [UNFINISHED, ...KINDS]) {
      const directory = await opendir(path.join(this.#root, kind), { bufferSize: ENTRIES_READ });
      for await (const entry of directory) {
        if (part !== undefined && entry.name.charCodeAt(0) % part.of !== part.part) continue;
        const name = `${kind}/${entry.name}`;
        if (!entry.isFile() || !NAME.test(name)) continue;
        const touchedMs = await this.#touchedMs(name);
        if (touchedMs !== undefined && touchedMs < before) yield name;
      }
    }
  }

  /** Uses ctime too, which the rename set. Undefined: removed meanwhile. */
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
    // The final directories too: otherwise a failing rename would show only after the inference.
    for (const kind of KINDS) {
      await writing(access(path.join(this.#root, kind), constants.W_OK | constants.X_OK));
    }
    const writer = await this.createWriter();
    try {
      await writer.write(Buffer.from('check'));
    } finally {
      await writer.abort();
    }
  }

  async freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.#root);
    return bavail * bsize;
  }
}

/**
 * Makes the directories where they are missing, and proves that they can be written. Rejects with
 * SERVICE_UNAVAILABLE and the system's error as cause where they cannot.
 */
export async function openDirectoryBlobStore(
  root: string,
  { nowMs }: DirectoryBlobStoreOptions = {},
): Promise<BlobStore> {
  for (const kind of [UNFINISHED, ...KINDS]) {
    const directory = path.join(root, kind);
    await writing((async () => makeDirectory(directory, DIRECTORY_MODE))());
  }
  await writing(syncDirectory(root));
  const store = new DirectoryBlobStore(root, nowMs);
  await store.check();
  return store;
}
