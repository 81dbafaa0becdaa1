import { type FileHandle, rename, unlink } from 'node:fs/promises';
import { syncPath } from '@matting/program/files.ts';
import { type BlobWriter, unreadable, unwritable } from './blob-store.ts';

/** Rejects with SERVICE_UNAVAILABLE and the file system's error as the cause. */
export function writing<T>(work: Promise<T>): Promise<T> {
  return work.catch(cause => {
    throw unwritable(cause);
  });
}

export function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === 'ENOENT';
}

/** One sync serves all calls made before it began. */
export class DirectorySync {
  readonly #directory: string;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Resolves when earlier renames into the directory are durable. */
  sync(): Promise<void> {
    this.#next ??= this.#after(this.#running);
    return this.#next;
  }

  async #after(running: Promise<void> | undefined): Promise<void> {
    await running?.catch(() => undefined);
    this.#running = this.#next;
    this.#next = undefined;
    await syncPath(this.#directory);
  }
}

export async function unlinkIfThere(file: string): Promise<void> {
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

interface DirectoryWriting {
  readonly temporary: string;
  readonly file: FileHandle;
  readonly target: string;
  readonly sync: DirectorySync;
}

/**
 * | state     | entered by         | left by                       |
 * |-----------|--------------------|-------------------------------|
 * | open      | createWriter       | commit, abort                 |
 * | committed | commit             | -; abort does nothing         |
 * | aborted   | abort              | -; a second abort does nothing |
 *
 * After a failed commit the caller must abort.
 */
export class DirectoryBlobWriter implements BlobWriter {
  readonly #writing: DirectoryWriting;
  readonly #file: FileHandle;
  #state: 'open' | 'committed' | 'aborted' = 'open';
  #bytesWritten = 0;

  constructor(writing: DirectoryWriting) {
    this.#writing = writing;
    this.#file = writing.file;
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

  async commit(): Promise<void> {
    await writing(this.#commit());
    this.#state = 'committed';
  }

  async #commit(): Promise<void> {
    const { temporary, target, sync } = this.#writing;
    // fdatasync writes data and length, all that a new file needs.
    await this.#file.datasync();
    await rename(temporary, target);
    await sync.sync();
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
      await unlinkIfThere(this.#writing.temporary);
    }
  }
}

export function reading<T>(work: Promise<T>): Promise<T> {
  return work.catch(cause => {
    throw unreadable(cause);
  });
}
