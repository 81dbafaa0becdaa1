/**
 * What the first bytes of a file say of it, without decoding a pixel: which of the five input
 * formats it is, its stored width and height, and whether it is animated. Hostile input is expected:
 * every read is bounded and every loop ends.
 */
import type { InputFormat } from './formats.ts';

export interface ImageHeader {
  readonly format: InputFormat;
  /** Pixels as stored (before EXIF or irot); undefined where the header does not show them. */
  readonly width: number | undefined;
  readonly height: number | undefined;
  /** More than one frame: refused by the contract. An AVIF grid is not an animation. */
  readonly animated: boolean;
}

/** Reads up to `length` bytes at `offset`; fewer at the end of the file. */
export type ByteReader = (offset: number, length: number) => Promise<Uint8Array> | Uint8Array;

/** Undefined: the bytes are none of the five formats. Never throws on bytes, only when a read does. */
export async function readImageHeader(
  _read: ByteReader,
  _sizeBytes: number,
): Promise<ImageHeader | undefined> {
  throw new Error('not built yet');
}
