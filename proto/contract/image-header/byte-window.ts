/** The input and the result of every reader of an image header. */
import type { InputFormat } from '../formats.ts';

/** Reads up to `length` bytes at `offset`; fewer at the end of the file. */
export type ByteReader = (offset: number, length: number) => Promise<Uint8Array> | Uint8Array;

/** One read: a page of the file system, and more than any single header structure. */
export const WINDOW_BYTES = 4096;
/** Reads of one file. A JPEG of 50 MB in full APP segments takes 800. */
const WINDOW_READS_MAX = 4096;

/**
 * Random access to a file of unknown honesty: exact lengths or nothing, and a bound on how often
 * the file is touched. It knows no format.
 */
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
   * Exactly `length` bytes (at most WINDOW_BYTES) at `offset`, valid until the next call; undefined
   * past the end of the file, and once the reads are used up.
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

  /** One byte at `offset` or more, as many as one read gave; undefined like `at`. */
  async from(offset: number): Promise<Buffer | undefined> {
    const first = await this.at(offset, 1);
    return first && this.#held.subarray(offset - this.#start);
  }

  /** Up to `length` bytes at `offset`: as many as the file still has. */
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
  /** Pixels as stored (before EXIF or irot); undefined where the header does not show them. */
  readonly width: number | undefined;
  readonly height: number | undefined;
  /** More than one frame: refused by the contract. An AVIF grid is not an animation. */
  readonly animated: boolean;
}

/** Variant of a format that no decoder here reads: its name, to follow "this is". */
export type UnreadVariant = string;
