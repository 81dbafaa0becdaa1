import type { InputFormat } from '../formats.ts';

/** Returns fewer bytes at the end of the file. */
export type ByteReader = (offset: number, length: number) => Promise<Uint8Array> | Uint8Array;

/** A page of the file system. Larger than any header structure. */
export const WINDOW_BYTES = 4096;
/** Of one file. A JPEG of 50 MB in full APP segments takes 800. */
const WINDOW_READS_MAX = 4096;

/** Random access with exact lengths and a bounded number of reads. */
export class ByteWindow {
  readonly #read: ByteReader;
  readonly sizeBytes: number;
  #start = 0;
  #held: Buffer = Buffer.alloc(0);
  #reads = 0;

  constructor(read: ByteReader, sizeBytes: number) {
    this.#read = read;
    this.sizeBytes = sizeBytes;
  }

  /**
   * Exactly `length` bytes (at most WINDOW_BYTES), valid until the next call. undefined: beyond the
   * end, or no reads are left.
   */
  async at(offset: number, length: number): Promise<Buffer | undefined> {
    if (length > WINDOW_BYTES || offset + length > this.sizeBytes) return undefined;
    if (offset < this.#start || offset + length > this.#start + this.#held.length) {
      if (this.#reads === WINDOW_READS_MAX) return undefined;
      this.#reads += 1;
      const bytes = await this.#read(offset, Math.min(WINDOW_BYTES, this.sizeBytes - offset));
      this.#start = offset;
      this.#held = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      if (length > this.#held.length) return undefined;
    }
    return this.#held.subarray(offset - this.#start, offset - this.#start + length);
  }

  /** At least one byte, and the rest of its read. undefined like `at`. */
  async from(offset: number): Promise<Buffer | undefined> {
    const first = await this.at(offset, 1);
    return first && this.#held.subarray(offset - this.#start);
  }

  /** Fewer bytes at the end of the file. */
  async upTo(offset: number, length: number): Promise<Buffer> {
    const there = Math.max(0, Math.min(length, this.sizeBytes - offset));
    return (await this.at(offset, there)) ?? Buffer.alloc(0);
  }
}

export function windowOf(file: Buffer): ByteWindow {
  return new ByteWindow((offset, length) => file.subarray(offset, offset + length), file.length);
}

export interface ImageHeader {
  readonly format: InputFormat;
  /** Stored pixels, before EXIF or irot. undefined: not in the header. */
  readonly width: number | undefined;
  readonly height: number | undefined;
  /** More than one frame. An AVIF grid is not an animation. */
  readonly animated: boolean;
}

/** An unsupported variant's name, to follow "this is". */
export type UnreadVariant = string;
