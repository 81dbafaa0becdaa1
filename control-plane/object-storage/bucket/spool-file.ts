/**
 * A blob's bytes before they are sent: a file that has no name, so that neither this process's end
 * nor its machine's leaves one behind. However many are open, their bytes are in no memory but the
 * system's, which gives it back where it is needed.
 */
import { createHash, type Hash, randomUUID } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import path from 'node:path';

const FILE_MODE = 0o600;

export interface SpooledPart {
  readonly offset: number;
  readonly length: number;
  /** Hexadecimal. */
  readonly sha256: string;
}

/** Hashes what is appended, as it comes: a file that changed it is found out by the store. */
export class SpoolFile {
  readonly #file: FileHandle;
  readonly #partBytes: number;
  readonly #whole: Hash = createHash('sha256');
  /** Of the part that is being written; the first part's is the whole's. */
  #part: Hash = createHash('sha256');
  /** Of the parts that are full, hexadecimal. */
  readonly #ended: string[] = [];
  #bytes = 0;

  private constructor(file: FileHandle, partBytes: number) {
    this.#file = file;
    this.#partBytes = partBytes;
  }

  /** @param partBytes what `parts` divides it into */
  static async open(directory: string, partBytes: number): Promise<SpoolFile> {
    const name = path.join(directory, `matting-spool-${randomUUID()}`);
    const file = await open(name, 'wx+', FILE_MODE);
    try {
      await unlink(name);
    } catch (error) {
      await file.close();
      throw error;
    }
    return new SpoolFile(file, partBytes);
  }

  get bytes(): number {
    return this.#bytes;
  }

  async append(chunk: Uint8Array): Promise<void> {
    let done = 0;
    while (done < chunk.length) {
      const left = chunk.length - done;
      done += (await this.#file.write(chunk, done, left, this.#bytes + done)).bytesWritten;
    }
    let rest = chunk;
    while (rest.length > 0) {
      const piece = rest.subarray(0, this.#partBytes - (this.#bytes % this.#partBytes));
      this.#hash(piece);
      rest = rest.subarray(piece.length);
    }
  }

  /** @param piece within one part */
  #hash(piece: Uint8Array): void {
    const isFirst = this.#bytes < this.#partBytes;
    this.#whole.update(piece);
    if (!isFirst) this.#part.update(piece);
    this.#bytes += piece.length;
    if (this.#bytes % this.#partBytes > 0) return;
    this.#ended.push((isFirst ? this.#whole.copy() : this.#part).digest('hex'));
    this.#part = createHash('sha256');
  }

  /** All that was appended, hexadecimal. */
  sha256(): string {
    return this.#whole.copy().digest('hex');
  }

  /** What was appended in parts, the last one shorter; none of an empty file. */
  parts(): readonly SpooledPart[] {
    const hashes = [...this.#ended];
    const isWhole = this.#bytes % this.#partBytes === 0;
    if (!isWhole)
      hashes.push((hashes.length === 0 ? this.#whole : this.#part).copy().digest('hex'));
    return hashes.map((sha256, index) => {
      const offset = index * this.#partBytes;
      return { offset, length: Math.min(this.#partBytes, this.#bytes - offset), sha256 };
    });
  }

  /** As much of it as there is. */
  async read(offset: number, length: number): Promise<Buffer> {
    const available = Math.max(0, Math.min(length, this.#bytes - offset));
    const buffer = Buffer.allocUnsafe(available);
    let done = 0;
    while (done < available) {
      const left = available - done;
      const { bytesRead } = await this.#file.read(buffer, done, left, offset + done);
      if (bytesRead === 0) throw new Error('the spool file is shorter than what was written');
      done += bytesRead;
    }
    return buffer;
  }

  /** Its bytes are gone. */
  async close(): Promise<void> {
    await this.#file.close();
  }
}
